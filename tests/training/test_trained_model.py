"""A trained model comes back as it was saved, and a stopped run goes on where it was."""

import os
import re
import signal
from dataclasses import asdict, replace

import pytest
from tests.support.training import (
    CODEC,
    QUICK,
    SMALL,
    STARS,
    execution,
    fresh,
    learn,
    same,
    task,
    trained_in,
)

from exchangeable.errors import InputError
from exchangeable.models.configs import (
    FactorizedConfig,
    SelfSupervisedConfig,
    build,
)
from exchangeable.runtime import checkpoint
from exchangeable.runtime.progress import Progress
from exchangeable.training.recipes import RECIPES, find_recipe
from exchangeable.training.train_model import train_model
from exchangeable.training.trained_model import TrainedModel
from exchangeable.values.codecs import codec_for


def test_a_state_goes_through_a_checkpoint_unchanged(tmp_path):
    run = fresh(replace(QUICK, steps=5))
    learn(run, task())
    tensors, numbers = run.state()
    checkpoint.save(tmp_path / "run", numbers, {"model": tensors}, card="")
    stored = checkpoint.load(tmp_path / "run")
    again = fresh()
    again.restore(stored.tensors["model"], stored.config)
    assert same(run.state()[0], again.state()[0])
    assert again.draws.random() == run.draws.random()


def stop_after(monkeypatch, steps):
    """Send ourselves a signal in the midst of a step, as a batch system does."""
    from exchangeable.training import loop

    real, done = loop.take_step, []

    def step(*args):
        done.append(1)
        if len(done) == steps:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(*args)

    monkeypatch.setattr(loop, "take_step", step)


def test_a_signal_saves_what_there_is_and_resuming_gives_what_would_have_come(
    tmp_path, monkeypatch
):
    whole = trained_in(tmp_path / "whole")
    with monkeypatch.context() as patched:
        stop_after(patched, 5)
        # Not an ordinary error, after which others would go on.
        with pytest.raises(KeyboardInterrupt, match=r"stopped after step 5 of 12.*saved in"):
            trained_in(tmp_path)
    assert "training" in checkpoint.load(tmp_path / "model").tensors
    usable = TrainedModel.load(tmp_path / "model")  # a run that is not finished is a model too
    assert usable.facts["steps"] == 5
    done = trained_in(tmp_path, resume=True)
    assert same(done.model.state_dict(), whole.model.state_dict())
    assert "training" not in checkpoint.load(tmp_path / "model").tensors


@pytest.mark.parametrize("finished", [True, False])
def test_a_folder_with_the_removed_setting_hidden_share_loads_and_resumes(tmp_path, finished):
    config = SelfSupervisedConfig(5, 5, width=8, depth=3)
    made = {"name": "ours", "facts": {}, "execution": execution(tmp_path)}
    trained = train_model(config, CODEC, task(), QUICK, **made)

    def save(run):
        if run.step == 5:
            trained.save(tmp_path / "model", run=run)

    if not finished:
        learn(fresh(model=config), task(), save, save_every=-1)
    stored = checkpoint.load(tmp_path / "model")
    stored.config["model"]["hidden_share"] = 0.15
    checkpoint.save(tmp_path / "model", stored.config, stored.tensors, card="", facts=stored.facts)

    assert TrainedModel.load(tmp_path / "model").config == config
    again = train_model(config, CODEC, task(), QUICK, resume=True, **made)
    assert again.config == config
    assert same(trained.model.state_dict(), again.model.state_dict())


def test_resuming_says_what_it_finds(tmp_path):
    said = []
    settings = {"progress": Progress(note=said.append), "save_every": -1}

    def go(config=QUICK, facts="x", data=None):
        return train_model(
            SMALL,
            CODEC,
            data or task(),
            config,
            name="test",
            facts={"data": facts},
            execution=execution(tmp_path, **settings),
            resume=True,
        )

    go()
    assert "no run in" in said[0]
    go()
    assert "finished already" in said[-1]
    with pytest.raises(InputError, match="its training differs"):
        go(replace(QUICK, steps=13))
    with pytest.raises(InputError, match="other cells"):
        go(facts="y")
    with pytest.raises(InputError, match="other validation cells"):
        go(data=task(validation=0.4))
    settings["precision"] = "bfloat16"
    with pytest.raises(InputError, match="another precision"):
        go()


@pytest.mark.parametrize(
    "config",
    [
        SMALL,
        replace(SMALL, features=(3, 0), activation="gated"),
        FactorizedConfig(5, 5, encoder=(8, 4), maps=True, decoder=(8,)),
        SelfSupervisedConfig(5, 5, width=8, depth=3, literal=True),
    ],
)
def test_a_trained_model_comes_back_as_it_was_saved(tmp_path, config):
    model = build(config, seed=3).eval()
    kept = TrainedModel(config, CODEC, model, QUICK, "mine", {"data": "x"})
    kept.save(tmp_path / "kept")
    again = TrainedModel.load(tmp_path / "kept")
    assert again.config == config
    assert again.codec == CODEC
    assert again.training == QUICK
    assert again.name == "mine"
    assert again.facts["data"] == "x"
    assert same(model.state_dict(), again.model.state_dict())
    assert not again.model.training


def test_a_forged_configuration_is_refused_in_one_line(tmp_path):
    kept = TrainedModel(SMALL, CODEC, build(SMALL), QUICK, "mine", {})
    described, tensors = kept.to_parts()
    forgeries = [
        {**described, "architecture": "pickle"},
        {**described, "model": {**asdict(SMALL), "width": 16}},
        {**described, "model": {**asdict(SMALL), "surprise": 1}},
        {**described, "training": {**asdict(QUICK), "surprise": 1}},
        {**described, "codec": {"encoding": "one-hot"}},
        {name: part for name, part in described.items() if name != "model"},
    ]
    for number, forged in enumerate(forgeries):
        place = tmp_path / str(number)
        checkpoint.save(place, {"kind": "model", **forged}, {"model": tensors}, card="")
        with pytest.raises(InputError) as raised:
            TrainedModel.load(place)
        assert "\n" not in str(raised.value)


def test_recipes_have_names():
    papers = [
        f"{model}{form}"
        for model in ("self-supervised", "factorized")
        for form in ("", "-text", "-released")
    ]
    assert set(RECIPES) == {"residual", *papers}
    with pytest.raises(InputError, match="residual, self-supervised, self-supervised-text"):
        find_recipe("deep")


@pytest.mark.parametrize("encoding", ["one-hot", "scale-free"])
@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("name", RECIPES)
def test_recipes_make_models_of_any_order_and_encoding(name, order, encoding):
    codec = codec_for(STARS, encoding)
    config = find_recipe(name).model(codec, order, ())
    assert (config.in_channels, config.out_channels) == (codec.in_channels, codec.out_channels)
    assert config.order == order
    literal = name.endswith(("-text", "-released"))
    assert getattr(config, "literal", False) == literal


def test_forms_of_the_paper_are_those_of_its_configurations():
    """Nine layers of 256; an encoder 220-220-100; as released with skips, or with maps."""
    codec = codec_for(STARS, "one-hot")
    made = {name: find_recipe(name).model(codec, 2, ()) for name in RECIPES}
    assert made["self-supervised-text"] == SelfSupervisedConfig.paper(5)
    assert made["self-supervised-released"] == SelfSupervisedConfig.released(5)
    assert made["factorized-text"] == FactorizedConfig.paper(5)
    assert made["factorized-released"] == FactorizedConfig.released(5)
    assert find_recipe("factorized-text").training.hide == "nothing"
    assert find_recipe("self-supervised-text").training.hide_most == 0.15


def test_a_run_of_a_recipe_that_was_renamed_is_resumed(tmp_path):
    def go(name, **settings):
        return train_model(
            SMALL,
            CODEC,
            task(),
            QUICK,
            name=name,
            facts={"data": "x"},
            execution=execution(tmp_path),
            **settings,
        )

    before = go("self-supervised")
    again = go("residual", resume=True)
    assert again.name == before.name == "self-supervised"
    assert same(before.model.state_dict(), again.model.state_dict())
    with pytest.raises(InputError, match="its name differs"):
        go("factorized", resume=True)


def test_progress_is_shown_as_it_goes():
    shown, run = [], fresh()
    learn(run, task(), progress=Progress(show=lambda share, text: shown.append((share, text))))
    assert [share for share, _ in shown] == [step / 12 for step in range(1, 13)]
    line = (
        r"step (\d+) of 12, loss [\d.]+, validation RMSE ([\d.]+), "
        r"([\d,]+) cells/s, (\d+:\d\d) left"
    )
    found = [re.fullmatch(line, text).groups() for _, text in shown]
    assert [int(step) for step, *_ in found] == list(range(1, 13))
    validations = [float(validation) for _, validation, *_ in found]
    assert validations[2::3] == [round(seen["validation_rmse"], 4) for seen in run.history[1:]]
    assert run.best_rmse == min(seen["validation_rmse"] for seen in run.history)
    assert all(int(rate.replace(",", "")) > 0 for *_, rate, _ in found)
    assert found[-1][-1] == "0:00"


def test_that_a_prior_is_being_fitted_is_told_before_the_first_step():
    shown = []
    run = fresh(replace(QUICK, steps=2), replace(SMALL, prior=2))
    learn(run, task(), progress=Progress(show=lambda share, text: shown.append((share, text))))
    assert [share for share, _ in shown] == [0, 0.5, 1]
    assert shown[0][1] == "fitting the factorization that cells start from"
    assert shown[1][1].startswith("step 1 of 2, loss ")
