"""Which cells exist says where a member is, and a regression on it says what to expect of it."""

import numpy as np
import pytest
import torch

from exchangeable.baselines.regression import Block, Regression
from exchangeable.prior.drift import Drift
from exchangeable.prior.pattern import Pattern
from exchangeable.sums.member_sums import MemberSums


def blocks_of_cells(seed=0, shape=(60, 40)):
    """Two groups of rows, each of which has cells in its own half of the columns only."""
    rng = np.random.default_rng(seed)
    same = (np.arange(shape[0]) % 2)[:, None] == (np.arange(shape[1]) % 2)[None, :]
    return torch.from_numpy(np.stack(np.nonzero(same & (rng.random(shape) < 0.5)), axis=1))


def sums_of(index, shape):
    return [MemberSums.of(index, axis, size) for axis, size in enumerate(shape)]


def test_members_with_cells_in_the_same_places_are_near_each_other():
    shape = (60, 40)
    sums = sums_of(blocks_of_cells(), shape)
    places = Pattern.of(sums).describe(sums[0])
    group = torch.arange(60) % 2 == 0
    split = places[:, 1]  # the first singular vector after that of the sizes
    assert (split[group].sign() == split[group][0].sign()).all()
    assert (split[~group].sign() == -split[group][0].sign()).all()
    torch.testing.assert_close(places.mean(dim=0), torch.zeros_like(places[0]), atol=1e-9, rtol=0)


@pytest.mark.parametrize("shape", [(30, 24), (16, 12, 9)])
def test_relabelling_members_relabels_their_places(shape):
    generator = torch.Generator().manual_seed(0)
    everything = torch.cartesian_prod(*[torch.arange(size) for size in shape])
    index = everything[torch.rand(len(everything), generator=generator) < 0.2]
    moves = [torch.randperm(size, generator=generator) for size in shape]
    moved = torch.stack([move[index[:, axis]] for axis, move in enumerate(moves)], dim=1)
    moved = moved[torch.randperm(len(moved), generator=generator)]
    plain, other = sums_of(index, shape), sums_of(moved, shape)
    for axis, move in enumerate(moves):
        before = Pattern.of(plain).describe(plain[axis])
        after = Pattern.of(other).describe(other[axis])[move]
        # Singular vectors have no sign, and the regression on them needs none.
        torch.testing.assert_close(before.abs(), after.abs(), rtol=1e-5, atol=1e-5)


def test_a_new_member_has_the_place_of_one_that_was_always_there():
    shape = (60, 40)
    index = blocks_of_cells()
    sums = sums_of(index, shape)
    pattern = Pattern.of(sums)
    own = index[index[:, 0] == 7].clone()
    own[:, 0] = 0
    alone = pattern.describe(MemberSums.of(own, 0, 1))
    torch.testing.assert_close(alone[0], pattern.describe(sums[0])[7])


def test_a_full_table_and_members_without_cells_have_no_place():
    full = torch.cartesian_prod(torch.arange(20), torch.arange(16))
    sums = sums_of(full, (21, 16))
    places = Pattern.of(sums).describe(sums[0])
    torch.testing.assert_close(places, torch.zeros_like(places), atol=1e-6, rtol=0)


def regression(features, vectors, uncertain=False):
    size = len(vectors)
    rows = torch.cat([features, features.new_zeros(1, features.shape[1])])
    fitted = Regression.initial(rows, [Block(features.shape[1], 0.01, uncertain)], 1)
    precision = torch.full((1,), 4.0, dtype=torch.float64)
    for _ in range(20):
        spare = fitted.update(vectors, precision, torch.arange(size))
    return fitted, spare


def test_weights_are_the_ridge_solution_written_out():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(80, 3, generator=generator, dtype=torch.float64)
    m = x @ torch.tensor([[1.0], [0.0], [-2.0]], dtype=torch.float64)
    m += 0.5 * torch.randn(80, 1, generator=generator, dtype=torch.float64)
    fitted, _ = regression(x, m)
    # The precision of the weights was updated after they were solved for.
    again = Regression.initial(fitted.features, fitted.blocks, 1)
    again.precisions = fitted.precisions
    c = float(fitted.precisions)
    expected = torch.linalg.solve(4 * x.T @ x + c * torch.eye(3), 4 * x.T @ m)
    torch.testing.assert_close(fitted.weights, expected, rtol=1e-3, atol=1e-3)
    assert fitted.weights.squeeze().tolist() == pytest.approx([1, 0, -2], abs=0.25)


def test_rotated_features_give_the_same_means():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(50, 4, generator=generator, dtype=torch.float64)
    m = torch.randn(50, 1, generator=generator, dtype=torch.float64)
    turn, _ = torch.linalg.qr(torch.randn(4, 4, generator=generator, dtype=torch.float64))
    one, other = regression(x, m)[0], regression(x @ turn, m)[0]
    torch.testing.assert_close(one.means(), other.means())


def test_features_of_noise_are_switched_off():
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(300, 10, generator=generator, dtype=torch.float64)
    m = 0.5 * torch.randn(300, 1, generator=generator, dtype=torch.float64)
    fitted, _ = regression(x, m)
    assert float(fitted.means().square().mean()) < 0.1 * float(m.square().mean())


def test_drift_finds_what_members_do_in_periods_and_ignores_the_units_of_time():
    rng = np.random.default_rng(0)
    index = torch.from_numpy(np.stack(np.nonzero(rng.random((50, 200)) < 0.7), axis=1))
    period = rng.integers(0, 5, size=len(index))
    mood = rng.normal(size=(50, 5))
    values = torch.from_numpy(mood[index[:, 0], period] + 0.3 * rng.normal(size=len(index)))
    times = torch.from_numpy(period + 0.9 * rng.random(len(index)))
    drift = Drift.fit(index, values, times, (50, 200))
    found = drift.at(index, times)
    centred = mood - mood.mean(axis=1, keepdims=True)
    assert (
        np.corrcoef(found, centred[index[:, 0], period])[0, 1] > 0.8
    )  # periods have as many cells, not the same length
    other = Drift.fit(index, values, 86400 * times.exp() - 7, (50, 200))
    assert torch.equal(other.at(index, 86400 * times.exp() - 7), found)


def test_queries_without_times_have_the_effects_of_the_latest():
    generator = torch.Generator().manual_seed(0)
    index = torch.cartesian_prod(torch.arange(100), torch.arange(100))
    values = torch.randn(len(index), generator=generator, dtype=torch.float64)
    times = 7 * torch.rand(len(index), generator=generator, dtype=torch.float64)
    drift = Drift.fit(index, values, times, (100, 100))
    assert {each.axis for each in drift.members} == {0, 1}
    asked = torch.tensor([[0, 3], [99, 99], [100, 5], [4, 999], [-1, 2], [7, -1], [-1, -1]])
    latest = torch.full((len(asked),), drift.latest, dtype=torch.float64)
    found = drift.at(asked, None)
    assert torch.equal(found, drift.at(asked, latest))
    assert (found != 0).tolist() == [True] * 6 + [False]
    kept = drift.for_new_members(0)
    assert torch.equal(kept.at(asked, None), kept.at(asked, latest))


def test_drift_is_zero_for_strangers_and_without_times():
    index = torch.cartesian_prod(torch.arange(20), torch.arange(20))
    values = torch.randn(400, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    times = torch.arange(400.0, dtype=torch.float64) % 7
    drift = Drift.fit(index, values, times, (20, 20))
    strangers = torch.full((3, 2), -1)
    assert not drift.at(strangers, times[:3]).any()
    nothing = Drift.fit(index, values, torch.full_like(times, torch.nan), (20, 20))
    assert not nothing.members
    assert not nothing.at(index, times).any()


@pytest.mark.parametrize("shape", [(200, 30), (20, 16, 14)])
def test_vectors_of_a_random_pattern_do_not_count(shape):
    """Nearly complete but for a fifth of the rows, which have few cells anywhere."""
    generator = torch.Generator().manual_seed(1)
    everything = torch.cartesian_prod(*[torch.arange(size) for size in shape])
    kept = torch.where(everything[:, 0] % 5 == 0, 0.1, 0.95)
    random = torch.rand(len(everything), generator=generator) < kept
    index = everything[random]
    pattern = Pattern.of(sums_of(index, shape))
    assert not any(vectors.shape[1] for vectors in pattern.vectors.values())
    same = everything[:, 0] % 2 == everything[:, 1] % 2
    pattern = Pattern.of(sums_of(everything[random & same], shape))
    assert pattern.vectors[0, 1].shape[1] >= 1


def test_new_members_have_no_places_beyond_those_of_others():
    shape = (300, 12)
    every = torch.cartesian_prod(*[torch.arange(size) for size in shape])
    index = every[torch.rand(len(every), generator=torch.Generator().manual_seed(0)) < 0.9]
    sums = sums_of(index, shape)
    pattern = Pattern.of(sums)
    places = pattern.describe(sums[1])
    new = pattern.describe(MemberSums.of(torch.tensor([[5, 0], [9, 0]]), 1, 1))
    assert (new <= places.amax(dim=0) + 1e-9).all()
    assert (new >= places.amin(dim=0) - 1e-9).all()
