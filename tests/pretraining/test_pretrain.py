"""A model learns from synthetic tables alone: what comes is told by the seed."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from exchangeable.errors import InputError
from exchangeable.models.configs import build
from exchangeable.models.prior_channels import SHARED_CHANNELS
from exchangeable.pretraining import lessons
from exchangeable.pretraining.curriculum import make_curriculum
from exchangeable.pretraining.lessons import (
    TRAIN,
    VALIDATE,
    draw_lessons,
    prepare_lesson,
    rotate_axes,
    schedule,
)
from exchangeable.pretraining.pretrain import LessonSource, pretrain, relative_error
from exchangeable.pretraining.synthetic import draw_table
from exchangeable.prior.prior import Prior
from exchangeable.prior.side_information import SideInformation
from exchangeable.runtime.interruption import Interrupted
from exchangeable.training.execution import Execution
from exchangeable.training.run import Run
from exchangeable.training.trained_model import TrainedModel

PLAN = make_curriculum(
    steps=3, cells=120, judged=2, evaluate_every=2, width=8, depth=2, prior=2, learning_rate=1e-2
)


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def side_of(plan, number):
    """Times of all cells of a lesson, and features of the members."""
    table = draw_table([plan.training.seed, TRAIN, number], plan.model.order, plan.cells)
    times = None if table.times is None else torch.from_numpy(table.times)
    by_axis = tuple(None if f is None else torch.from_numpy(f) for f in table.features)
    return SideInformation(times, None if all(f is None for f in by_axis) else by_axis)


class PriorStub:
    """Takes the place of the prior: nothing is fitted, and all channels are 0."""

    @staticmethod
    def of(observed, *_):
        return lambda index, times: torch.zeros(len(index), 13)


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
    kinds = set()
    for number in (2, 5, 7):
        lesson = prepare_lesson(PLAN, TRAIN, number).to_example()
        cells, hide, known = lesson[:3]
        assert hide.any()
        assert not hide.all()
        assert known.shape == (len(cells), 13)
        seen = cells.values[~hide].squeeze(1)
        assert lesson.stats.mean == pytest.approx(float(seen.mean()))
        side = side_of(PLAN, number)
        alone = Prior.of(cells.take(~hide), lesson.stats, PLAN.model.prior, side=side.take(~hide))
        torch.testing.assert_close(known, alone(cells.support.index, side.times))
        kinds.add((side.times is not None, side.features is not None))
    assert kinds == {(False, True), (True, True), (False, False)}


def test_in_some_lessons_all_cells_of_some_members_are_hidden(monkeypatch):
    monkeypatch.setattr(lessons, "Prior", PriorStub)  # fitting takes long, and says nothing here
    monkeypatch.setattr(lessons, "draw_mask", lambda support, *_: torch.zeros(len(support)) > 0)
    plan, shares = make_curriculum(cells=2000, prior=2), []
    for number in range(100):
        lesson = prepare_lesson(plan, TRAIN, number)
        whole = []
        for axis, size in enumerate(lesson.shape):
            cells = np.bincount(lesson.index[:, axis], minlength=size)
            hidden = np.bincount(lesson.index[lesson.hide, axis], minlength=size)
            if ((hidden == 0) | (hidden == cells)).all():
                whole.append(((hidden > 0).sum() / (cells > 0).sum(), size))
        assert whole  # on one axis each member has all of its cells hidden, or none
        if lesson.hide.any():
            shares.append(min(whole))
    assert 0.15 < len(shares) / 100 < 0.4
    large = [share for share, size in shares if size > 100]
    assert 0 < min(large) < 0.1
    assert 0.15 < max(large) < 0.4


def test_every_draw_of_a_lesson_is_told_by_its_number(monkeypatch):
    """Also those that few lessons have: members all of whose cells are hidden, times, features."""
    limits = []

    class Recorded(PriorStub):
        @staticmethod
        def of(observed, stats, rank, limit, side):
            limits.append((rank, limit))
            return PriorStub.of(observed)

    monkeypatch.setattr(lessons, "Prior", Recorded)  # fitting takes long, and says nothing here
    plan = make_curriculum(cells=300, prior=2, compared=5_000_000)
    for number in range(30):
        one, same = (prepare_lesson(plan, TRAIN, number) for _ in range(2))
        assert one.shape == same.shape
        for name in ("index", "values", "hide"):
            np.testing.assert_array_equal(getattr(one, name), getattr(same, name))
    assert set(limits) == {(2, 5_000_000)}  # as the curriculum says, and as models read tables


def test_lessons_for_validation_are_never_trained_on():
    source = LessonSource(Run.start(build(PLAN.model), PLAN.training), PLAN, workers=0)
    source.prepare(Execution())
    judged = values_of(source.validation)
    assert judged == values_of(draw_lessons(PLAN, VALIDATE, 0, PLAN.judged, 0))
    trained = values_of(source)
    assert len(trained) == PLAN.training.steps
    assert not [values for values in judged if values in trained]


@pytest.mark.parametrize("order", [1, 2, 3])
def test_a_turned_table_is_known_as_if_it_had_been_drawn_so(order):
    plan = make_curriculum(order=order, cells=120, prior=2)
    lesson = prepare_lesson(plan, TRAIN, 2).to_example()
    cells, hide, known = lesson[:3]
    side = side_of(plan, 2)
    for by in range(order):
        turned, same_hide, turned_known = rotate_axes(lesson, by)[:3]
        assert turned.shape == cells.shape[by:] + cells.shape[:by]
        assert turned.values is cells.values
        assert same_hide is hide
        assert torch.equal(turned_known[:, :SHARED_CHANNELS], known[:, :SHARED_CHANNELS])
        features = side.features and side.features[by:] + side.features[:by]
        beside = SideInformation(side.times, features)
        alone = Prior.of(
            turned.take(~hide), lesson.stats, plan.model.prior, side=beside.take(~hide)
        )
        found = alone(turned.support.index, side.times)
        # The axes are fitted in turn, and rounds end before the last digits stand, which tell
        # which cells models are tried on: in a table as small as this the trust in them, and so
        # the mean and the deviation, may differ by some (up to .45 over the cells of ten lessons).
        # What single models say of a cell does not depend on the trust.
        torch.testing.assert_close(models(turned_known), models(found), rtol=0, atol=0.05)
        assert (turned_known[:, :2] - found[:, :2]).square().mean().sqrt() < 0.45
    assert torch.equal(rotate_axes(lesson, 0).prior_values, known)


def models(known):
    """What factors add to biases, and what similar members of each axis add."""
    factors = known[:, 3:SHARED_CHANNELS] - known[:, 2:3]
    return torch.cat([factors, known[:, SHARED_CHANNELS:]], dim=1)


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
