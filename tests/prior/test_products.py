"""Products over all axes are the fine factors where held-out cells gain by them, and only there."""

import numpy as np
import pytest
import torch

from exchangeable.arrays.array import ExchangeableArray
from exchangeable.arrays.support import Support
from exchangeable.completion.completer import Completer
from exchangeable.errors import InputWarning
from exchangeable.prior.prior import Prior
from exchangeable.values.codecs import ValueStats
from exchangeable.values.scale import Scale

SHAPE = (16, 14, 12)


def table(of_pairs=False, products=4, noise=0.2, density=0.7, shape=SHAPE, seed=0):
    """Cells of a sum of products over three axes, or over the first two of them."""
    rng = np.random.default_rng(seed)
    index = np.stack(np.nonzero(rng.random(shape) < density), axis=1)
    vectors = [rng.normal(size=(size, products)) for size in shape]
    own = [v[index[:, axis]] for axis, v in enumerate(vectors)][: 2 if of_pairs else 3]
    exact = np.prod(own, axis=0).sum(axis=1)
    return index, exact, exact + noise * rng.normal(size=len(index))


def prior_of(index, values, shape=SHAPE, widest=64):
    support = Support(torch.from_numpy(index), shape)
    cells = ExchangeableArray.unchecked(support, torch.from_numpy(values)[:, None])
    return Prior.of(cells, ValueStats.of(values, Scale("real", ())), 8, widest=widest)


def test_a_table_of_products_has_them_as_fine_factors_and_pairs_as_coarse_ones():
    index, exact, values = table()
    hidden = np.random.default_rng(1).random(len(index)) < 0.2
    prior = prior_of(index[~hidden], values[~hidden])
    models = [prior.fitted, *(each.fitted for each in prior.holdouts)]
    assert len({each.fine.layout for each in models}) == 1
    assert prior.fitted.fine.layout.products >= 4
    assert all(each.coarse.layout.rank and not each.coarse.layout.products for each in models)
    deviation = float(prior.stats.deviation)
    mean, variance = prior.predict(torch.from_numpy(index[hidden]))
    error = mean - prior.stats.standardise(torch.from_numpy(exact[hidden]))
    assert deviation * float(error.square().mean().sqrt()) < 0.15
    left = mean - prior.stats.standardise(torch.from_numpy(values[hidden]))
    assert float((left.square() / variance).mean()) == pytest.approx(1, abs=0.3)


@pytest.mark.parametrize("of", [{"of_pairs": True, "noise": 1.0}, {"noise": 30.0}])
def test_other_tables_have_factors_of_pairs(of):
    index, _, values = table(**of)
    assert prior_of(index, values).fitted.fine.layout.products == 0


def test_no_products_are_fitted_beyond_the_widest():
    index, _, values = table()
    assert prior_of(index, values, widest=3).fitted.fine.layout.products <= 3
    assert prior_of(index, values, widest=0).fitted.fine.layout.products == 0


def test_relabelling_members_relabels_the_prior():
    index, _, values = table(shape=(10, 9, 8), products=2, density=0.9)
    rng = np.random.default_rng(3)
    labels = [rng.permutation(size) for size in (10, 9, 8)]
    other = np.stack([label[column] for label, column in zip(labels, index.T, strict=True)], axis=1)
    shuffled = rng.permutation(len(index))
    one = prior_of(index, values, (10, 9, 8))
    two = prior_of(other[shuffled], values[shuffled], (10, 9, 8))
    assert one.fitted.fine.layout.products
    expected, found = one(torch.from_numpy(index)), two(torch.from_numpy(other))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def fitted_completer(**settings):
    index, _, values = table(**settings)
    completer = Completer("pretrained").fit(index, values)
    assert completer.predictor_.prior.fitted.fine.layout.products
    return completer, index, values


def test_a_saved_completer_predicts_the_same_and_is_updated_in_the_same_way(tmp_path):
    completer, index, values = fitted_completer()
    completer.save(tmp_path / "model")
    again = Completer.load(tmp_path / "model")
    np.testing.assert_allclose(again.predict(index), completer.predict(index), rtol=1e-6)
    for one in (completer, again):
        one.update(index[:3], values[:3] + 2)
    np.testing.assert_allclose(again.predict(index), completer.predict(index), rtol=1e-6)


def test_a_new_member_is_predicted_from_its_own_cells():
    index, exact, values = table()
    late = index[:, 1] == 5
    completer = Completer("pretrained").fit(index[~late], values[~late])
    assert completer.predictor_.prior.fitted.fine.layout.products
    shown = np.flatnonzero(late)[::2]
    asked = np.flatnonzero(late)[1::2]
    completer.update(index[shown], values[shown])
    error = completer.predict(index[asked]) - exact[asked]
    assert np.sqrt(np.mean(error**2)) < 0.35 * exact[asked].std()


def test_members_without_cells_and_unknown_ones_are_predicted():
    completer, _, values = fitted_completer()
    with pytest.warns(InputWarning, match="not in the table"):
        ends = completer.predict_interval([[99, 0, 0], [0, 99, 99], [99, 99, 99]])
    assert np.isfinite(ends).all()
    assert (ends[:, 1] - ends[:, 0] > 0.5 * values.std()).all()
