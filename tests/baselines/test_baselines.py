"""Baselines answer as their models say, for any order, and for members nobody knows."""

import os
import subprocess
import sys
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
import torch
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from exchangeable.arrays.cells import Cells
from exchangeable.baselines import (
    BASELINES,
    BayesianFactorization,
    Bias,
    MemberMean,
    Neighbours,
    VariationalFactorization,
)
from exchangeable.baselines.factorization import MemberSums, VectorLayout
from exchangeable.baselines.gibbs_draws import draw_hyperparameters, draw_noise, draw_vectors
from exchangeable.baselines.posterior import Posterior, sweep
from exchangeable.baselines.singular_starts import MAX_DENSE_MEMBERS
from exchangeable.baselines.unfolding import Combinations
from exchangeable.errors import InputError
from exchangeable.runtime.progress import Progress

HELD = os.environ.get("EXCHANGEABLE_DATA")
real = pytest.mark.skipif(not HELD, reason="needs EXCHANGEABLE_DATA to name the data folder")

NAMES = [name for name in BASELINES if name != "knn"]
SHAPES = [(7,), (6, 5), (4, 5, 3), (3, 4, 2, 3)]


def baseline(name):
    """The baseline of that name, with few draws where they take time."""
    chosen = BASELINES[name]()
    if isinstance(chosen, BayesianFactorization):
        return replace(chosen, rank=3, sweeps=24, burn_in=8)
    return chosen


def cells_of(shape, density, seed=0):
    """Distinct cells in random order, busy and quiet members, and none of the last of each axis."""
    generator = np.random.default_rng(seed)
    smaller = [max(size - 1, 1) for size in shape]
    chance = np.ones(smaller)
    for axis, size in enumerate(smaller):
        own = np.exp(0.5 * generator.standard_normal(size))
        chance = chance * own.reshape([-1 if a == axis else 1 for a in range(len(shape))])
    index = np.argwhere(generator.random(smaller) < density * chance / chance.mean())
    return generator.permutation(index)


def planted(shape, density=0.5, rank=2, noise=0.3, seed=0):
    """Biases, factors of every pair of axes, and noise."""
    generator = np.random.default_rng(seed + 1)
    index = cells_of(shape, density, seed)
    values = 3 + noise * generator.standard_normal(len(index))
    for axis, size in enumerate(shape):
        values += 0.5 * generator.standard_normal(size)[index[:, axis]]
    for d, e in combinations(range(len(shape)), 2):
        left = generator.standard_normal((shape[d], rank))[index[:, d]]
        right = generator.standard_normal((shape[e], rank))[index[:, e]]
        values += (left * right).sum(axis=1)
    return index, values


def queries(shape):
    """Every cell, with every axis known and not."""
    return np.array(list(product(*[range(-1, size) for size in shape])))


def rmse(answer, truth):
    return float(np.sqrt(np.mean((answer - truth) ** 2)))


# All of them


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", NAMES)
def test_every_cell_of_any_order_has_an_answer_and_a_variance(name, shape):
    index, values = planted(shape)
    mean, variance = baseline(name).fit(Cells(index, values, shape)).predict(queries(shape))
    assert mean.dtype == variance.dtype == np.float64
    assert np.isfinite(mean).all()
    assert (variance > 0).all()
    assert np.isfinite(variance).all()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("number", [1, 6])
def test_a_table_of_equal_values_answers_that_value_for_sure(name, shape, number):
    index = cells_of(shape, 1.0)[:number]
    fitted = baseline(name).fit(Cells(index, np.full(len(index), 0.1), shape))
    mean, variance = fitted.predict(queries(shape))
    assert (mean == 0.1).all()
    assert (variance == 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_values_too_close_to_square_their_difference_count_as_equal(name):
    index = np.array([[0, 0], [0, 1], [1, 1]])
    mean, variance = (
        baseline(name).fit(Cells(index, np.array([0, 1e-200, 0]), (2, 2))).predict(index)
    )
    np.testing.assert_allclose(mean, 0, atol=1e-199)
    assert (variance == 0).all()


@pytest.mark.parametrize("shape", [(1,), (2, 1), (1, 4), (3, 1, 2)])
@pytest.mark.parametrize("name", NAMES)
def test_an_axis_may_have_a_single_member_and_a_table_may_be_full(name, shape):
    index = np.array(list(product(*map(range, shape))))
    values = np.arange(len(index)) ** 2.0
    mean, variance = baseline(name).fit(Cells(index, values, shape)).predict(queries(shape))
    assert np.isfinite(mean).all()
    assert np.isfinite(variance).all()


@pytest.mark.parametrize("name", NAMES)
def test_a_table_without_cells_is_refused(name):
    with pytest.raises(InputError, match="needs cells, but there are none"):
        baseline(name).fit(Cells(np.empty((0, 2), dtype=np.int64), np.empty(0), (3, 3)))


@pytest.mark.parametrize("name", NAMES)
def test_cells_and_queries_outside_the_table_are_refused(name):
    with pytest.raises(InputError, match="from 0 to below"):
        baseline(name).fit(Cells(np.array([[0, 3]]), np.ones(1), (3, 3)))
    fitted = baseline(name).fit(Cells(np.array([[0, 2]]), np.ones(1), (3, 3)))
    with pytest.raises(InputError, match="from -1 to below"):
        fitted.predict(np.array([[3, 0]]))
    with pytest.raises(InputError, match=r"queries must have shape \(Q, 2\)"):
        fitted.predict(np.array([[0, 0, 0]]))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", NAMES)
def test_a_member_without_cells_is_like_one_that_is_not_known(name, shape):
    index, values = planted(shape)  # leaves the last member of each axis empty
    fitted = baseline(name).fit(Cells(index, values, shape))
    unknown = queries(shape)
    empty = np.where(unknown == -1, np.array(shape) - 1, unknown)
    np.testing.assert_array_equal(fitted.predict(unknown), fitted.predict(empty))


@pytest.mark.parametrize("name", ["bias", "vmf", "bmf", "item-knn", "user-knn"])
def test_what_is_not_known_makes_answers_less_sure(name):
    index, values = planted((30, 20))
    fitted = baseline(name).fit(Cells(index, values, (30, 20)))
    known, row, both = (
        fitted.predict(np.where(mask, -1, index))[1].mean() for mask in ([0, 0], [1, 0], [1, 1])
    )
    assert known < row < both


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_does_not_depend_on_what_else_is_asked(name):
    shape = (90, 60)
    index, values = planted(shape)
    fitted = baseline(name).fit(Cells(index, values, shape))
    asked = queries(shape)  # more than are answered at once
    mean, variance = fitted.predict(asked)
    some = np.random.default_rng(0).permutation(len(asked))[:1000]
    # Members are compared by products of matrices in float32, which add in an order of their own.
    far = 1e-6 if "knn" in name else 0.0
    there = np.stack([mean, variance])
    np.testing.assert_allclose(fitted.predict(asked[some]), there[:, some], rtol=0, atol=far)
    for one in some[:20]:
        found = fitted.predict(asked[[one]])
        np.testing.assert_allclose(found, there[:, [one]], rtol=0, atol=far)
    assert [len(part) for part in fitted.predict(asked[:0])] == [0, 0]


@pytest.mark.parametrize("shape", SHAPES[:3])
@pytest.mark.parametrize("name", NAMES)
def test_a_saved_state_answers_again_bit_for_bit(name, shape):
    index, values = planted(shape)
    chosen = baseline(name)
    fitted = chosen.fit(Cells(index, values, shape))
    read = chosen.kind.from_state(chosen, load_arrays(save_arrays(fitted.state())))
    assert read.shape == shape
    np.testing.assert_array_equal(read.predict(queries(shape)), fitted.predict(queries(shape)))
    changed = np.array([0])
    again = [own.updated(Cells(index, values + 1, shape), changed) for own in (fitted, read)]
    np.testing.assert_array_equal(*[own.predict(queries(shape)) for own in again])


@pytest.mark.parametrize("name", NAMES)
def test_progress_is_reported_up_to_the_end(name):
    index, values = planted((6, 5))
    heard = []
    baseline(name).fit(
        Cells(index, values, (6, 5)), Progress(lambda share, text: heard.append(share))
    )
    assert heard == sorted(heard)
    assert heard[-1] == 1


def test_the_package_imports_without_polars():
    code = "import sys; sys.modules['polars'] = None; import exchangeable.baselines"
    subprocess.run([sys.executable, "-c", code], check=True)


# Means


def test_a_mean_is_that_of_the_member_or_of_all():
    index, values = np.array([[0, 0], [0, 1], [1, 1]]), np.array([1.0, 3.0, 8.0])
    asked = np.array([[0, 1], [1, 0], [2, 0], [-1, -1]])
    fits = {name: BASELINES[name]().fit(Cells(index, values, (3, 2))) for name in NAMES[:3]}
    assert fits["mean"].predict(asked)[0].tolist() == [4, 4, 4, 4]
    assert fits["row-mean"].predict(asked)[0].tolist() == [2, 8, 4, 4]
    assert fits["column-mean"].predict(asked)[0].tolist() == [5.5, 1, 1, 4]
    # The squares about the two row means add up to 2, and one cell is left to average them.
    assert fits["row-mean"].predict(asked)[1] == pytest.approx([3, 4, 13 * 4 / 3, 13 * 4 / 3])


def test_the_variance_of_a_mean_is_the_error_it_makes():
    generator = np.random.default_rng(0)
    index = np.array(list(product(range(400), range(5))))
    values = 2 * generator.standard_normal(400)[index[:, 0]] + generator.standard_normal(2000)
    held = index[:, 1] == 4
    fitted = MemberMean(axis=0).fit(Cells(index[~held], values[~held], (400, 5)))
    mean, variance = fitted.predict(index[held])
    assert np.mean((mean - values[held]) ** 2 / variance) == pytest.approx(1, abs=0.2)


# Biases


@pytest.mark.parametrize("shape", [(9,), (8, 6), (5, 4, 3)])
def test_biases_equal_a_slow_em_written_out(shape):
    index, values = planted(shape, density=0.7)
    mean, variance = Bias(sweeps=7, tolerance=0).fit(Cells(index, values, shape)).predict(index)
    expected = slow_em(index, values, shape, rounds=7)
    np.testing.assert_allclose((mean, variance), expected, rtol=1e-10)


def slow_em(index, values, shape, rounds):
    """Cell by cell: biases in turn given the others, then their variances, then the noise."""
    order, cells = len(shape), [tuple(cell) for cell in index.tolist()]
    centre, spread = np.mean(values), np.std(values)
    y = {cell: (value - centre) / spread for cell, value in zip(cells, values, strict=True)}
    mu, noise, prior = 0.0, 0.5, [0.5 / order] * order
    bias = [[0.0] * size for size in shape]
    sure = [[0.5 / order] * size for size in shape]

    def answer(cell):
        return mu + sum(bias[d][n] for d, n in enumerate(cell))

    for _ in range(rounds):
        for d in range(order):
            squares = []
            for n in range(shape[d]):
                own = [cell for cell in cells if cell[d] == n]
                left = [y[cell] - answer(cell) + bias[d][n] for cell in own]
                sure[d][n] = 1 / (1 / prior[d] + len(own) / noise)
                bias[d][n] = sure[d][n] * sum(left) / noise
                if own:
                    squares.append(bias[d][n] ** 2 + sure[d][n])
            prior[d] = sum(squares) / len(squares)
        mu += sum(y[cell] - answer(cell) for cell in cells) / len(cells)
        unsure = [sum(sure[d][n] for d, n in enumerate(cell)) for cell in cells]
        errors = [(y[cell] - answer(cell)) ** 2 for cell in cells]
        noise = (sum(errors) + sum(unsure)) / len(cells)
    mean = [centre + spread * answer(cell) for cell in cells]
    return mean, [spread**2 * (noise + own) for own in unsure]


# Variational factorization


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


def random_posterior(shape, rank):
    generator = np.random.default_rng(0)
    layout = VectorLayout(len(shape), rank)
    means, covariances, precisions = [], [], []
    for size in shape:
        means.append(generator.standard_normal((size + 1, layout.width)))
        root = 0.3 * generator.standard_normal((size + 1, layout.width, layout.width))
        covariances.append(root @ root.transpose(0, 2, 1))
        precisions.append(1 + generator.random(layout.width))
    tables = [
        [torch.from_numpy(table) for table in own] for own in (means, covariances, precisions)
    ]
    return Posterior(layout, 0.3, 0.7, *tables)


def in_numpy(posterior):
    """For references that are written out."""
    kinds = ("means", "covariances", "precisions")
    return replace(posterior, **{k: [t.numpy() for t in getattr(posterior, k)] for k in kinds})


def model(vectors, rank):
    """The sum over axes and pairs of axes, for one cell: a vector is [b, u of each other axis]."""
    total = sum(vector[0] for vector in vectors)
    for d, e in combinations(range(len(vectors)), 2):
        here, there = 1 + rank * (e - 1), 1 + rank * d
        total += vectors[d][here : here + rank] @ vectors[e][there : there + rank]
    return total


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
    assert first.shape[1] == second.shape[1] <= BASELINES[name]().rank
    assert np.abs(first @ second.T).max() > 0.5


# Gibbs sampling


def test_draws_repeat_with_the_seed_and_differ_without():
    index, values = planted((20, 15))
    chosen = baseline("bmf")
    first, again, other = (
        replace(chosen, seed=seed).fit(Cells(index, values, (20, 15))).predict(index)[0]
        for seed in (0, 0, 1)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_vectors_are_drawn_from_their_ridge_regression():
    shape, rank, noise = (2, 4, 3), 2, 0.4
    index = np.array(list(product(*map(range, shape))))[::2]
    values = np.random.default_rng(0).standard_normal(len(index))
    given = random_posterior(shape, rank)
    prior = np.array([0.5, -1.0, 1.0, 0.0, 2.0]), np.diag([1.0, 2, 3, 4, 5]) + 0.5
    generator = np.random.default_rng(1)
    drawn = np.array(
        [
            draw_vectors(
                given.layout,
                MemberSums.of(torch.from_numpy(index), 0, 2),
                torch.from_numpy(values),
                given.means,
                prior,
                noise,
                generator,
            )[1].numpy()
            for _ in range(2000)
        ]
    )
    features, rests = [], []
    for cell in index[index[:, 0] == 1]:
        vectors = [given.means[d][cell[d]].numpy() for d in (1, 2)]
        rest = model([np.zeros(5), *vectors], rank)
        features.append([model([step, *vectors], rank) - rest for step in np.eye(5)])
        rests.append(rest)
    features, target = np.array(features), values[index[:, 0] == 1] - np.array(rests)
    covariance = np.linalg.inv(prior[1] + features.T @ features / noise)
    mean = covariance @ (prior[1] @ prior[0] + features.T @ target / noise)
    error = np.sqrt(np.diag(covariance) / len(drawn))
    assert (np.abs(drawn.mean(axis=0) - mean) < 4 * error).all()
    np.testing.assert_allclose(np.cov(drawn.T), covariance, atol=0.1 * covariance.max())


def test_priors_are_drawn_from_a_normal_wishart():
    generator = np.random.default_rng(0)
    vectors = generator.standard_normal((40, 3)) @ np.diag([1.0, 0.5, 0.2]) + [1.0, 0.0, -1.0]
    drawn = [draw_hyperparameters(vectors, generator) for _ in range(4000)]
    centre = vectors.mean(axis=0)
    scatter = np.eye(3) + 39 * np.cov(vectors.T) + 80 / 42 * np.outer(centre, centre)
    expected = 43 * np.linalg.inv(scatter)  # degrees of freedom times scale
    precision = np.mean([own for _, own in drawn], axis=0)
    np.testing.assert_allclose(precision, expected, atol=0.02 * expected.max())
    means = np.array([own for own, _ in drawn])
    np.testing.assert_allclose(means.mean(axis=0), 40 / 42 * centre, atol=0.02)
    # A multivariate t: scatter over the members with pull, and over the degrees less dimensions.
    np.testing.assert_allclose(np.cov(means.T), scatter / 42 / (43 - 3 - 1), atol=0.005)


def test_the_noise_is_drawn_about_the_errors():
    generator = np.random.default_rng(0)
    drawn = [draw_noise(torch.full((200,), 2.0), generator) for _ in range(2000)]
    assert np.mean(drawn) == pytest.approx(4.0, rel=0.02)
    assert np.std(drawn) == pytest.approx(4.0 * np.sqrt(2 / 200), rel=0.1)


def test_more_burn_in_than_sweeps_is_refused():
    with pytest.raises(InputError, match="burn_in must be from 0 to below sweeps=10, but is 10"):
        BayesianFactorization(sweeps=10, burn_in=10)


# Updates


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("vmf", "bmf")])
def test_an_update_of_what_is_cheap_is_a_refit(name):
    index, values = planted((12, 9))
    old = index[:, 0] < 8
    fitted = baseline(name).fit(Cells(index[old], values[old], (8, 9)))
    updated = fitted.updated(Cells(index, values, (12, 9)), np.flatnonzero(~old))
    refit = baseline(name).fit(Cells(index, values, (12, 9)))
    np.testing.assert_array_equal(updated.predict(index), refit.predict(index))


@pytest.mark.parametrize("new", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("shape", [(80, 60), (24, 20, 12)])
@pytest.mark.parametrize("name", ["vmf", "bmf"])
def test_new_members_are_answered_nearly_as_well_as_after_a_refit(name, shape, new):
    index, values = planted(shape, density=0.3)
    chosen = replace(BASELINES[name](), rank=3)
    if name == "bmf":
        chosen = replace(chosen, sweeps=60, burn_in=30)
    before = tuple(size - 4 if axis in new else size for axis, size in enumerate(shape))
    fresh = (index >= before).any(axis=1)
    held = fresh & (np.arange(len(index)) % 4 == 0)
    old = chosen.fit(Cells(index[~fresh], values[~fresh], before))
    shown, changed = index[~held], np.flatnonzero(fresh[~held])
    updated = old.updated(Cells(shown, values[~held], shape), changed)
    refit = chosen.fit(Cells(shown, values[~held], shape))
    blank = old.predict(np.where(index[held] >= before, -1, index[held]))[0]
    unknown, quick, full = (
        rmse(answer, values[held])
        for answer in (blank, updated.predict(index[held])[0], refit.predict(index[held])[0])
    )
    assert updated.shape == shape
    assert quick < 0.5 * unknown
    assert quick < full + 0.15


@pytest.mark.parametrize("name", ["vmf", "bmf"])
def test_an_update_leaves_members_alone_whose_cells_did_not_change(name):
    shape = (30, 20)
    index, values = planted(shape)
    old = baseline(name).fit(Cells(index, values, shape))
    changed = np.array([3])
    other = values.copy()
    other[3] += 2
    new = old.updated(Cells(index, other, shape), changed)
    elsewhere = queries(shape)
    touched = (elsewhere == index[3]).any(axis=1)
    found, expected = np.array(new.predict(elsewhere)), np.array(old.predict(elsewhere))
    np.testing.assert_array_equal(found[:, ~touched], expected[:, ~touched])
    here = (elsewhere == index[3]).all(axis=1)
    assert found[0, here] > expected[0, here]


@pytest.mark.parametrize("name", ["vmf", "bmf"])
def test_a_table_of_equal_values_can_be_updated_with_others(name):
    index, values = planted((12, 9))
    fitted = baseline(name).fit(Cells(index[:5], np.ones(5), (12, 9)))
    mixed = np.append(np.ones(5), values[5:])
    updated = fitted.updated(Cells(index, mixed, (12, 9)), np.arange(5, len(index)))
    refit = baseline(name).fit(Cells(index, mixed, (12, 9)))
    np.testing.assert_array_equal(updated.predict(index), refit.predict(index))


# Neighbours


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("by", ["values", "presence"])
@pytest.mark.parametrize(
    ("shape", "density"), [((12, 10), 0.7), ((5, 4, 6), 0.7), ((150, 120), 0.006)]
)
def test_neighbours_equal_a_slow_loop(axis, by, shape, density):
    index, values = planted(shape, density=density)
    fitted = Neighbours(axis=axis, by=by, shrink=2.0, doubt=0.3).fit(Cells(index, values, shape))
    unfolded = fitted._similarity._unfolded.values
    assert (unfolded.layout == torch.strided) == (density > 0.5)  # both ways to hold a table
    bias = Bias().fit(Cells(index, values, shape))
    left = dict(zip(map(tuple, index.tolist()), values - bias.predict(index)[0], strict=True))
    everywhere = np.array(list(np.ndindex(shape)))
    asked = everywhere[np.random.default_rng(0).permutation(len(everywhere))[:3000]]
    asked = asked[np.all([np.isin(asked[:, d], index[:, d]) for d in range(len(shape))], axis=0)]
    expected = [slow_neighbours(left, tuple(cell), axis, by, 2.0, 0.3) for cell in asked.tolist()]
    assert np.count_nonzero(expected) > 5
    found = fitted.predict(asked)[0] - bias.predict(asked)[0]
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("by", ["values", "presence"])
def test_the_variance_of_neighbours_is_that_of_a_slow_loop_over_parts(by):
    shape = (12, 10)
    index, values = planted(shape)
    fitted = Neighbours(by=by, shrink=2.0, doubt=0.3).fit(Cells(index, values, shape))
    part = np.random.default_rng(0).permutation(len(values)) % 10
    errors = []
    for number in range(10):
        out = part == number
        bias = Bias().fit(Cells(index[~out], values[~out], shape))
        residuals = values[~out] - bias.predict(index[~out])[0]
        left = dict(zip(map(tuple, index[~out].tolist()), residuals, strict=True))
        added = [slow_neighbours(left, tuple(c), -1, by, 2.0, 0.3) for c in index[out].tolist()]
        errors.extend(bias.predict(index[out])[0] + added - values[out])
    assert fitted.variance == pytest.approx(np.mean(np.square(errors)), rel=1e-5)


def slow_neighbours(left, cell, axis, by, shrink, doubt):
    """What the members that are like the cell's add to it, by the definition."""
    rows = {}
    for other, value in left.items():
        place = list(other)
        rows.setdefault(place.pop(axis), {})[tuple(place)] = value
    place = list(cell)
    own = rows.get(place.pop(axis), {})
    heard = []
    for row in rows.values():
        common = [at for at in row if at in own]
        if row is own or tuple(place) not in row or not common:
            continue
        products = sum(row[at] * own[at] for at in common)
        sizes = [sum(side[at] ** 2 for at in common) for side in (row, own)]
        alike = products / np.sqrt(sizes[0] * sizes[1]) * len(common) / (len(common) + shrink)
        presence = len(common) / np.sqrt(len(row) * len(own))
        weight = max(alike, 0) ** 2 if by == "values" else presence**3
        heard.append((weight, row[tuple(place)]))
    return sum(w * r for w, r in heard) / (sum(w for w, _ in heard) + doubt)


def test_the_variance_of_neighbours_is_the_error_they_make():
    shape = (150, 100)
    index, values = planted(shape, density=0.2, noise=0.8)
    held = np.arange(len(index)) % 5 == 0
    fitted = Neighbours().fit(Cells(index[~held], values[~held], shape))
    mean, variance = fitted.predict(index[held])
    assert np.mean((mean - values[held]) ** 2 / variance) == pytest.approx(1, abs=0.15)


def test_combinations_are_found_where_their_product_fits_no_integer():
    shape = (2**40, 2**40, 2**40)
    index = torch.tensor([[5, 2**40 - 1, 7], [5, 3, 2**40 - 1], [0, 2**40 - 1, 7]])
    found, places = Combinations.of(index, (0, 1, 2), shape)
    assert found.find(index).tolist() == places.tolist()
    assert sorted(places.tolist()) == [0, 1, 2]
    assert found.find(torch.tensor([[5, 3, 7], [1, 3, 7]])).tolist() == [-1, -1]


def test_members_are_alike_in_one_of_two_ways():
    with pytest.raises(InputError, match="one of values, presence, but is 'looks'"):
        Neighbours(by="looks")


# Real tables


@pytest.fixture(scope="module")
def u1():
    from exchangeable.datasets import load

    dataset = load("ml-100k")
    split = dataset.splits["u1"]
    table = dataset.table

    def error(name):
        train, test = split.train, split.test
        fitted = BASELINES[name]().fit(Cells(table.index[train], table.values[train], table.shape))
        mean, variance = fitted.predict(table.index[test])
        truth = table.values[test]
        assert 0.8 < np.mean((mean - truth) ** 2 / variance) < 1.25
        return rmse(np.clip(mean, 1, 5), truth)

    return error


@real
@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("mean", 1.15, 1.16),
        ("bias", 0.951, 0.955),
        ("vmf", 0.90, 0.918),
        ("item-knn", 0.92, 0.95),
        ("user-knn", 0.92, 0.95),
    ],
)
def test_the_error_on_ml_100k_is_in_its_known_range(u1, name, least, most):
    assert least <= u1(name) <= most
