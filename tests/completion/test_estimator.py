"""The contract of scikit-learn's estimators holds, and plain use does not import scikit-learn."""

import subprocess
import sys
import traceback

import pytest
from sklearn import config_context
from sklearn.base import BaseEstimator, clone, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import estimator_checks_generator
from tests.support.film_club import LABELS, RATINGS, SHORT
from tests.support.strangers import STRANGERS

from exchangeable.completion.completer import Completer


def test_before_fit_every_method_says_so(tmp_path):
    for call in (
        lambda c: c.predict([("a", "b")]),
        lambda c: c.predict_interval([("a", "b")]),
        lambda c: c.predict_proba([("a", "b")]),
        lambda c: c.recommend("a"),
        lambda c: c.update([("a", "b")], [1]),
        lambda c: c.factors(),
        lambda c: c.finetune(),
        lambda c: c.save(tmp_path / "x"),
    ):
        with pytest.raises(NotFittedError):
            call(Completer())
    assert not list(tmp_path.iterdir())


@STRANGERS
def test_it_is_cloned_scored_and_searched_as_scikit_learn_does():
    pandas = LABELS.to_pandas()
    completer = Completer("bias", seed=3)
    assert clone(completer).get_params() == completer.get_params()
    assert completer.set_params(model="mean").model == "mean"
    scores = cross_val_score(
        Completer("bias"), pandas, RATINGS, cv=3, scoring="neg_root_mean_squared_error"
    )
    assert scores.shape == (3,)
    assert (scores < 0).all()
    search = GridSearchCV(Completer(), {"model": ["mean", "bias"]}, cv=3).fit(pandas, RATINGS)
    assert search.best_params_ == {"model": "bias"}


@pytest.mark.parametrize(
    "params",
    [{}, {"model": "bias"}, {"model": "vmf", "seed": 3, "memory": "4GB"}, {"training": SHORT}],
)
def test_parameters_and_representations_are_those_of_scikit_learn_s_own_base(params):
    twin = type("Completer", (Completer, BaseEstimator), {"__init__": Completer.__init__})
    completer, expected = Completer(**params), twin(**params)
    assert list(completer.get_params()) == list(BaseEstimator.get_params(expected))
    if "training" not in params:  # scikit-learn shortens what is longer than a line
        assert repr(completer) == BaseEstimator.__repr__(expected)
    with pytest.raises(ValueError, match="Invalid parameter 'studio' for estimator Completer"):
        completer.set_params(studio=1)
    assert "<style>" in completer._repr_html_()
    assert completer._repr_mimebundle_()["text/plain"] == repr(completer)
    assert is_regressor(completer)
    assert get_tags(completer).input_tags.string


def test_scikit_learn_routes_features_to_fit():
    with config_context(enable_metadata_routing=True):
        completer = Completer("bias").set_fit_request(features=True)
        assert completer.get_metadata_routing().fit.requests["features"] is True
        assert clone(completer).get_metadata_routing().fit.requests["features"] is True


def test_real_numbers_have_no_probabilities():
    completer = Completer("bias").fit([("a", "x"), ("a", "y"), ("b", "x")], [0.12, 0.345, 6.7])
    assert not hasattr(completer, "predict_proba")
    assert "predict_proba" not in dir(completer)
    assert hasattr(Completer(), "predict_proba")
    needed = "^predict_proba needs values on a scale with levels, but these are real numbers; "
    with pytest.raises(AttributeError, match=needed) as caught:
        completer.predict_proba([("a", "x")])
    assert "\n" not in "".join(traceback.format_exception_only(caught.value)).strip()
    assert "Did you mean" not in "".join(traceback.format_exception_only(caught.value))
    assert getattr(completer, "predict_proba", None) is None
    with pytest.raises(AttributeError, match=r"'Completer' has no attribute 'studio'$"):
        completer.studio  # noqa: B018


def test_plain_use_imports_neither_scikit_learn_nor_other_extras():
    script = """
import sys
import exchangeable as ex
cells = [("ann", "Heat"), ("ann", "Alien"), ("bob", "Heat"), ("bob", "Big"), ("cleo", "Alien")]
completer = ex.Completer().fit(cells, [5, 4, 2, 1, 5])
completer.predict([("bob", "Alien")])
completer.predict_interval([("bob", "Alien")])
completer.predict_proba([("bob", "Alien")])
completer.recommend("cleo", n=2)
completer.recommend("dora", n=2, ratings={"Big": 5})
completer.update([("dora", "Big")], [5])
repr(completer)
heavy = {"sklearn", "matplotlib", "h5py", "pooch", "rich", "typer", "pandas", "pyarrow"}
print(sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


DECLARED = {
    "check_regressors_no_decision_function": "values on a scale with levels have probabilities",
    "check_array_api_input": "labels are not numbers, so other array libraries have no say",
}


@pytest.mark.filterwarnings("ignore:Estimator Completer does not inherit")  # nor need it
def test_every_check_of_scikit_learn_that_applies_passes():
    # Its tables repeat cells, which a Completer is to be told what to do with.
    ran = 0
    for estimator, check in estimator_checks_generator(Completer("bias", duplicates="mean")):
        if check.func.__name__ in DECLARED:
            continue
        check(estimator)
        ran += 1
    assert ran > 45
