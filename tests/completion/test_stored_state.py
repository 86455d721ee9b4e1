"""A saved model is loaded with all that it has read, and then gives the same answers."""

import numpy as np
import polars as pl
import polars.testing
import pytest
from tests.support.strangers import STRANGERS

from exchangeable.baselines import similarity
from exchangeable.completion.completer import Completer
from exchangeable.errors import InputError
from exchangeable.predictors.model import ModelPredictor
from exchangeable.prior import factor_fit
from exchangeable.runtime import checkpoint

SIZES = (30, 24, 4)
NAMES = ("user", "film", "season")


def table(order=2, seed=0, share=None):
    """Cells by their labels, real values and times."""
    rng = np.random.default_rng(seed)
    shape = SIZES[:order]
    index = np.argwhere(rng.random(shape) < (share or (0.5 if order == 2 else 0.3)))
    effects = [rng.normal(size=size) for size in shape]
    values = sum(effect[column] for effect, column in zip(effects, index.T, strict=True))
    values = values + effects[0][index[:, 0]] * effects[1][index[:, 1]]
    values += 0.2 * rng.normal(size=len(index))
    labels = {
        name: [f"{name[0]}{n:02}" for n in column]
        for name, column in zip(NAMES, index.T, strict=False)
    }
    return pl.DataFrame(labels), values, rng.random(len(index))


def features():
    """One feature of each user."""
    trait = np.random.default_rng(1).normal(size=SIZES[0])
    return {"user": pl.DataFrame({"user": [f"u{n:02}" for n in range(SIZES[0])], "trait": trait})}


def fit(kind, **options):
    cells, values, times = table(3 if kind == "three axes" else 2)
    if kind == "a few cells":
        cells, values, times = cells.head(2), values[:2], times[:2]
    if kind == "levels":
        values = np.clip(np.round(values + 3), 1, 5)
    given = {"times": times} if kind == "times" else {}
    given |= {"features": features()} if kind == "features" else {}
    return Completer("pretrained", **options).fit(cells, values, **given), cells


def queries(cells):
    """Known cells, and cells of members that the table does not have."""
    films = [pl.lit("unheard of").alias("film")]
    strangers = [cells.with_columns(pl.lit("new").alias("user")), cells.with_columns(films)]
    both = strangers[0].with_columns(films)
    return pl.concat([cells, *(each.head(5) for each in (*strangers, both))])


def assert_equal_answers(one, other, cells, atol=0.0):
    """Predictions, intervals and lists of both are equal."""
    asked = queries(cells)
    for question in ("predict", "predict_interval"):
        answers = [getattr(each, question)(asked) for each in (one, other)]
        np.testing.assert_allclose(*answers, rtol=0, atol=atol)
    if len(cells.columns) == 2:
        user, film = cells["user"][0], cells["film"][0]
        for query in ({}, {"ratings": {film: 1.0}}):
            member = "somebody" if query else user
            listed = [
                each.recommend(member, n=5, include_seen=True, **query) for each in (one, other)
            ]
            polars.testing.assert_frame_equal(*listed, rel_tol=0, abs_tol=atol)


@pytest.fixture
def never_read(monkeypatch):
    """Return a function that makes reading of all cells an error."""

    def forbid():
        def read(*_, **__):
            raise AssertionError("the cells were read again")

        monkeypatch.setattr(ModelPredictor, "of", read)

    return forbid


KINDS = ["levels", "real", "times", "features", "three axes", "a few cells"]


@STRANGERS
@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_model_answers_the_same_without_reading_the_cells_again(
    tmp_path, never_read, kind
):
    completer, cells = fit(kind)
    completer.save(tmp_path / "kept")
    never_read()
    again = Completer.load(tmp_path / "kept")
    assert_equal_answers(completer, again, cells)
    added = cells.head(3).with_columns(pl.lit("late").alias("user"))
    for each in (completer, again):
        each.update(added, [1.0, 2.0, 3.0][: len(added)])
    # Readouts of single groups and of all together differ by rounding.
    assert_equal_answers(completer, again, pl.concat([cells, added]), atol=1e-6)
    again.save(tmp_path / "again")
    last = Completer.load(tmp_path / "again")
    assert_equal_answers(again, last, pl.concat([cells, added]), atol=1e-6)
    assert last.fitted_.cells_since_refresh == len(added)


@STRANGERS
@pytest.mark.parametrize("kind", ["levels", "three axes"])
def test_weights_of_members_that_took_long_to_compare_are_kept(
    tmp_path, monkeypatch, never_read, kind
):
    sweeps = factor_fit.Sweeps(2, 1)
    warm = factor_fit.Schedule(sweeps, sweeps, warm=True)
    monkeypatch.setattr(factor_fit.Schedule, "of", lambda cells: warm)
    for limit in ("MAX_REPEATED_PRODUCTS", "MAX_REPEATED_PAIRS"):
        monkeypatch.setattr(similarity, limit, 0)
    completer, cells = fit(kind)
    assert completer.predictor_.prior.fitted.similarities[0].compared is not None
    completer.save(tmp_path / "kept")
    expected = completer.predict(cells)
    never_read()
    again = Completer.load(tmp_path / "kept")
    monkeypatch.setattr(
        similarity.DenseWeights, "compare", lambda *_, **__: pytest.fail("compared again")
    )
    np.testing.assert_allclose(expected, again.predict(cells), rtol=0, atol=1e-6)


@STRANGERS
def test_a_model_that_keeps_no_pools_is_loaded_too(tmp_path, monkeypatch, never_read):
    from exchangeable.predictors import model

    plan = model.plan_reading

    def without_pools(*args):
        chosen, sentence = plan(*args)
        return type(chosen)(chunk_cells=chosen.chunk_cells, keep_pools=False), sentence

    monkeypatch.setattr(model, "plan_reading", without_pools)
    completer, cells = fit("levels")
    assert not completer.predictor_.memory.pools
    completer.save(tmp_path / "kept")
    never_read()
    again = Completer.load(tmp_path / "kept")
    np.testing.assert_array_equal(completer.predict(cells), again.predict(cells))


def test_a_folder_of_an_earlier_version_reads_its_cells_again(tmp_path):
    completer, cells = fit("levels")
    completer.save(tmp_path / "kept")
    stored = checkpoint.load(tmp_path / "kept")
    del stored.config["answerer"]["state"], stored.tensors["state"]
    parts = {"card": "", "files": stored.files}
    checkpoint.save(tmp_path / "old", stored.config, stored.tensors, **parts)
    again = Completer.load(tmp_path / "old")
    np.testing.assert_allclose(again.predict(cells), completer.predict(cells), atol=1e-6)


def forge_version(stored):
    stored.config["answerer"]["state"]["version"] = -1


def test_a_state_of_another_version_is_not_used(tmp_path):
    completer, cells = fit("levels")
    completer.save(tmp_path / "kept")
    stored = checkpoint.load(tmp_path / "kept")
    forge_version(stored)
    checkpoint.save(tmp_path / "old", stored.config, stored.tensors, card="", files=stored.files)
    again = Completer.load(tmp_path / "old")
    np.testing.assert_allclose(again.predict(cells), completer.predict(cells), atol=1e-6)


def drop_tensors(stored):
    stored.tensors["state"].clear()


def cut_tensors(stored):
    state = stored.tensors["state"]
    state.update({name: each[:-1] for name, each in state.items() if each.ndim > 1})


def name_another_kind(stored):
    stored.config["answerer"]["state"]["parts"]["pairs"][0][1]["kind"] = "os.system"


def lose_a_field(stored):
    stored.config["answerer"]["state"]["parts"]["pairs"][0][1]["fields"].pop("mean")


@pytest.mark.parametrize("forge", [drop_tensors, cut_tensors, name_another_kind, lose_a_field])
def test_a_forged_state_is_refused_in_one_line(tmp_path, forge):
    completer, _ = fit("levels")
    completer.save(tmp_path / "kept")
    stored = checkpoint.load(tmp_path / "kept")
    forge(stored)
    checkpoint.save(tmp_path / "forged", stored.config, stored.tensors, card="", files=stored.files)
    with pytest.raises(InputError) as raised:
        Completer.load(tmp_path / "forged")
    assert "\n" not in str(raised.value)
