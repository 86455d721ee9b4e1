"""Several services on one database: what one of them changes, the others follow."""

import threading
import time

import pytest

pytest.importorskip("sqlalchemy", reason="needs exchangeable[serve]")
pytest.importorskip("fastapi", reason="needs exchangeable[serve]")
pytest.importorskip("httpx2", reason="needs httpx2")

from fastapi.testclient import TestClient
from soak import serve_followers
from tests.support.service_engine import (
    FILM,
    FRAME,
    MEMBER,
    fit_bias,
    named,
    open_shared,
    predicted,
    until,
)

from exchangeable.errors import Failed
from exchangeable.serve import follower as follower_module
from exchangeable.serve.answers.lists import Question
from exchangeable.serve.app import create_app
from exchangeable.storage import changes


@pytest.fixture
def held(pair, monkeypatch):
    """Refreshes of the second engine wait until it is set."""
    event = threading.Event()
    monkeypatch.setattr(pair[1].refresher, "make", lambda table: event.wait(20) and fit_bias(table))
    yield event
    event.set()


def test_what_one_writes_the_other_predicts_from(pair):
    one, other = pair
    films = FRAME["film"].unique()[:20]
    version = one.refresher.put([(("newcomer", film), 1.0) for film in films])
    until(lambda: other.snapshot.version >= version, 5)
    assert other.snapshot.refreshes == 0  # the cells were folded in
    until(lambda: one.snapshot.version >= version)
    mean = [engine.predict([("newcomer", FILM)], 0.8)[0].mean[0] for engine in pair]
    assert mean[0] == pytest.approx(mean[1])
    assert other.refresher.behind == 0


def test_both_write_and_both_have_everything(pair):
    def write(engine, number):
        for n in range(10):
            engine.refresher.put([((f"writer {number} {n}", FILM), 4.0)])

    threads = [threading.Thread(target=write, args=(pair[n % 2], n)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    until(lambda: all(engine.snapshot.version == 41 for engine in pair))
    expected = set(FRAME["member"]) | {f"writer {m} {n}" for m in range(4) for n in range(10)}
    assert named(pair[0]) == named(pair[1]) == expected


def test_who_was_deleted_elsewhere_is_hidden_while_a_refresh_runs(pair, held):
    one, other = pair
    one.refresher.delete_cell((MEMBER, FILM))
    until(lambda: other.refresher.refreshing)
    gone = FRAME["member"][-1]
    one.refresher.delete_member(0, gone)
    until(lambda: gone not in named(other))
    assert other.refresher.refreshing
    assert MEMBER in named(other)
    ranked = other.recommend(Question(1, FILM, n=10_000))[0]
    assert gone not in [cell.labels["member"] for cell in ranked]
    held.set()
    until(lambda: other.snapshot.read_version == 3)
    assert gone not in named(other)
    assert not other.snapshot.deleted_members  # its cells are in no pool
    assert len(other.snapshot.completer.table_) == len(other.store.read_table()[1])


def test_several_who_were_deleted_before_the_log_was_read_are_all_hidden(pair, held):
    one, other = pair
    gone = set(FRAME["member"].unique(maintain_order=True)[:3])
    with other.refresher.follower._looking:
        for member in gone:
            one.refresher.delete_member(0, member)
    until(lambda: not gone & named(other))
    assert other.snapshot.read_version == 1


def test_who_was_added_and_deleted_before_the_addition_was_folded_in_is_not_named(
    pair, monkeypatch
):
    one, other = pair
    folding, go_on = threading.Event(), threading.Event()
    plain = other.refresher._try_fold

    def slow(*given):
        folding.set()
        go_on.wait(20)
        return plain(*given)

    monkeypatch.setattr(other.refresher, "_try_fold", slow)
    seen = []
    publish = other.refresher._publish

    def watched(new):
        publish(new)
        seen.append(named(other))

    monkeypatch.setattr(other.refresher, "_publish", watched)
    one.refresher.put([(("eve", FILM), 4.0)])
    assert folding.wait(20)
    one.refresher.delete_member(0, "eve")
    until(lambda: other.refresher.followed == 3)
    go_on.set()
    until(lambda: other.snapshot.version == 3)
    assert seen
    assert not [names for names in seen if "eve" in names]


def test_a_member_that_comes_back_is_named_again(pair):
    one = pair[0]
    one.refresher.delete_member(0, MEMBER)
    one.refresher.put([((MEMBER, FILM), 4.0)])
    until(lambda: all(engine.snapshot.read_version >= 2 for engine in pair))
    until(lambda: all(engine.snapshot.version == 3 for engine in pair))
    assert all(MEMBER in named(engine) for engine in pair)


def test_a_response_in_the_making_does_not_name_who_is_deleted_meanwhile(pair, monkeypatch):
    one, other = pair
    begun, go_on = threading.Event(), threading.Event()
    plain = other.members

    def slow(*given):
        found = plain(*given)
        begun.set()
        go_on.wait(20)
        return found

    monkeypatch.setattr(other, "members", slow)
    with TestClient(create_app(other)) as client:
        told = []
        path = "/v1/members?axis=member&limit=1000"
        asking = threading.Thread(target=lambda: told.append(client.get(path).json()))
        asking.start()
        assert begun.wait(20)
        one.refresher.delete_member(0, MEMBER)
        until(lambda: MEMBER not in {label for label, _ in plain(0, "", 1000)})
        go_on.set()
        asking.join()
    assert MEMBER not in [one["label"] for one in told[0]["members"]]
    assert len(told[0]["members"]) == FRAME["member"].n_unique() - 1


def test_without_contact_nobody_is_named(pair, monkeypatch):
    one, other = pair
    monkeypatch.setattr(other.refresher.follower, "max_silence", 0.5)

    def fail(after):
        raise Failed("the database cannot be followed: no route")

    with TestClient(create_app(other)) as client:
        predicted(client, [MEMBER, FILM])
        watch = other.refresher.follower._watch
        plain, watch.look = watch.look, fail
        one.refresher.delete_member(0, MEMBER)
        until(lambda: client.get("/v1/members").status_code == 503, 5)
        refused = client.post("/v1/recommend", json={"axis": "film", "member": FILM})
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        assert "try again" in refused.json()["error"]
        assert "contact" in client.get("/ready").json()["reasons"]
        assert client.get("/ready").status_code == 503
        assert client.get("/health").status_code == 200  # a restart would not help
        watch.look = plain
        until(lambda: client.get("/v1/members").status_code == 200, 5)
        assert MEMBER not in named(other)
        until(lambda: client.get("/ready").status_code == 200)


def test_a_gap_in_the_log_closes_the_table_until_it_has_been_read_again(pair, held, monkeypatch):
    one, other = pair
    monkeypatch.setattr(changes, "KEEP_SECONDS", -1.0)
    with other.refresher.follower._looking:  # as if it were out of touch
        one.refresher.delete_member(0, MEMBER)
        one.store.trim_log()
    with TestClient(create_app(other)) as client:
        until(lambda: client.get("/v1/members").status_code == 503, 5)
        assert "contact" in client.get("/ready").json()["reasons"]
        held.set()
        until(lambda: client.get("/v1/members").status_code == 200)
        assert MEMBER not in named(other)
        assert other.snapshot.read_version == 2


def test_a_gap_before_further_changes_is_one_too(pair, held, monkeypatch):
    """The log still has what came after the deletion, and no word of that."""
    one, other = pair
    with other.refresher.follower._looking:  # as if it were out of touch
        one.refresher.delete_member(0, MEMBER)
        monkeypatch.setattr(changes, "KEEP_SECONDS", -1.0)
        one.store.trim_log()
        monkeypatch.undo()
        monkeypatch.setattr(
            other.refresher, "make", lambda table: held.wait(20) and fit_bias(table)
        )
        last = one.refresher.put([(("eve", FILM), 4.0)])
    with TestClient(create_app(other)) as client:
        until(lambda: other.refresher.followed == last)
        assert client.get("/v1/members").status_code == 503
        held.set()
        until(lambda: client.get("/v1/members").status_code == 200)
    assert MEMBER not in named(other)
    assert "eve" in named(other)


def test_a_long_write_elsewhere_does_not_keep_a_service_from_following(url, monkeypatch):
    """Old entries are removed meanwhile, which has to wait for the writer."""
    monkeypatch.setattr(follower_module, "TRIM_SECONDS", 0.01)
    monkeypatch.setattr(changes, "KEEP_SECONDS", -1.0)
    one, other = open_shared(url), open_shared(url)
    looks, plain = [], other.refresher.follower._watch.look
    monkeypatch.setattr(
        other.refresher.follower._watch, "look", lambda after: looks.append(0) or plain(after)
    )
    with one.store._transaction() as connection:
        one.store.log.load(connection, 0)
        before = len(looks)
        until(lambda: len(looks) > before + 5, seconds=4)  # a writer waits for 5
    for engine in (one, other):
        engine.close()


def test_a_file_that_one_imports_the_others_read(pair):
    assert pair[0].refresher.load([("zoe", FILM, 4.0)]) == (2, 1)
    until(lambda: all("zoe" in named(engine) for engine in pair))


def test_a_member_deleted_twice_is_gone_with_the_first_deletion(pair, monkeypatch):
    """A client that repeats its call at another service waits for the right version."""
    one, other = pair
    monkeypatch.setattr(other.refresher.follower._watch, "wait", lambda: time.sleep(0.5))
    version, deleted = one.refresher.delete_member(0, MEMBER)
    assert deleted
    assert other.refresher.delete_member(0, MEMBER) == (version, 0)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_services_name_nobody_who_was_deleted_a_second_ago(kind, tmp_path, request):
    if kind == "postgresql":
        request.getfixturevalue("server")
    with (
        serve_followers.database(kind, tmp_path) as url,
        serve_followers.pair(url, tmp_path, "film-club", "--model", "bias") as services,
    ):
        seen = serve_followers.follow(services, 4.0, seed=0)
    assert seen.deleted > 3
    assert seen.read > 100
    assert not seen.late
