"""What is sent names nobody who was deleted elsewhere, however late the thread that follows is."""

import threading
import time
from types import SimpleNamespace

import pytest

pytest.importorskip("sqlalchemy", reason="needs exchangeable[serve]")
pytest.importorskip("fastapi", reason="needs exchangeable[serve]")
pytest.importorskip("httpx2", reason="needs httpx2")

from fastapi.testclient import TestClient
from starlette.concurrency import run_in_threadpool
from tests.support.service_engine import FILM, FRAME, MEMBER, named

from exchangeable.serve import follower as follower_module
from exchangeable.serve import routes
from exchangeable.serve.answers.responses import CurrentResponse
from exchangeable.serve.app import create_app
from exchangeable.serve.follower import OutOfTouch

MEMBERS = "/v1/members?axis=member&limit=1000"


@pytest.fixture
def late(pair, monkeypatch):
    """The second engine, whose thread does not look at the log any more."""
    event, waits, follower = threading.Event(), threading.Event(), pair[1].refresher.follower
    monkeypatch.setattr(follower._watch, "wait", lambda: waits.set() or event.wait())
    assert waits.wait(20)
    # Requests look themselves, and however slow this machine is, their look is recent enough.
    monkeypatch.setattr(follower, "max_age", 0.0)
    monkeypatch.setattr(follower, "max_unseen", 1e9)
    yield pair[1]
    event.set()


def names_in(answer):
    assert answer.status_code == 200, answer.text
    told = answer.json()
    return {one["label"] for one in told["members"]} if "members" in told else {
        one["labels"]["member"] for one in told["recommended"]
    }  # fmt: skip


def test_nobody_deleted_is_named_though_the_thread_that_follows_is_late(pair, late):
    with TestClient(create_app(late)) as client:
        for gone in FRAME["member"].unique(maintain_order=True)[:3]:
            assert gone in names_in(client.get(MEMBERS))
            pair[0].refresher.delete_member(0, gone)
            assert gone not in names_in(client.get(MEMBERS))
            query = {"axis": "film", "member": FILM, "n": 1000}
            assert gone not in names_in(client.post("/v1/recommend", json=query))


def test_nobody_is_named_who_is_deleted_before_the_response_is_sent(pair, late, monkeypatch):
    one, sent = pair[0], []

    class DeletedMeanwhile(CurrentResponse):
        async def __call__(self, *given):
            if not sent:
                await run_in_threadpool(one.refresher.delete_member, 0, MEMBER)
                await run_in_threadpool(late.refresher.follower.look)
            await super().__call__(*given)
            sent.append(self.body)

    monkeypatch.setattr(routes, "CurrentResponse", DeletedMeanwhile)
    with TestClient(create_app(late)) as client:
        names = names_in(client.get(MEMBERS))
    assert names == set(FRAME["member"]) - {MEMBER}
    assert len(sent) == 1


def test_a_look_that_took_too_long_is_repeated_before_anything_is_sent(pair, late, monkeypatch):
    """Its beginning counts: who was deleted after that is not hidden yet."""
    follower, looks = late.refresher.follower, []
    now, plain = [time.monotonic()], follower._watch.look

    def look(after):
        news = plain(after)
        looks.append(news.version)
        if len(looks) == 1:
            pair[0].refresher.delete_member(0, MEMBER)
            now[0] += 2
        return news

    monkeypatch.setattr(follower_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(follower._watch, "look", look)
    monkeypatch.setattr(follower, "max_age", 0.4)
    monkeypatch.setattr(follower, "max_unseen", 0.8)
    now[0] += 1
    assert MEMBER not in follower.current(lambda: named(late))[0]
    assert looks == [1, 2]


def test_while_the_thread_keeps_up_requests_do_not_look(pair, late, monkeypatch):
    follower = late.refresher.follower
    monkeypatch.setattr(follower, "max_age", 1e9)
    monkeypatch.setattr(follower._watch, "look", lambda after: 1 / 0)
    assert follower.current(lambda: "answer")[0] == "answer"


def test_without_a_look_nothing_is_sent(pair, late, monkeypatch):
    follower = late.refresher.follower
    monkeypatch.setattr(follower, "max_unseen", 0.0)
    monkeypatch.setattr(follower._watch, "look", lambda after: 1 / 0)
    computed = []
    with pytest.raises(OutOfTouch):
        follower.current(lambda: computed.append(late.members(0, "", 1000)))
    assert not computed
