"""A model learns from synthetic tables alone: what comes is told by the seed."""

from dataclasses import replace

import pytest
import torch

from exchangeable.baselines.neighbours import JUDGED
from exchangeable.errors import InputError
from exchangeable.models.configs import build
from exchangeable.models.prior import Prior
from exchangeable.pretraining.pretrain import (
    LEARNED,
    Circumstances,
    course,
    curriculum,
    error_of,
    lessons,
    prepared,
    pretrain,
)
from exchangeable.runtime.interruption import Interrupted
from exchangeable.training.trained_model import TrainedModel

PLAN = curriculum(
    steps=3, cells=120, judged=2, evaluate_every=2, width=8, depth=2, prior=2, learning_rate=1e-2
)
ALONE = Circumstances()


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_lessons_are_told_by_their_numbers_whoever_draws_them():
    alone, shared = (list(lessons(PLAN, LEARNED, 1, 4, workers)) for workers in (0, 2))
    for one, other in zip(alone, shared, strict=True):
        assert one.reference == other.reference
        assert torch.equal(one.shown.cells.values, other.shown.cells.values)
        assert torch.equal(one.shown.hide, other.shown.hide)
        torch.testing.assert_close(one.shown.known, other.shown.known)
    streams = (prepared(PLAN, stream, 1) for stream in (LEARNED, JUDGED))
    assert len({one.values.tobytes() for one in streams}) == 2


def test_what_is_known_comes_from_cells_that_are_not_hidden():
    for number in range(4):
        lesson = prepared(PLAN, LEARNED, number).lesson()
        cells, hide, known = lesson.shown
        assert hide.any()
        assert not hide.all()
        assert known.shape == (len(cells), 10)
        seen = cells.values[~hide].squeeze(1)
        assert lesson.reference.mean == pytest.approx(float(seen.mean()))
        alone = Prior.of(cells.take(~hide), lesson.reference, PLAN.model.prior)
        torch.testing.assert_close(known, alone(cells.support.index))


@pytest.mark.parametrize("order", [1, 2, 3])
def test_a_turned_table_is_known_as_if_it_had_been_drawn_so(order):
    plan = curriculum(order=order, cells=120, prior=2)
    lesson = prepared(plan, LEARNED, 2).lesson()
    cells, hide, known = lesson.shown
    for by in range(order):
        turned, same_hide, turned_known = lesson.turned(by).shown
        assert turned.shape == cells.shape[by:] + cells.shape[:by]
        assert turned.values is cells.values
        assert same_hide is hide
        alone = Prior.of(turned.take(~hide), lesson.reference, plan.model.prior)
        found = alone(turned.support.index)
        # The axes are fitted in turn, and rounds end before the last digits stand, which tell
        # where factors are tried: the deviation may differ by some.
        torch.testing.assert_close(turned_known[:, :2], found[:, :2], rtol=0, atol=0.2)
        torch.testing.assert_close(turned_known[:, 2:], found[:, 2:], rtol=0, atol=5e-3)
    assert torch.equal(lesson.turned(0).shown.known, known)


def values_of(lessons):
    return [sorted(lesson.shown.cells.values.squeeze(1).tolist()) for lesson in lessons]


def test_new_tables_come_in_turn_and_kept_ones_between_them():
    plan = replace(PLAN, visits=3, kept=2, training=replace(PLAN.training, steps=20))
    new = values_of(lessons(plan, LEARNED, 0, 7, 0))
    steps = list(course(plan, 0, 0))
    came = values_of(steps)
    assert len(came) == 20
    assert came[::3] == new
    for step, values in enumerate(came):
        assert values in new[max(0, step // 3 - 1) : step // 3 + 1]
    assert any(came[step] == new[step // 3 - 1] for step in range(3, 20) if step % 3)
    first = steps[0].shown.cells.shape
    assert {first, first[::-1]} == {one.shown.cells.shape for one in steps[:3]}


def test_the_rest_of_a_course_is_the_same_wherever_it_begins():
    plan = replace(PLAN, visits=2, kept=2, training=replace(PLAN.training, steps=9))
    every = list(course(plan, 0, 0))
    for first in (1, 4, 8):
        rest = list(course(plan, first, 0))
        assert values_of(rest) == values_of(every[first:])
        assert [r.shown.cells.shape for r in rest] == [e.shown.cells.shape for e in every[first:]]


def test_before_it_has_learned_a_model_says_what_is_known():
    lesson = prepared(PLAN, LEARNED, 0).lesson()
    assert error_of(build(PLAN.model).eval(), *lesson) == pytest.approx(1.0)


def test_stopped_and_gone_on_with_it_ends_with_the_same_weights(tmp_path):
    whole = pretrain(PLAN, tmp_path / "whole", ALONE)
    with pytest.raises(Interrupted, match="stopped after step 1 of 3, saved"):
        pretrain(PLAN, tmp_path / "parts", replace(ALONE, seconds=0.0))
    assert TrainedModel.load(tmp_path / "parts").facts["steps"] == 1
    assert (
        "hidden cells of synthetic tables alone" in (tmp_path / "parts" / "README.md").read_text()
    )
    parts = pretrain(PLAN, tmp_path / "parts", ALONE)
    assert same(whole.model, parts.model)
    assert not same(whole.model, build(PLAN.model))
    assert whole.facts == parts.facts
    again = pretrain(PLAN, tmp_path / "whole", ALONE)  # finished: it is read
    assert same(whole.model, again.model)


def test_a_model_that_was_begun_otherwise_is_not_gone_on_with(tmp_path):
    pretrain(PLAN, tmp_path / "m", ALONE)
    with pytest.raises(InputError, match="was begun with other settings"):
        pretrain(replace(PLAN, cells=121), tmp_path / "m", ALONE)


def test_settings_have_names():
    assert curriculum(order=3, cells=50).model.order == 3
    assert curriculum(steps=7).training.steps == 7
    with pytest.raises(InputError, match="a curriculum has no setting 'colour'"):
        curriculum(colour=1)
    with pytest.raises(InputError, match="cells must be 1 or more, but is 0"):
        curriculum(cells=0)
    with pytest.raises(InputError, match="order must be a whole number of 1 or more, but is 0"):
        curriculum(order=0)
