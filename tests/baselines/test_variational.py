"""The variational factorization is its model's, factor by factor."""

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
import torch
from tests.support.baselines import baseline, model, planted, queries, random_posterior, rmse

from exchangeable.arrays.cells import Cells
from exchangeable.baselines import (
    BASELINES,
    Bias,
    VariationalFactorization,
)
from exchangeable.baselines.posterior import Posterior
from exchangeable.baselines.rank_choice import USUAL_RANK
from exchangeable.baselines.singular_vectors import MAX_DENSE_MEMBERS
from exchangeable.baselines.sweeps import sweep
from exchangeable.sums.member_sums import MemberSums


@pytest.mark.parametrize("shape", [(5,), (5, 4), (4, 3, 3)])
def test_a_sweep_equals_expectations_taken_one_by_one(shape):
    index, values = planted(shape, density=0.8)
    posterior = random_posterior(shape, rank=2)
    expected = slow_sweep(index, values, in_numpy(posterior.grown(shape)))
    cells = torch.from_numpy(index)
    sums = [MemberSums.of(cells, axis, size) for axis, size in enumerate(shape)]
    sweep(posterior, sums, torch.from_numpy(values))
    assert posterior.mean == pytest.approx(expected.mean, rel=1e-9)
    assert posterior.noise == pytest.approx(expected.noise, rel=1e-9)
    for kind in ("means", "covariances", "precisions"):
        for found, wanted in zip(getattr(posterior, kind), getattr(expected, kind), strict=True):
            np.testing.assert_allclose(found[: len(wanted)], wanted, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("shape", [(5,), (5, 4), (4, 3, 3)])
@pytest.mark.parametrize("sweeps", [1, 2, 7])
def test_biases_fitted_by_sums_are_those_of_sweeps_over_all_cells(shape, sweeps):
    index, values = planted(shape, density=0.6)
    expected = Posterior.initial(shape, torch.empty(0, dtype=torch.float64))
    cells, y = torch.from_numpy(index), torch.from_numpy(values)
    sums = [MemberSums.of(cells, axis, size) for axis, size in enumerate(shape)]
    for _ in range(sweeps):
        sweep(expected, sums, y)
    found = Bias(sweeps=sweeps, tolerance=0).posterior_of(cells, y, shape)
    assert found.mean == pytest.approx(expected.mean, rel=1e-9)
    assert found.noise == pytest.approx(expected.noise, rel=1e-9)
    for kind in ("means", "covariances", "precisions"):
        for one, other in zip(getattr(found, kind), getattr(expected, kind), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def test_biases_are_swept_until_predictions_change_by_less_than_the_tolerance():
    index, values = planted((30, 20), density=0.4)
    cells, y = torch.from_numpy(index), torch.from_numpy(values)

    def predictions(sweeps, tolerance=0.0):
        bias = Bias(sweeps=sweeps, tolerance=tolerance)
        return bias.posterior_of(cells, y, (30, 20)).predict_mean(cells)

    steps = [predictions(count) for count in range(1, 30)]
    changes = [float((b - a).square().mean().sqrt()) for a, b in pairwise(steps)]
    stop = next(place for place, change in enumerate(changes) if change < 1e-2)
    assert stop > 0
    torch.testing.assert_close(predictions(100, 1e-2), steps[stop + 1])


@pytest.mark.parametrize("shape", [(5,), (5, 4), (4, 3, 3)])
def test_the_variance_of_an_answer_is_that_of_the_model_under_its_posterior(shape):
    posterior = random_posterior(shape, rank=2)
    fitted = VariationalFactorization.kind(VariationalFactorization(), posterior, 3.0, 2.0)
    posterior = in_numpy(posterior)
    for cell in queries(shape)[::7]:
        points = [
            sigma_points(posterior.means[d][n], posterior.covariances[d][n])
            for d, n in enumerate(cell)
        ]
        answers = [posterior.mean + model(vectors, 2) for vectors in product(*points)]
        mean, variance = fitted.predict(cell[None])
        assert mean[0] == pytest.approx(3 + 2 * np.mean(answers))
        assert variance[0] == pytest.approx(4 * (np.var(answers) + posterior.noise))


def in_numpy(posterior):
    """For references that are written out."""
    kinds = ("means", "covariances", "precisions")
    return replace(posterior, **{k: [t.numpy() for t in getattr(posterior, k)] for k in kinds})


def sigma_points(mean, covariance):
    """Points whose average is exact for all polynomials of degree 3 of a Gaussian vector."""
    values, directions = np.linalg.eigh(covariance)
    steps = (directions * np.sqrt(np.maximum(values, 0) * len(mean))).T
    return [mean + step for step in steps] + [mean - step for step in steps]


def slow_sweep(index, values, p):
    """Every expectation by evaluating the model itself at sigma points of the other axes."""
    order, shape, rank = len(p.means), p.shape, p.layout.rank
    width = p.layout.width

    def points_of(cell, axes):
        return [sigma_points(p.means[d][cell[d]], p.covariances[d][cell[d]]) for d in axes]

    def linear(vectors, axis):
        """The model as rest + f . w in the vector w of one axis."""
        full = list(vectors)
        full.insert(axis, np.zeros(width))
        rest = model(full, rank)
        steps = [[*full[:axis], step, *full[axis + 1 :]] for step in np.eye(width)]
        return rest, np.array([model(one, rank) - rest for one in steps])

    for axis in range(order):
        others = [d for d in range(order) if d != axis]
        for n in range(shape[axis]):
            precision, towards = np.diag(p.precisions[axis]), np.zeros(width)
            for cell, value in zip(index, values, strict=True):
                if cell[axis] != n:
                    continue
                looks = [linear(v, axis) for v in product(*points_of(cell, others))]
                precision = precision + np.mean([np.outer(f, f) for _, f in looks], 0) / p.noise
                towards += np.mean([f * (value - p.mean - r) for r, f in looks], 0) / p.noise
            p.covariances[axis][n] = np.linalg.inv(precision)
            p.means[axis][n] = np.linalg.solve(precision, towards)
        seen = np.unique(index[:, axis])
        variances = np.array([np.diag(p.covariances[axis][n]) for n in seen])
        p.precisions[axis] = 1 / np.mean(p.means[axis][seen] ** 2 + variances, axis=0)
        for n in {*range(shape[axis] + 1)} - {*seen.tolist()}:
            p.covariances[axis][n] = np.diag(1 / p.precisions[axis])
            if n == shape[axis]:
                p.means[axis] = p.means[axis][:-1]  # nothing changes what is expected of no one

    def errors():
        for cell, value in zip(index, values, strict=True):
            answers = [model(v, rank) for v in product(*points_of(cell, range(order)))]
            yield value - p.mean - np.array(answers)

    p.mean += np.mean([np.mean(error) for error in errors()])
    p.noise = np.mean([np.mean(error**2) for error in errors()])
    return p


@pytest.mark.parametrize(
    ("name", "shape", "density"),
    [
        ("bias", (30, 20), 0.5),
        ("vmf", (30,), 0.5),
        ("vmf", (40, 30), 0.5),
        ("vmf", (15, 12, 9), 0.5),
        (
            "vmf",
            (MAX_DENSE_MEMBERS + 60, MAX_DENSE_MEMBERS + 20),
            0.05,
        ),  # singular vectors by another method
    ],
)
def test_relabelling_members_and_shuffling_cells_relabels_the_answers(name, shape, density):
    index, values = planted(shape, density)
    plain = BASELINES[name]().fit(Cells(index, values, shape))
    generator = np.random.default_rng(5)
    names = [generator.permutation(size) for size in shape]
    shuffle = generator.permutation(len(index))

    def renamed(cells):
        return np.stack([own[column] for own, column in zip(names, cells.T, strict=True)], axis=1)

    other = BASELINES[name]().fit(Cells(renamed(index)[shuffle], values[shuffle], shape))
    asked = np.argwhere(np.ones(shape, dtype=bool))
    np.testing.assert_allclose(
        other.predict(renamed(asked)), plain.predict(asked), rtol=1e-8, atol=1e-8
    )
    for axis, own in enumerate(names):
        found = other.factors()[axis][own]
        np.testing.assert_allclose(found, plain.factors()[axis], atol=1e-7)


def test_factors_that_no_order_tells_apart_are_left_out():
    index = np.array(list(product(range(24), repeat=2)))
    same = index[:, 0] // 8 == index[:, 1] // 8  # three blocks: two equal singular values
    fitted = VariationalFactorization().fit(Cells(index, same.astype(float), (24, 24)))
    assert np.ptp(fitted.predict(index)[0]) < 1e-8
    uneven = same * (1.0 + index[:, 0] // 8)
    found = VariationalFactorization().fit(Cells(index, uneven, (24, 24))).predict(index)[0]
    assert rmse(found, uneven) < 0.1


def test_factors_are_switched_off_where_there_is_nothing_to_explain():
    shape = (200, 150)
    index, values = planted(shape, density=0.1, rank=0, noise=1.0)
    held = np.arange(len(index)) % 5 == 0
    bias, factors = (
        BASELINES[name]().fit(Cells(index[~held], values[~held], shape)).predict(index[held])[0]
        for name in ("bias", "vmf")
    )
    assert rmse(factors, bias) < 0.05


@pytest.mark.parametrize(
    ("shape", "density"), [((80, 60), 0.3), ((20, 25, 15), 0.2), ((9, 8, 7, 6), 0.4)]
)
@pytest.mark.parametrize("name", ["vmf", "bmf"])
def test_factorizations_find_planted_factors(name, shape, density):
    index, values = planted(shape, density)
    held = np.arange(len(index)) % 5 == 0
    chosen = replace(BASELINES[name](), rank=5)
    if name == "bmf":
        chosen = replace(chosen, sweeps=80, burn_in=40)
    answers = [
        own.fit(Cells(index[~held], values[~held], shape)).predict(index[held])
        for own in (Bias(), chosen)
    ]
    bias, found = (rmse(mean, values[held]) for mean, _ in answers)
    assert bias > 1.0
    assert found < 0.45 * bias
    apart = np.abs(answers[1][0] - values[held]) / np.sqrt(answers[1][1])
    assert 0.8 < np.mean(apart < 1.645) < 0.97


@pytest.mark.parametrize("name", ["vmf", "bmf"])
def test_factors_have_a_row_per_member_and_make_the_answers(name):
    shape = (50, 40)
    index, values = planted(shape)
    first, second = baseline(name).fit(Cells(index, values, shape)).factors()
    assert (len(first), len(second)) == shape
    assert first.shape[1] == second.shape[1] <= USUAL_RANK
    assert np.abs(first @ second.T).max() > 0.5
