"""The imputer fills in matrices, in scikit-learn's pipelines too."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline

from exchangeable import Imputer
from exchangeable.errors import InputError


def matrix(rows=120, seed=0):
    """Rows of five quantities that follow two others, in different units; and the gaps."""
    generator = np.random.default_rng(seed)
    hidden = generator.standard_normal((rows, 2)) @ generator.standard_normal((2, 5))
    whole = (hidden + 0.1 * generator.standard_normal((rows, 5))) * [1, 100, 0.01, 10, 1]
    whole += [0, 500, 0, -30, 2]
    return whole, np.where(generator.random(whole.shape) < 0.15, np.nan, whole)


def errors(filled, whole, gaps):
    away = (filled - whole) / whole.std(axis=0)
    return np.sqrt((away[np.isnan(gaps)] ** 2).mean())


def test_missing_values_are_filled_in_and_others_stay():
    whole, gaps = matrix()
    filled = Imputer().fit_transform(gaps)
    known = ~np.isnan(gaps)
    np.testing.assert_array_equal(filled[known], whole[known])
    assert errors(filled, whole, gaps) < 0.35


@pytest.mark.parametrize("model", ["auto", "pretrained"])
def test_further_rows_are_filled_in_one_by_one(model):
    whole, gaps = matrix()
    imputer = Imputer(model).fit(gaps[:80])
    filled = imputer.transform(gaps[80:])
    assert errors(filled, whole[80:], gaps[80:]) < 0.5
    # A row does not depend on others that come with it.
    alone = np.concatenate([imputer.transform(gaps[k : k + 1]) for k in range(80, 120)])
    np.testing.assert_allclose(alone, filled, rtol=1e-5, atol=1e-6)
    empty = imputer.transform(np.full((1, 5), np.nan))
    assert (np.abs(empty[0] - np.nanmean(gaps[:80], axis=0)) < whole.std(axis=0)).all()


@pytest.mark.parametrize("model", ["gaussian", "pretrained"])
def test_a_column_without_values_is_filled_with_something(model):
    _, gaps = matrix()
    gaps[:, 1] = np.nan
    imputer = Imputer(model).fit(gaps[:80])
    assert np.isfinite(imputer.transform(gaps[80:])).all()
    assert np.isfinite(Imputer(model).fit_transform(gaps)).all()


def test_it_is_a_step_of_a_pipeline_and_can_be_cloned():
    whole, gaps = matrix()
    target = whole @ [1, 0.01, 5, 0.1, 1]
    pipeline = make_pipeline(Imputer("gaussian"), LinearRegression())
    pipeline.fit(gaps[:80], target[:80])
    assert pipeline.score(gaps[80:], target[80:]) > 0.8
    assert clone(Imputer("bias", seed=3)).get_params()["seed"] == 3
    assert repr(Imputer("bias")) == "Imputer(model='bias')"


def test_frames_come_back_as_frames():
    whole, gaps = matrix()
    frame = pd.DataFrame(gaps, columns=list("abcde")).astype({"a": "float64"})
    filled = Imputer("gaussian").fit_transform(frame)
    assert isinstance(filled, pd.DataFrame)
    assert errors(filled.to_numpy(), whole, gaps) < 0.35
    imputer = Imputer("gaussian").fit(frame)
    assert imputer.get_feature_names_out().tolist() == list("abcde")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (np.full((3, 2), np.nan), "all are missing"),
        (np.array([[1.0, np.inf], [2.0, 3.0]]), "some are infinite"),
        (np.arange(3.0), "rows and columns is needed, but this has shape"),
        (pd.DataFrame({"a": ["x", "y"]}), "but 'a' holds others"),
    ],
)
def test_wrong_matrices_are_one_line(wrong, message):
    with pytest.raises(InputError, match=message):
        Imputer("bias").fit(wrong)
    with pytest.raises(InputError, match="X has 3 features, but Imputer is expecting 5"):
        Imputer("bias").fit(matrix()[1]).transform(np.zeros((2, 3)))


def test_a_fitted_row_without_values_keeps_its_number():
    generator = np.random.default_rng(0)
    fitted = generator.standard_normal((40, 1)) + 0.1 * generator.standard_normal((40, 3))
    fitted[39] = 100.0
    new = np.array([[0.5, np.nan, np.nan]])
    whole = Imputer("gaussian", units="plain").fit(np.delete(fitted, 3, axis=0)).transform(new)
    fitted[3] = np.nan
    np.testing.assert_allclose(
        Imputer("gaussian", units="plain").fit(fitted).transform(new), whole, rtol=1e-6
    )


def test_other_columns_than_those_fitted_are_refused():
    frame = pd.DataFrame(matrix()[1], columns=list("abcde"))
    imputer = Imputer("bias").fit(frame)
    with pytest.raises(InputError, match="those that were fitted, a, b, c, d, e, but are e, d"):
        imputer.transform(frame[list("edcba")])


def test_scikit_learn_may_ask_for_frames():
    frame = pd.DataFrame(matrix()[1], columns=list("abcde"), index=range(7, 127))
    both = ColumnTransformer([("ours", Imputer("gaussian"), ["a", "b", "c"])])
    found = both.set_output(transform="pandas").fit_transform(frame)
    assert list(found.columns) == ["ours__a", "ours__b", "ours__c"]
    assert found.index.tolist() == list(range(7, 127))
    array = Imputer("bias").set_output(transform="polars").fit_transform(frame.to_numpy())
    assert array.columns == ["x0", "x1", "x2", "x3", "x4"]
    with pytest.raises(InputError, match="default, pandas or polars, but is 'excel'"):
        Imputer().set_output(transform="excel")


def test_columns_of_two_values_stay_between_them():
    generator = np.random.default_rng(0)
    level = generator.standard_normal((80, 1))
    whole = np.concatenate([level + 0.2 * generator.standard_normal((80, 3)), level > 0], axis=1)
    gaps = np.where(generator.random(whole.shape) < 0.2, np.nan, whole)
    imputer = Imputer("gaussian")
    filled = imputer.fit_transform(gaps)[:, 3]
    new = imputer.transform(np.array([[5.0, 5.0, 5.0, np.nan]]))[0, 3]
    assert filled.min() >= 0
    assert filled.max() <= 1
    assert new == 1


def test_fitting_again_forgets_the_names_of_before():
    _, gaps = matrix()
    imputer = Imputer("bias").fit(pd.DataFrame(gaps, columns=list("abcde"))).fit(gaps)
    assert imputer.get_feature_names_out().tolist() == ["x0", "x1", "x2", "x3", "x4"]
    with pytest.raises(InputError, match="some are infinite"):
        imputer.fit(pd.DataFrame({"a": [1.0, np.inf], "b": [2.0, 3.0]}))
