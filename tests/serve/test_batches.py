"""What waits at the same time is computed together, each as if alone."""

import threading

import pytest

pytest.importorskip("sqlalchemy", reason="needs exchangeable[serve]")
pytest.importorskip("fastapi", reason="needs exchangeable[serve]")

from fastapi.testclient import TestClient
from tests.support.service_engine import FILM, FRAME, MEMBER, NUMBERED, open_engine, until

from exchangeable import Completer
from exchangeable.errors import InputError
from exchangeable.serve import engine as engine_module
from exchangeable.serve.answers import batches
from exchangeable.serve.answers.batches import Workers
from exchangeable.serve.answers.lists import Question
from exchangeable.serve.app import create_app
from exchangeable.serve.call import LEFT, Call, Ended

FILMS = FRAME["film"].unique(maintain_order=True).to_list()


class Held:
    """Computes doubles, a batch at a time, once it may; and what came together."""

    def __init__(self):
        self.go_on, self.batches = threading.Event(), []

    def __call__(self, numbers):
        self.batches.append(list(numbers))
        assert self.go_on.wait(20)
        if any(number == "broken" for number in numbers):
            raise ZeroDivisionError
        return [InputError("odd") if number % 2 else 2 * number for number in numbers]


@pytest.fixture
def workers():
    opened = Workers(1)
    yield opened
    opened.close()


def ask_all(workers, compute, queries, weight=1.0):
    """Ask while the only worker is busy, so that all of these wait; return the asking threads."""
    found = {}

    def ask(place, query):
        try:
            found[place] = workers.run(compute, query, Call(), weight)
        except Exception as error:
            found[place] = error

    threads = []
    for place, query in enumerate([0, *queries]):
        threads.append(threading.Thread(target=ask, args=(place, query)))
        threads[-1].start()
        if place == 0:
            until(lambda: compute.batches)
        else:
            until(lambda place=place: len(workers._waiting) == place)
    compute.go_on.set()
    for thread in threads:
        thread.join(20)
    return [found[place] for place in range(1, len(queries) + 1)]


def test_what_waits_while_a_worker_is_busy_is_computed_at_once(workers):
    held = Held()
    assert ask_all(workers, held, [2, 4, 6]) == [4, 8, 12]
    assert held.batches == [[0], [2, 4, 6]]


def test_an_error_is_that_of_its_own_query(workers):
    held = Held()
    found = ask_all(workers, held, [2, 3, 4])
    assert found[0::2] == [4, 8]
    assert isinstance(found[1], InputError)


def test_what_breaks_a_batch_fails_alone(workers):
    held = Held()
    found = ask_all(workers, held, [2, "broken", 4])
    assert found[0::2] == [4, 8]
    assert isinstance(found[1], ZeroDivisionError)
    assert held.batches[2:] == [[2], ["broken"], [4]]


def test_no_batch_weighs_more_than_it_may_but_the_first_query_is_always_in_it(workers, monkeypatch):
    monkeypatch.setattr(batches, "MAX_WEIGHT", 2.5)
    held = Held()
    assert ask_all(workers, held, [2, 4, 6]) == [4, 8, 12]
    assert held.batches[1:] == [[2, 4], [6]]
    heavy = Held()
    assert ask_all(workers, heavy, [2, 4], weight=9.0) == [4, 8]
    assert heavy.batches[1:] == [[2], [4]]


def test_idle_workers_share_what_waits():
    workers, begun, go_on = Workers(2), [], threading.Event()

    def compute(queries):
        begun.append(list(queries))
        assert go_on.wait(20)
        return queries

    # Both workers are idle: neither takes the query of the other.
    with workers._change:
        threads = [
            threading.Thread(target=workers.run, args=(compute, n, Call())) for n in range(2)
        ]
        for thread in threads:
            thread.start()
    until(lambda: len(begun) == 2)
    assert sorted(begun) == [[0], [1]]
    go_on.set()
    for thread in threads:
        thread.join(20)
    workers.close()


def test_who_has_left_is_not_computed_with_the_others(workers):
    held, calls, ended = Held(), [Call() for _ in range(3)], []

    def ask(place, call):
        try:
            workers.run(held, 2 * place, call)
        except Ended as error:
            ended.append(str(error))

    threads = []
    for place, call in enumerate(calls):
        threads.append(threading.Thread(target=ask, args=(place, call)))
        threads[-1].start()
        until(lambda: held.batches)
        until(lambda place=place: len(workers._waiting) == place)
    calls[1].end(LEFT)
    until(lambda: ended == [LEFT])
    held.go_on.set()
    for thread in threads:
        thread.join(20)
    assert held.batches == [[0], [4]]


def test_what_waits_when_the_service_stops_is_given_up():
    workers, held, found = Workers(1), Held(), []

    def ask(number):
        try:
            found.append(workers.run(held, number, Call()))
        except Ended as error:
            found.append(str(error))

    threads = [threading.Thread(target=ask, args=(number,)) for number in (0, 2)]
    for thread in threads:
        thread.start()
        until(lambda: held.batches)
    until(lambda: workers._waiting)
    workers.close()
    until(lambda: found == ["the service stops"])
    held.go_on.set()
    for thread in threads:
        thread.join(20)
    with pytest.raises(Ended, match="the service stops"):
        workers.run(held, 4, Call())


# Lists of new members ----------------------------------------------------------------------


def questions(axis_labels, value, n=3):
    return [Question(0, None, [(one, value) for one in labels], n=n) for labels in axis_labels]


@pytest.mark.parametrize("model", ["pretrained", "bias", "vmf"])
def test_lists_made_together_are_those_made_alone(tmp_path, model):
    engine = open_engine(tmp_path, make=lambda table: Completer(model).fit_table(table))
    asked = questions([FILMS[:3], FILMS[4:5], FILMS[2:9]], 5.0)
    asked.append(Question(0, None, [(FILMS[1], 2.0)], n=7))
    together = engine._recommend_together(asked)
    for question, (cells, _) in zip(asked, together, strict=True):
        alone, _ = engine.recommend(question)
        assert [one.labels for one in cells] == [one.labels for one in alone]
        assert [one.mean for one in cells] == pytest.approx([one.mean for one in alone], abs=1e-4)
        assert len(cells) == question.n
    engine.close()


@pytest.mark.parametrize("known", [False, True])
def test_lists_of_positives_made_together_are_those_made_alone(tmp_path, known):
    frame = NUMBERED.drop("stars")
    engine = open_engine(tmp_path, frame, lambda table: Completer("pretrained").fit_table(table))
    asked = questions([[3], [4, 5]], 1.0, n=2)
    if known:
        asked = [Question(0, member, n=2) for member in (1, 2, 1)]
    assert all(engine._goes_together(one) for one in asked)
    together = engine._recommend_together(asked)
    for question, (cells, _) in zip(asked, together, strict=True):
        assert cells == engine.recommend(question)[0]
    engine.close()


def test_a_bad_question_fails_alone(engine):
    good = Question(0, None, [(FILM, 5.0)], n=2)
    bad = [
        Question(0, None, [("no film", 5.0)]),
        Question(0, None, [(FILM, 5.0), (FILM, 4.0)]),
        Question(0, None, [(FILM, 1e200)]),
    ]
    found = engine._recommend_together([good, *bad, good])
    assert [one.labels for one in found[0][0]] == [one.labels for one in found[4][0]]
    assert len(found[0][0]) == 2
    for error in found[1:4]:
        assert isinstance(error, InputError)


def test_known_members_and_reasons_are_computed_alone(engine):
    assert not engine._goes_together(Question(0, MEMBER))
    assert not engine._goes_together(Question(0, None, [(FILM, 5.0)], why=True))
    assert not engine._goes_together(Question(0, None, features={"age": 3}))
    assert engine._goes_together(Question(0, None, [(FILM, 5.0)]))


def test_requests_that_wait_together_are_answered_together(engine, monkeypatch):
    sizes, plain, busy = [], engine_module.rank_new, threading.Event()

    def record(snapshot, query, ratings):
        sizes.append(len(ratings))
        assert busy.wait(20)
        return plain(snapshot, query, ratings)

    monkeypatch.setattr(engine_module, "rank_new", record)
    count, found = 3 * (engine_module.os.cpu_count() or 1), []
    with TestClient(create_app(engine)) as client:

        def ask(number):
            body = {"ratings": [[FILMS[number], 5]], "n": 2}
            answer = client.post("/v1/recommend", json=body)
            found.append((number, answer.status_code, answer.json()["recommended"]))

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(count)]
        for thread in threads:
            thread.start()
        waiting = engine._workers._waiting
        until(lambda: sum(sizes) + len(engine._workers._waiting) == count, 20)
        busy.set()
        for thread in threads:
            thread.join(20)
        assert waiting is not None
        assert len(sizes) < count
        assert sum(sizes) == count
        for number, status, recommended in found:
            assert status == 200
            alone = client.post("/v1/recommend", json={"ratings": [[FILMS[number], 5]], "n": 2})
            assert [one["labels"] for one in recommended] == [
                one["labels"] for one in alone.json()["recommended"]
            ]
