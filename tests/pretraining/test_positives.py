"""The ranker is pretrained on synthetic positives: a seed tells them, and none that is held out."""

from dataclasses import replace

import pytest
import torch

from exchangeable.pretraining import ranking
from exchangeable.pretraining.positive_draws import DrawSizes, draw_positives
from exchangeable.pretraining.ranking import (
    LARGE,
    SMALL,
    RankingCurriculum,
    loss_of,
    read_lesson,
    read_lessons,
    train_network,
)
from exchangeable.ranking.channels import Channels
from exchangeable.ranking.stack import MAX_SHARE

TINY = DrawSizes((120, 160), (6.0, 12.0), 4_000, (1, 2))
CPU = torch.device("cpu")
QUICK = RankingCurriculum(users=30, steps=4, batch=8)


def keys(pairs, shape):
    return set((pairs[:, 0] * shape[1] + pairs[:, 1]).tolist())


def test_a_seed_tells_the_positives_whatever_was_drawn_before():
    for seed in range(40):  # so that every part of a table is among them
        torch.manual_seed(1)
        one = draw_positives(seed, TINY)
        torch.manual_seed(2)
        other = draw_positives(seed, TINY)
        assert one.shape == other.shape
        assert torch.equal(one.train, other.train)
        assert torch.equal(one.test, other.test)
    assert not torch.equal(draw_positives(0, TINY).train, draw_positives(1, TINY).train)


def test_held_out_positives_are_not_among_the_others_and_are_of_their_members():
    for seed in range(20):
        draw = draw_positives(seed, TINY)
        train, test = keys(draw.train, draw.shape), keys(draw.test, draw.shape)
        assert len(train) == len(draw.train)
        assert not train & test
        assert 0.1 < len(test) / (len(train) + len(test)) < 0.3
        for axis, size in enumerate(draw.shape):
            assert len(draw.train[:, axis].unique()) == size
            assert 0 <= draw.test[:, axis].min() <= draw.test[:, axis].max() < size


def test_a_lesson_is_read_without_what_is_to_be_found(monkeypatch):
    """Weights and gains come from channels without hidden positives, candidates from others."""
    fitted, plain = [], Channels.fit

    def record(positives, *given, **options):
        fitted.append(positives)
        return plain(positives, *given, **options)

    monkeypatch.setattr(Channels, "fit", record)
    draw = draw_positives(0, TINY)
    lesson = read_lesson(0, TINY, 30, CPU)
    train, test = keys(draw.train, draw.shape), keys(draw.test, draw.shape)
    inner, outer = (
        keys(each.by_user.to_dense().nonzero(), draw.shape) for each in (fitted[0], fitted[-1])
    )
    assert inner < train
    assert len(train - inner) > 0.02 * MAX_SHARE * len(train)
    assert outer == train
    own = lesson.examples
    places = torch.stack([own.users[:, None].expand_as(own.items), own.items], dim=2)
    assert keys(places[own.hidden > 0], draw.shape) <= test
    has = places[(own.z @ lesson.facts.weights).isfinite() & (own.hidden > 0)]
    assert not keys(has, draw.shape) & train


def scores_and_hidden():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(5, 40, generator=generator)
    return scores, (torch.rand(5, 40, generator=generator) < 0.5).float()


def test_the_loss_draws_positives_by_its_own_generator():
    found = []
    for before in (1, 2):
        torch.manual_seed(before)
        own = torch.Generator().manual_seed(3)
        found.append(float(loss_of(*scores_and_hidden(), QUICK, own)))
    assert found[0] == found[1]
    other = torch.Generator().manual_seed(4)
    assert float(loss_of(*scores_and_hidden(), QUICK, other)) != found[0]


@pytest.fixture
def numbered(monkeypatch):
    """Lessons are their seeds and sizes."""
    monkeypatch.setattr(ranking, "read_lesson", lambda seed, sizes, *_: (seed, sizes))


def test_tables_for_validation_are_not_trained_on(numbered):
    train, held_out = read_lessons(replace(QUICK, small=30, large=6), CPU, 60.0)
    assert len(held_out) == 9  # a quarter, where there are few
    assert not {*train} & {*held_out}
    assert sorted(seed for seed, _ in [*train, *held_out]) == list(range(36))


def test_large_tables_come_among_small_ones(numbered):
    train, held_out = read_lessons(replace(QUICK, small=30, large=6), CPU, 60.0)
    sizes = [each for _, each in sorted([*train, *held_out], key=lambda one: one[0])]
    assert sizes.count(LARGE) == 6
    assert sizes.count(SMALL) == 30
    assert {LARGE, SMALL} <= set(sizes[:8])


def test_a_network_is_a_function_of_its_lessons_and_seed():
    lessons = [each for seed in range(2) if (each := read_lesson(seed, TINY, 30, CPU)) is not None]
    networks = []
    for before, seed in ((1, 0), (2, 0), (1, 5)):
        torch.rand(before)
        networks.append(train_network(lessons, replace(QUICK, seed=seed), CPU))
    one, same, other = ([w.clone() for w in each.parameters()] for each in networks)
    assert all(map(torch.equal, one, same))
    assert not all(map(torch.equal, one, other))
