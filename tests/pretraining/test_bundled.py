"""The model in the package: any table at once, and the simpler ones where these do better."""

import copy
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from tests.support.strangers import STRANGERS

from exchangeable import Completer
from exchangeable.completion import select
from exchangeable.completion.select import Comparison, compare_models
from exchangeable.datasets import load
from exchangeable.errors import InputError
from exchangeable.metrics import coverage, rmse
from exchangeable.predictors.holdouts import find_held_out
from exchangeable.predictors.model import ModelPredictor
from exchangeable.pretraining import bundled
from exchangeable.training.config import TrainingConfig
from exchangeable.values.calibration import UNCALIBRATED

CLUB = load("film-club").table
FRAME = pl.DataFrame(CLUB.frame(CLUB.index, rating=CLUB.values))
LABELS, RATINGS = FRAME.select("member", "film"), FRAME["rating"].to_numpy()
VALUE = "value"
HIDE = np.random.default_rng(3).random(len(FRAME)) < 0.2
SHOWN, HIDDEN = LABELS.filter(~HIDE), LABELS.filter(HIDE)


@pytest.fixture(scope="module")
def completer():
    return Completer("pretrained").fit(SHOWN, RATINGS[~HIDE])


def small_table(order, cells=60, seed=0):
    generator = np.random.default_rng(seed)
    index = np.unique(generator.integers(0, 6, (cells, order)), axis=0)
    return index, generator.normal(size=len(index))


def test_the_weights_are_small_and_say_what_they_were_trained_on():
    assert 2 in bundled.bundled_orders()
    for order in bundled.bundled_orders():
        folder = bundled.WEIGHTS / f"order-{order}"
        assert sum(file.stat().st_size for file in folder.iterdir()) < 4e6
        assert not list(folder.glob("training*"))  # what going on with training would take
        trained = bundled.bundled_model(order)
        assert trained.facts["trained on"] == "synthetic tables alone"
        card = (folder / "README.md").read_text()
        assert "synthetic tables" in card


def test_a_table_that_it_never_saw_is_completed_better_than_by_factors():
    """On four draws of hidden cells together: of one alone the difference may be chance."""
    errors: dict[str, list[float]] = {"pretrained": [], "bias": [], "vmf": []}
    for seed in range(3, 7):
        hide = np.random.default_rng(seed).random(len(FRAME)) < 0.2
        shown, hidden = LABELS.filter(~hide), LABELS.filter(hide)
        for name, found in errors.items():
            completer = Completer(name).fit(shown, RATINGS[~hide])
            found.append(rmse(RATINGS[hide], completer.predict(hidden)))
            if name == "pretrained":
                held = coverage(RATINGS[hide], completer.predict_interval(hidden))
                assert 0.74 < held < 0.86
    mean = {name: np.mean(found) for name, found in errors.items()}
    assert mean["pretrained"] < 0.997 * min(mean["bias"], mean["vmf"])


@pytest.mark.parametrize("model", ["pretrained", "auto"])
def test_other_labels_in_another_order_give_the_same_answers(completer, model):
    generator = np.random.default_rng(1)
    rows = generator.permutation(len(SHOWN))
    renamed = {
        name: dict(zip(own, generator.permutation(len(own)).tolist(), strict=True))
        for name in LABELS.columns
        for own in [LABELS[name].unique(maintain_order=True).to_list()]
    }

    def other(frame):
        return frame.with_columns(
            pl.col(name).replace_strict(known, return_dtype=pl.Int64)
            for name, known in renamed.items()
        )

    again = Completer(model).fit(other(SHOWN)[rows], RATINGS[~HIDE][rows])
    assert again.model_name_ == "pretrained"
    np.testing.assert_allclose(
        again.predict(other(HIDDEN)), completer.predict(HIDDEN), rtol=0, atol=1e-3
    )


def test_the_same_table_gives_the_same_answers(completer):
    again = Completer("pretrained").fit(SHOWN, RATINGS[~HIDE])
    np.testing.assert_array_equal(again.predict(HIDDEN), completer.predict(HIDDEN))


def test_another_scale_gives_the_same_answers_on_that_scale(completer):
    again = Completer("pretrained").fit(SHOWN, RATINGS[~HIDE] / 2)
    assert len(again.levels_) == 5
    np.testing.assert_allclose(2 * again.predict(HIDDEN), completer.predict(HIDDEN), atol=1e-3)


def test_it_is_tuned_to_a_table_as_far_as_that_helps(completer):
    before = completer.predict(HIDDEN)
    tuned = copy.copy(completer)
    tuned.finetune(training=TrainingConfig(steps=30, evaluate_every=10, learning_rate=1e-3))
    assert "trained for 30 steps" in tuned.notes_[-1]
    assert 0 < np.abs(tuned.predict(HIDDEN) - before).max() < 1
    spoilt = copy.copy(completer)
    wild = TrainingConfig(steps=3, evaluate_every=1, learning_rate=10.0, warm_up=0.0, average=0.0)
    spoilt.finetune(training=wild)
    assert "best at 0" in spoilt.notes_[-1]
    np.testing.assert_array_equal(spoilt.predict(HIDDEN), before)
    ends = [each.predict_interval(HIDDEN) for each in (spoilt, completer)]
    np.testing.assert_array_equal(*ends)


@STRANGERS
@pytest.mark.parametrize("model", ["pretrained", "auto"])
def test_a_film_that_nobody_rated_is_known_by_its_features(model):
    """Year and genres of films with ratings of their own: those of others follow from them."""
    generator = np.random.default_rng(4)
    films = LABELS["film"].unique().sort()
    code = dict(zip(films, range(len(films)), strict=True))
    liked = generator.normal(size=len(films))
    row = LABELS["film"].replace_strict(code, return_dtype=pl.Int64).to_numpy()
    ratings = RATINGS - RATINGS.mean() + 2 * liked[row]
    unrated = films.gather(generator.permutation(len(films))[:15])
    shown = ~LABELS["film"].is_in(unrated.implode()).to_numpy()
    about = pl.DataFrame({"film": films, "liked": liked})
    fitted = Completer(model).fit(LABELS.filter(shown), ratings[shown], features={"film": about})
    assert fitted.model_name_ == "pretrained"
    assert any("features of film: liked: number" in note for note in fitted.notes_)
    member = LABELS["member"][0]
    found = fitted.predict([(member, film) for film in unrated])
    expected = 2 * liked[[code[film] for film in unrated]]
    assert np.corrcoef(found, expected)[0, 1] > 0.95
    unknown = fitted.predict([(member, "unheard of")])
    assert np.abs(found - unknown).min() > 1e-3
    plain = Completer(model).fit(LABELS.filter(shown), ratings[shown])
    hidden, truth = LABELS.filter(~shown), ratings[~shown]
    assert rmse(truth, fitted.predict(hidden)) < 0.8 * rmse(truth, plain.predict(hidden))


# Who answers where nobody was chosen -----------------------------------------------------


def test_by_default_it_answers_and_tells_how_well_on_cells_that_were_hidden(completer):
    default = Completer().fit(SHOWN, RATINGS[~HIDE])
    assert default.model_name_ == "pretrained"
    note = next(note for note in default.notes_ if "hidden" in note)
    assert note.startswith("model pretrained: on ")
    assert "bias" in note
    assert "vmf" in note
    np.testing.assert_array_equal(default.predict(HIDDEN), completer.predict(HIDDEN))


@pytest.fixture
def spoilt(monkeypatch):
    """A network with weights that are mostly noise takes the place of the bundled one."""
    network = bundled.bundled_model(2)
    with torch.no_grad():
        for weight in network.model.parameters():
            weight.add_(0.5 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(0)))
    monkeypatch.setattr(bundled, "bundled_model", lambda order: network)


def test_where_a_simpler_model_does_better_it_answers_and_that_is_said(spoilt, monkeypatch):
    monkeypatch.setattr(select, "fit_correction", lambda *_: (None, torch.empty(0)))
    chosen = Completer().fit(SHOWN, RATINGS[~HIDE])
    assert chosen.model_name_ in ("bias", "vmf")
    assert any("does better here than the pretrained one" in note for note in chosen.notes_)
    plain = Completer(chosen.model_name_).fit(SHOWN, RATINGS[~HIDE])
    np.testing.assert_array_equal(chosen.predict(HIDDEN), plain.predict(HIDDEN))


def test_the_correction_makes_up_for_a_network_of_noise(spoilt, monkeypatch):
    """Held-out cells tell that its means are wrong, and the estimates beside them are right."""
    corrected = Completer("pretrained").fit(SHOWN, RATINGS[~HIDE])
    plain = Completer("bias").fit(SHOWN, RATINGS[~HIDE])
    least = rmse(RATINGS[HIDE], plain.predict(HIDDEN))
    assert rmse(RATINGS[HIDE], corrected.predict(HIDDEN)) < 1.03 * least
    monkeypatch.setattr(select, "fit_correction", lambda *_: (None, torch.empty(0)))
    wrong = Completer("pretrained").fit(SHOWN, RATINGS[~HIDE])
    assert rmse(RATINGS[HIDE], wrong.predict(HIDDEN)) > 1.1 * least


def test_the_estimate_is_that_of_cells_that_were_not_seen(completer):
    comparison = compare_models(completer.predictor_, completer.cells_, ("bias", "vmf"))
    assert list(comparison.rmse) == ["pretrained", "bias", "vmf"]
    assert 500 <= comparison.hidden < 0.35 * len(completer.cells_)
    real = rmse(RATINGS[HIDE], completer.predict(HIDDEN))
    assert comparison.rmse["pretrained"] == pytest.approx(real, rel=0.1)
    assert 0.7 < comparison.coverage < 0.9


def test_no_model_has_read_the_cells_that_it_is_compared_on(completer):
    """Cells with other values are predicted as before, by all that are fitted without them."""
    cells = completer.cells_
    held_out = find_held_out(completer.predictor_, cells)[0]
    positions = held_out.folds[0]
    assert held_out.mask[positions].all()
    holdout = completer.predictor_.prior.holdouts[0]
    kept = np.setdiff1d(np.arange(len(cells)), np.flatnonzero(held_out.mask))
    np.testing.assert_array_equal(holdout.fitted.index.numpy(), cells.index[kept])
    trust = completer.predictor_.prior.without(holdout, 0).trust
    others = torch.cat([each.fold for each in completer.predictor_.prior.holdouts]) != 0
    assert others.any()
    assert not torch.equal(trust.weights, completer.predictor_.prior.trust.weights)
    seen = sorted(np.concatenate(held_out.folds).tolist())
    assert seen == sorted(holdout.cells.tolist())


def test_a_tie_goes_to_the_pretrained_model():
    values = np.random.default_rng(0).normal(size=200)

    def best(**shares):
        means = {name: share * values for name, share in shares.items()}
        ranks = {name: np.linspace(0, 1, 200) for name in shares}
        return Comparison.of(values, means, ranks).best

    assert best(pretrained=0.5, bias=0.5, vmf=0.1) == "pretrained"
    assert best(pretrained=0.4, bias=0.5, vmf=0.1) == "bias"


@pytest.mark.parametrize("values", [[1.0, 2.0, 3.0], [2.0, 2.0, 2.0]])
def test_few_cells_or_equal_ones_are_answered_without_a_trial(values):
    cells = [("a", "x"), ("a", "y"), ("b", "x")]
    few = Completer().fit(cells, values)
    assert few.model_name_ == "pretrained"
    assert any("too few, or too much alike" in note for note in few.notes_)
    answer = few.predict([("b", "y")])
    assert min(values) - 1 <= answer[0] <= max(values) + 1


@pytest.mark.parametrize("order", [1, 4])
def test_tables_of_other_orders_are_answered_by_factors_and_that_is_said(order):
    index, values = small_table(order)
    found = Completer().fit(index, values)
    assert found.model_name_ == "vmf"
    axes = "1 axis" if order == 1 else f"{order} axes"
    assert any(f"none is pretrained for tables of {axes}" in note for note in found.notes_)
    with pytest.raises(InputError, match=f"axes, but this one has {order}"):
        Completer("pretrained").fit(index, values)


@pytest.mark.parametrize("noise", [1e-5, 1e-3, 0.3])
def test_a_tenth_is_hidden_however_little_biases_leave(noise):
    generator = np.random.default_rng(0)
    index = np.argwhere(generator.random((50, 20)) < 0.8)
    row, column = generator.normal(size=50), generator.normal(size=20)
    values = row[index[:, 0]] + column[index[:, 1]] + noise * generator.normal(size=len(index))
    shares = [
        holdout.mask.double().mean()
        for holdout in Completer("pretrained").fit(index, values).predictor_.prior.holdouts
    ]
    assert min(shares) > 0.05
    assert max(shares) < 0.15
    if noise < 0.1:  # where there is next to nothing but biases, they are as good as it gets
        others = np.argwhere(np.ones((50, 20)))
        truth = row[others[:, 0]] + column[others[:, 1]]
        # Beyond the values that were seen the pretrained model says nothing.
        within = (truth > values.min()) & (truth < values.max())
        others, truth = others[within], truth[within]
        errors = [
            rmse(truth, Completer(model).fit(index, values).predict(others))
            for model in ("auto", "bias")
        ]
        assert errors[0] < 1.1 * errors[1]


SQUARE = np.argwhere(np.ones((10, 10)))


@pytest.mark.parametrize("values", [1.0 + SQUARE.sum(axis=1) % 2, 1e-180 * np.arange(100.0)])
def test_cells_that_cannot_be_told_apart_or_measured_are_answered_all_the_same(values):
    index = SQUARE
    found = Completer().fit(index, values)
    assert np.isfinite(found.predict(index)).all()


def test_the_card_of_a_model_that_was_tuned_says_to_what(completer):
    tuned = copy.copy(completer)
    quick = TrainingConfig(steps=1)
    twice = tuned.finetune(training=quick).finetune(training=quick).predictor_.trained
    assert twice.facts["trained on"].count("fingerprint") == 1
    assert twice.facts["trained on"].startswith("synthetic tables, then the table")
    elsewhere = Completer("pretrained").fit(SHOWN[:500], RATINGS[~HIDE][:500])
    twin = replace(elsewhere.predictor_, trained=twice)
    elsewhere.fitted_ = replace(elsewhere.fitted_, predictor=twin)
    third = elsewhere.finetune(training=quick).predictor_.trained
    assert third.facts["trained on"].startswith("synthetic tables, others, then the table")


def test_a_newcomer_gets_about_what_reading_everything_would_give(completer):
    own = FRAME.filter((pl.col("member") == "Ada Abt") & ~pl.Series(HIDE))
    others = SHOWN.filter(pl.col("member") != "Ada Abt")
    kept = RATINGS[~HIDE][(SHOWN["member"] != "Ada Abt").to_numpy()]
    without = Completer("pretrained").fit(others, kept)
    ratings = dict(zip(own["film"], own["rating"], strict=True))
    quick = without.recommend("Ada Abt", n=100, ratings=ratings)
    asked = pl.DataFrame({"member": ["Ada Abt"] * len(quick), "film": quick["film"]})
    exact = completer.predict(asked)
    assert np.abs(quick[VALUE].to_numpy() - exact).mean() < 0.1
    assert np.corrcoef(quick[VALUE].to_numpy(), exact)[0, 1] > 0.97


def test_saved_and_loaded_it_answers_the_same(completer, tmp_path):
    completer.save(tmp_path / "club")
    again = Completer.load(tmp_path / "club")
    assert isinstance(again.predictor_, ModelPredictor)
    np.testing.assert_array_equal(again.predict(HIDDEN), completer.predict(HIDDEN))
    assert again.predictor_.calibration == completer.predictor_.calibration != UNCALIBRATED
    np.testing.assert_array_equal(
        again.predict_interval(HIDDEN), completer.predict_interval(HIDDEN)
    )
    assert replace(again.predictor_.trained.training) == completer.predictor_.trained.training


def test_the_weights_are_read_once_and_what_a_caller_does_to_them_reaches_no_other(monkeypatch):
    first = bundled.bundled_model(2)
    with torch.no_grad():
        for weight in first.model.parameters():
            weight.zero_()
    first.facts["trained on"] = "something else"
    monkeypatch.setattr(bundled.TrainedModel, "load", None)  # it would fail if it were called
    second = bundled.bundled_model(2)
    assert any(bool(weight.any()) for weight in second.model.parameters())
    assert second.facts["trained on"] == "synthetic tables alone"
    assert not second.model.training


def test_pools_of_a_few_cells_tell_nothing_of_those_that_models_are_compared_on(monkeypatch):
    """Of noise no model predicts more than the mean, whatever the size of the table."""
    monkeypatch.setattr(select, "MAX_CELLS_ON_LEVELS", 1000)
    generator = np.random.default_rng(0)
    index = np.unique(generator.integers(0, 1500, (4000, 2)), axis=0)
    values = generator.integers(1, 6, len(index)).astype(float)
    completer = Completer("pretrained").fit(index, values)
    comparison = compare_models(completer.predictor_, completer.cells_)
    assert comparison.rmse["pretrained"] > 0.98 * values.std()
