"""A model learns from synthetic tables alone: what comes is told by the seed."""

from dataclasses import replace

import pytest
import torch

from exchangeable.errors import InputError
from exchangeable.models.configs import build
from exchangeable.models.prior import Prior
from exchangeable.pretraining.curriculum import make_curriculum
from exchangeable.pretraining.lessons import (
    TRAIN,
    VALIDATE,
    draw_lessons,
    prepare_lesson,
    rotate_axes,
    schedule,
)
from exchangeable.pretraining.pretrain import pretrain, relative_error
from exchangeable.runtime.interruption import Interrupted
from exchangeable.training.execution import Execution
from exchangeable.training.trained_model import TrainedModel

PLAN = make_curriculum(
    steps=3, cells=120, judged=2, evaluate_every=2, width=8, depth=2, prior=2, learning_rate=1e-2
)


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_lessons_are_told_by_their_numbers_whoever_draws_them():
    alone, shared = (list(draw_lessons(PLAN, TRAIN, 1, 4, workers)) for workers in (0, 2))
    for one, other in zip(alone, shared, strict=True):
        assert one.stats == other.stats
        assert torch.equal(one.cells.values, other.cells.values)
        assert torch.equal(one.hide, other.hide)
        torch.testing.assert_close(one.prior_values, other.prior_values)
    streams = (prepare_lesson(PLAN, stream, 1) for stream in (TRAIN, VALIDATE))
    assert len({one.values.tobytes() for one in streams}) == 2


def test_what_is_known_comes_from_cells_that_are_not_hidden():
    for number in range(4):
        lesson = prepare_lesson(PLAN, TRAIN, number).to_example()
        cells, hide, known = lesson[:3]
        assert hide.any()
        assert not hide.all()
        assert known.shape == (len(cells), 10)
        seen = cells.values[~hide].squeeze(1)
        assert lesson.stats.mean == pytest.approx(float(seen.mean()))
        alone = Prior.of(cells.take(~hide), lesson.stats, PLAN.model.prior)
        torch.testing.assert_close(known, alone(cells.support.index))


@pytest.mark.parametrize("order", [1, 2, 3])
def test_a_turned_table_is_known_as_if_it_had_been_drawn_so(order):
    plan = make_curriculum(order=order, cells=120, prior=2)
    lesson = prepare_lesson(plan, TRAIN, 2).to_example()
    cells, hide, known = lesson[:3]
    for by in range(order):
        turned, same_hide, turned_known = rotate_axes(lesson, by)[:3]
        assert turned.shape == cells.shape[by:] + cells.shape[:by]
        assert turned.values is cells.values
        assert same_hide is hide
        alone = Prior.of(turned.take(~hide), lesson.stats, plan.model.prior)
        found = alone(turned.support.index)
        # The axes are fitted in turn, and rounds end before the last digits stand, which tell
        # where factors are tried: the deviation may differ by some.
        torch.testing.assert_close(turned_known[:, :2], found[:, :2], rtol=0, atol=0.2)
        torch.testing.assert_close(turned_known[:, 2:], found[:, 2:], rtol=0, atol=5e-3)
    assert torch.equal(rotate_axes(lesson, 0).prior_values, known)


def values_of(lessons):
    return [sorted(lesson.cells.values.squeeze(1).tolist()) for lesson in lessons]


def test_new_tables_come_in_turn_and_kept_ones_between_them():
    plan = replace(PLAN, visits=3, kept=2, training=replace(PLAN.training, steps=20))
    new = values_of(draw_lessons(plan, TRAIN, 0, 7, 0))
    steps = list(schedule(plan, 0, 0))
    came = values_of(steps)
    assert len(came) == 20
    assert came[::3] == new
    for step, values in enumerate(came):
        assert values in new[max(0, step // 3 - 1) : step // 3 + 1]
    assert any(came[step] == new[step // 3 - 1] for step in range(3, 20) if step % 3)
    first = steps[0].cells.shape
    assert {first, first[::-1]} == {one.cells.shape for one in steps[:3]}


def test_the_rest_of_a_course_is_the_same_wherever_it_begins():
    plan = replace(PLAN, visits=2, kept=2, training=replace(PLAN.training, steps=9))
    every = list(schedule(plan, 0, 0))
    for first in (1, 4, 8):
        rest = list(schedule(plan, first, 0))
        assert values_of(rest) == values_of(every[first:])
        assert [r.cells.shape for r in rest] == [e.cells.shape for e in every[first:]]


def test_before_it_has_learned_a_model_says_what_is_known():
    lesson = prepare_lesson(PLAN, TRAIN, 0).to_example()
    assert relative_error(build(PLAN.model).eval(), lesson) == pytest.approx(1.0)


def test_stopped_and_gone_on_with_it_ends_with_the_same_weights(tmp_path):
    whole = pretrain(PLAN, Execution(folder=tmp_path / "whole"))
    with pytest.raises(Interrupted, match=r"stopped after step 1 of 3, as asked; saved in .*parts"):
        pretrain(PLAN, Execution(folder=tmp_path / "parts", seconds=0.0))
    assert TrainedModel.load(tmp_path / "parts").facts["steps"] == 1
    assert (
        "hidden cells of synthetic tables alone" in (tmp_path / "parts" / "README.md").read_text()
    )
    parts = pretrain(PLAN, Execution(folder=tmp_path / "parts"))
    assert same(whole.model, parts.model)
    assert not same(whole.model, build(PLAN.model))
    assert whole.facts == parts.facts
    again = pretrain(PLAN, Execution(folder=tmp_path / "whole"))  # finished: it is read
    assert same(whole.model, again.model)


def test_a_model_that_was_begun_otherwise_is_not_gone_on_with(tmp_path):
    pretrain(PLAN, Execution(folder=tmp_path / "m"))
    with pytest.raises(InputError, match="was started with another curriculum than this"):
        pretrain(replace(PLAN, cells=121), Execution(folder=tmp_path / "m"))


def test_settings_have_names():
    assert make_curriculum(order=3, cells=50).model.order == 3
    assert make_curriculum(steps=7).training.steps == 7
    with pytest.raises(InputError, match="a curriculum has no setting 'colour'"):
        make_curriculum(colour=1)
    with pytest.raises(InputError, match="cells must be 1 or more, but is 0"):
        make_curriculum(cells=0)
    with pytest.raises(InputError, match="order must be a whole number of 1 or more, but is 0"):
        make_curriculum(order=0)
