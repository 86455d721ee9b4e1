"""Products over all axes: their moments are those of the trilinear model, written out."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from exchangeable.arrays.cells import Cells
from exchangeable.baselines import Bias, VariationalFactorization, rank_choice
from exchangeable.baselines.factorization import VectorLayout
from exchangeable.baselines.polyadic import products as module
from exchangeable.baselines.polyadic.fit import Starts, fit_products, grow_products, limit_products
from exchangeable.baselines.posterior import Posterior
from exchangeable.baselines.rank_choice import with_rank
from exchangeable.baselines.sweeps import sweep
from exchangeable.predictors.baseline import fit_baseline
from exchangeable.sums.member_sums import MemberSums
from exchangeable.sums.solved_members import SolvedMembers
from exchangeable.values.scale import Scale

SHAPE = (4, 5, 3)


def tensor(products):
    """The trilinear form of a cell in the vectors (1, b, c) of its members."""
    form = np.zeros((2 + products,) * 3)
    form[1, 0, 0] = form[0, 1, 0] = form[0, 0, 1] = 1
    for r in range(2, 2 + products):
        form[r, r, r] = 1
    return form


def random_products(shape=SHAPE, products=2, seed=0, weights=True):
    """A posterior with vectors and covariances at random, noise by member and centres."""
    rng = np.random.default_rng(seed)
    width = 1 + products

    def covariance():
        root = rng.normal(size=(width, width))
        return root @ root.T / 4 + 0.1 * np.eye(width)

    tables = [torch.from_numpy(rng.normal(size=(n + 1, width))) for n in shape]
    spreads = [torch.from_numpy(np.stack([covariance() for _ in range(n + 1)])) for n in shape]
    precisions = [torch.from_numpy(rng.uniform(0.5, 2, width)) for _ in shape]
    ratios = [torch.from_numpy(rng.uniform(0.5, 2, n + 1)) for n in shape] if weights else []
    centres = [torch.from_numpy(rng.normal(size=width)) for _ in shape]
    layout = VectorLayout(3, 0, products)
    return Posterior(
        layout, 0.3, 0.7, tables, spreads, precisions, noise_ratios=ratios, centres=centres
    )


def augmented(posterior, axis, member):
    """Mean (W + 1,) and second moments of (1, b, c) of a member."""
    mean = np.append(1.0, posterior.means[axis][member].numpy())
    second = np.outer(mean, mean)
    second[1:, 1:] += posterior.covariances[axis][member].numpy()
    return mean, second


def some_cells(shape=SHAPE, density=0.7, seed=1, empty=True):
    """Cells in random sequence, the last member of the second axis without any."""
    rng = np.random.default_rng(seed)
    index = np.stack(np.nonzero(rng.random(shape) < density), axis=1)
    index = index[index[:, 1] < shape[1] - 1] if empty else index
    return rng.permutation(index), rng.normal(size=len(index))


def planted(shape=(14, 12, 10), products=3, noise=0.1, density=0.6, seed=0):
    """Cells of a sum of products over three axes, whose factors have mean 0."""
    rng = np.random.default_rng(seed)
    vectors = [rng.normal(size=(size, products)) for size in shape]
    index = np.stack(np.nonzero(rng.random(shape) < density), axis=1)
    exact = np.prod([v[index[:, axis]] for axis, v in enumerate(vectors)], axis=0).sum(axis=1)
    return index, exact, exact + noise * rng.normal(size=len(index))


def fitted_products(index, values, shape, most):
    sums = MemberSums.by_axis(torch.from_numpy(index), shape)
    y = torch.from_numpy(values)
    return fit_products(Bias().by_sums(sums, y), sums, y, most)


@pytest.mark.parametrize("chunk", [1 << 21, 8])
def test_means_and_variances_are_those_of_the_trilinear_form(chunk, monkeypatch):
    monkeypatch.setattr(module, "NUMBERS_PER_CHUNK", chunk)
    posterior, form = random_products(), tensor(2)
    index = np.array([*np.ndindex(*SHAPE), (-1, 2, 0), (1, -1, -1)])
    mean, variance = posterior.predict(torch.from_numpy(index))
    for cell, found, spread in zip(index, mean, variance, strict=True):
        moments = [augmented(posterior, axis, member) for axis, member in enumerate(cell)]
        expected = np.einsum("ijk,i,j,k->", form, *(m for m, _ in moments))
        square = np.einsum("ijk,lmn,il,jm,kn->", form, form, *(s for _, s in moments))
        ratio = np.prod([posterior.noise_ratios[axis][n] for axis, n in enumerate(cell)])
        assert found == pytest.approx(0.3 + expected, rel=1e-9)
        assert spread == pytest.approx(square - expected**2 + 0.7 * ratio, rel=1e-9)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("chunk", [1 << 21, 8])
@pytest.mark.parametrize("weights", [False, True])
def test_members_are_solved_from_the_moments_of_the_form_in_the_other_axes(
    axis, chunk, weights, monkeypatch
):
    monkeypatch.setattr(module, "NUMBERS_PER_CHUNK", chunk)
    posterior = random_products(weights=weights)
    index, values = some_cells()
    sums = MemberSums.of(torch.from_numpy(index), axis, SHAPE[axis])
    solved = replace(
        posterior, means=[*posterior.means], covariances=[s.clone() for s in posterior.covariances]
    )
    solved.means[axis] = solved.means[axis].clone()
    weighted = sums.weighted(posterior.member_weights) if weights else sums
    solved.solve(weighted, torch.from_numpy(values), torch.arange(SHAPE[axis]))
    form = np.moveaxis(tensor(2), axis, 0)
    for member in range(SHAPE[axis]):
        precision = np.diag(posterior.precisions[axis].numpy())
        pull = precision @ posterior.centres[axis].numpy()
        for cell, value in zip(index, values, strict=True):
            if cell[axis] != member:
                continue
            others = [augmented(posterior, at, n) for at, n in enumerate(cell) if at != axis]
            features = np.einsum("ijk,j,k->i", form, *(m for m, _ in others))
            gram = np.einsum("ijk,lmn,jm,kn->il", form, form, *(s for _, s in others))
            noise = posterior.noise
            for at, n in enumerate(cell):
                noise *= float(posterior.noise_ratios[at][n]) if weights else 1.0
            precision = precision + gram[1:, 1:] / noise
            pull = pull + ((value - 0.3) * features[1:] - gram[1:, 0]) / noise
        covariance = np.linalg.inv(precision)
        np.testing.assert_allclose(solved.covariances[axis][member], covariance, rtol=1e-8)
        np.testing.assert_allclose(solved.means[axis][member], covariance @ pull, rtol=1e-8)


def test_the_noise_is_the_expected_squared_error():
    posterior, form = random_products(weights=False), tensor(2)
    index, values = some_cells()
    y = torch.from_numpy(values)
    sums = MemberSums.by_axis(torch.from_numpy(index), SHAPE)
    solved = posterior.solve(sums[2], y, torch.arange(SHAPE[2]))
    posterior.update_noise(sums[2], y, solved)
    error = 0.0
    for cell, value in zip(index, values, strict=True):
        moments = [augmented(posterior, axis, member) for axis, member in enumerate(cell)]
        mean = np.einsum("ijk,i,j,k->", form, *(m for m, _ in moments))
        square = np.einsum("ijk,lmn,il,jm,kn->", form, form, *(s for _, s in moments))
        error += (value - posterior.mean - mean) ** 2 + square - mean**2
    assert posterior.noise == pytest.approx(error / len(index), rel=1e-9)


def test_centres_are_what_the_vectors_of_members_with_cells_have_in_common():
    posterior = random_products()
    index, _ = some_cells()
    posterior.update_prior(MemberSums.of(torch.from_numpy(index), 1, SHAPE[1]))
    means = posterior.means[1][: SHAPE[1] - 1].numpy()
    centre = np.append(0.0, means.mean(axis=0)[1:])
    np.testing.assert_allclose(posterior.centres[1], centre)
    np.testing.assert_allclose(posterior.means[1][-1], centre)
    spread = posterior.covariances[1][: SHAPE[1] - 1].diagonal(dim1=1, dim2=2).numpy()
    second = ((means - centre) ** 2 + spread).mean(axis=0)
    np.testing.assert_allclose(1 / posterior.precisions[1], second)


def test_planted_products_are_found_and_no_more_than_these():
    index, exact, values = planted(products=3, noise=0.1)
    rng = np.random.default_rng(5)
    hidden = rng.random(len(index)) < 0.2
    shape = (14, 12, 10)
    y, asked = torch.from_numpy(values[~hidden]), torch.from_numpy(index[hidden])
    sums = MemberSums.by_axis(torch.from_numpy(index[~hidden]), shape)
    truth = torch.from_numpy(exact[hidden])

    def error(posterior):
        return float((truth - posterior.predict_mean(asked)).square().mean())

    posterior = grow_products(Bias().by_sums(sums, y), sums, y, 24, error)
    assert error(posterior) < 0.1**2
    strengths = torch.stack([m[:-1, 1:].square().mean(dim=0) for m in posterior.means]).prod(dim=0)
    assert int((strengths > 0.05).sum()) == 3
    assert posterior.noise == pytest.approx(0.1**2, rel=0.3)


def test_variances_are_as_wide_as_errors_on_cells_left_out():
    index, _, values = planted((20, 16, 12), products=4, noise=0.5, density=0.4)
    hidden = np.random.default_rng(3).random(len(index)) < 0.2
    posterior = fitted_products(index[~hidden], values[~hidden], (20, 16, 12), 8)
    mean, variance = posterior.predict(torch.from_numpy(index[hidden]))
    ratio = (torch.from_numpy(values[hidden]) - mean).square() / variance
    assert float(ratio.mean()) == pytest.approx(1, abs=0.25)


def test_relabelling_members_and_shuffling_cells_relabels_products():
    shape = (9, 8, 7)
    index, _, values = planted(shape, products=2, density=0.8)
    rng = np.random.default_rng(2)
    labels = [rng.permutation(size) for size in shape]
    relabelled = np.stack([label[column] for label, column in zip(labels, index.T, strict=True)], 1)
    shuffled = rng.permutation(len(index))
    one = fitted_products(index, values, shape, 4)
    other = fitted_products(relabelled[shuffled], values[shuffled], shape, 4)
    for found, expected in zip(
        other.predict(torch.from_numpy(relabelled)),
        one.predict(torch.from_numpy(index)),
        strict=True,
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


def test_more_products_start_where_the_first_ones_leave_something():
    index, _, values = planted()
    sums = MemberSums.by_axis(torch.from_numpy(index), (14, 12, 10))
    y = torch.from_numpy(values)
    biases = Bias().by_sums(sums, y)
    vectors = Starts.of(sums).find(biases, y, 3)
    assert [tuple(each.shape) for each in vectors] == [(14, 3), (12, 3), (10, 3)]
    exact = biases.predict_mean(torch.from_numpy(index))
    assert Starts.of(sums).find(biases, exact, 3) is None


def test_a_new_member_is_solved_from_its_own_cells_as_the_table_would_solve_it():
    shape = (14, 12, 10)
    index, _, values = planted(shape)
    posterior = fitted_products(index, values, shape, 8)
    own = index[:, 1] == 4
    cells, y = torch.from_numpy(index[own]), torch.from_numpy(values[own])
    renumbered = cells.clone()
    renumbered[:, 1] = 0
    new = posterior.for_new_members(renumbered, y, SolvedMembers.new(renumbered, 1))
    again = replace(posterior, means=[*posterior.means], covariances=[*posterior.covariances])
    again.means[1], again.covariances[1] = again.means[1].clone(), again.covariances[1].clone()
    again.noise_ratios = [each.clone() for each in posterior.noise_ratios]
    again.noise_ratios[1][4] = again.noise_ratios[1][-1]
    weights = [each[[4]] if at == 1 else each for at, each in enumerate(again.member_weights)]
    sums, _ = MemberSums.of_members(cells, 1, torch.tensor([4]))
    again.solve(sums.weighted(weights), y, torch.tensor([4]))
    for found, expected in zip(new.predict(renumbered), again.predict(cells), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-8)


def test_a_new_member_without_cells_is_at_the_centre():
    index, _, values = planted()
    posterior = fitted_products(index, values, (14, 12, 10), 8)
    none = torch.empty(0, 3, dtype=torch.int64)
    new = posterior.for_new_members(none, torch.empty(0).double(), SolvedMembers.new(none, 0))
    np.testing.assert_array_equal(new.means[0][0], posterior.means[0][-1])


def test_an_update_solves_the_members_of_changed_cells_and_no_others():
    shape = (14, 12, 10)
    index, _, values = planted(shape)
    fitted = VariationalFactorization(products=8).fit(Cells(index, values, shape, Scale("real")))
    changed = np.array([0])
    values = values.copy()
    values[0] += 3
    updated = fitted.updated(Cells(index, values, shape, Scale("real")), changed)
    for axis, (one, other) in enumerate(
        zip(fitted.posterior.means, updated.posterior.means, strict=True)
    ):
        moved = (one != other).any(dim=1).nonzero().squeeze(1)
        assert moved.tolist() == [index[0, axis]]
    away = abs(fitted.predict(index[:1])[0] - values[0])
    assert abs(updated.predict(index[:1])[0] - values[0]) < away


def test_there_are_products_of_three_axes_only_and_no_more_than_cells_can_tell():
    index = torch.from_numpy(np.array([*np.ndindex(6, 5, 4)]))
    sums = MemberSums.by_axis(index, (6, 5, 4))
    assert limit_products(sums) == round(120 * 3 / 15 / 5)
    assert limit_products(sums, 2) == 2
    assert limit_products(MemberSums.by_axis(index[:, :2].unique(dim=0), (6, 5))) == 0
    assert limit_products([each.without(torch.ones(120).bool()) for each in sums]) == 0
    assert limit_products(MemberSums.by_axis(index[:1], (6, 5, 4))) == 0


@pytest.mark.parametrize("cells", [1, 2])
def test_tables_of_one_cell_or_equal_values_are_predicted(cells):
    index, values = np.array([[0, 1, 0], [1, 0, 1]])[:cells], np.full(cells, 4.0)
    model = VariationalFactorization(products=3)
    fitted = model.fit(Cells(index, values, (2, 2, 2), Scale("real")))
    mean, variance = fitted.predict(np.array([*np.ndindex(2, 2, 2)]))
    assert mean == pytest.approx(4.0)
    assert np.isfinite(variance).all()


def test_members_without_cells_have_finite_predictions():
    index, _, values = planted((14, 12, 10))
    fitted = VariationalFactorization(products=8).fit(
        Cells(index, values, (15, 13, 11), Scale("real"))
    )
    mean, variance = fitted.predict(np.array([[14, 0, 0], [14, 12, 10], [-1, 3, 2], [0, 0, 0]]))
    assert np.isfinite(mean).all()
    assert (variance > 0).all()
    assert variance[1] > variance[3]


def test_variational_factorization_takes_the_form_that_predicts_hidden_cells_better(monkeypatch):
    monkeypatch.setattr(rank_choice, "MIN_CELLS", 500)
    monkeypatch.setattr(rank_choice, "RANKS", (4, 12))
    shape = (14, 12, 10)
    index, exact, values = planted(shape, products=3, noise=0.3, density=0.7)
    cells = Cells(index, values, shape, Scale("real"))
    model, choice = with_rank(VariationalFactorization(), cells)
    assert (model.rank, model.products) == (0, choice.products[0])
    assert "products over all axes, with the smallest error on" in str(choice)
    mean, _ = fit_baseline("vmf", cells, seed=0).fitted.predict(index)
    assert np.sqrt(np.mean((mean - exact) ** 2)) < 0.25

    rng = np.random.default_rng(7)
    one, other = rng.normal(size=(14, 2)), rng.normal(size=(12, 2))
    of_pairs = np.einsum("er,er->e", one[index[:, 0]], other[index[:, 1]])
    values = of_pairs + 0.3 * rng.normal(size=len(index))
    model, choice = with_rank(
        VariationalFactorization(), Cells(index, values, shape, Scale("real"))
    )
    assert model.products == 0 or choice.products[1] < min(choice.errors.values())


def test_a_stored_fit_predicts_the_same():
    index, _, values = planted()
    fitted = VariationalFactorization(products=8).fit(
        Cells(index, values, (14, 12, 10), Scale("real"))
    )
    again = type(fitted).from_state(fitted.config, fitted.state())
    for found, expected in zip(again.predict(index), fitted.predict(index), strict=True):
        np.testing.assert_array_equal(found, expected)
    cells = Cells(index, values, (14, 12, 10), Scale("real"))
    np.testing.assert_array_equal(
        again.updated(cells, np.array([0])).predict(index)[0],
        fitted.updated(cells, np.array([0])).predict(index)[0],
    )


def test_sweeps_do_not_leave_products_where_there_is_noise_alone():
    rng = np.random.default_rng(0)
    shape = (12, 10, 8)
    index = np.array([*np.ndindex(*shape)])
    sums = MemberSums.by_axis(torch.from_numpy(index), shape)
    y = torch.from_numpy(rng.normal(size=len(index)))
    posterior = grow_products(Bias().by_sums(sums, y), sums, y, 4)
    for _ in range(60):
        sweep(posterior, sums, y)
    assert float(posterior.predict_mean(torch.from_numpy(index)).square().mean()) < 0.1
