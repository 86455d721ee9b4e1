"""The commands train and finetune, and the use of trained models by the others."""

import json

import numpy as np
import polars as pl
from tests.support.commands import done, run, train_small

from exchangeable.datasets import load


def test_a_trained_model_is_used_by_the_other_commands(here):
    result = train_small()
    assert result.exit_code == 0, result.output
    assert "a step takes about" in result.output
    assert "saved in model" in result.output
    assert (here / "model" / "README.md").read_text().startswith("# residual")
    done("complete", "ratings.csv", "--model", "model")
    done("factorize", "film-club", "--model", "model")
    done("evaluate", "film-club", "--models", "model,mean", "--out", "e.json")
    done("finetune", "model", "film-club", "--out", "finer", "--steps", "4")
    again = json.loads(train_small("--resume", "--json").stdout)
    assert again["steps"] == 6


def test_what_can_be_finetuned_is_told(here):
    for model in ("bias", "residual", "nowhere"):
        told = run("finetune", model, "ratings.csv", "--out", "finer").stderr
        needed = "must be pretrained, or the folder of a trained model, but is"
        assert told == f"error: the model to finetune {needed} {model!r}\n"


def test_orders_that_cannot_be_drawn_are_told(here):
    for order, cells, highest in ((6, None, 5), (7, 12_000, 5), (40, 10, 22)):
        given = [] if cells is None else ["--cells", cells]
        told = run("pretrain", "--out", "model", "--order", order, *given)
        assert told.exit_code == 2
        assert f"with 1 to {highest} axes, but the order is {order}\n" in told.stderr
        assert not (here / "model").exists()


def test_resuming_from_nothing_starts_and_a_started_one_is_not_replaced(here):
    assert "this is its start" in train_small("--resume").output
    refused = train_small()
    assert refused.exit_code == 2
    assert "--resume" in refused.output
    assert train_small("--force").exit_code == 0


def test_features_of_members_reach_the_training(here):
    films = load("film-club").table.vocabularies[1].labels
    pl.DataFrame({"film": films, "length": np.linspace(80, 200, len(films))}).write_csv("f.csv")
    features = ("--features", "film=f.csv")
    facts = json.loads(train_small(*features, "--json").stdout)
    assert facts["features"] == [[], ["length"]]
    read = ("complete", "film-club", "--all", "--force", "--model")
    done(*read, "model", *features, "--report", "r.html")
    done(*read, "model")  # its prior reads features, or none
    steps = ("--steps", "4", "--evaluate-every", "2", "--recipe", "factorized")
    done("train", "film-club", "--out", "layers", *steps, *features)
    config = json.loads((here / "layers" / "config.json").read_text())
    assert config["model"]["features"] == [0, 1]
    done(*read, "layers", *features)
    assert run(*read, "layers").exit_code == 2


def test_files_of_others_in_a_model_folder_are_kept(here):
    assert train_small().exit_code == 0
    (here / "model" / "notes.txt").write_text("mine")
    assert train_small("--force").exit_code == 0
    assert (here / "model" / "notes.txt").read_text() == "mine"


def test_a_table_without_some_levels_is_answered_on_the_scale_of_the_model(here):
    assert train_small().exit_code == 0
    (here / "high.csv").write_text("m,f,rating\na,x,3\na,y,4\nb,x,5\nb,y,\n")
    done("complete", "high.csv", "--model", "model", "--out", "o.csv")
    assert 1 <= pl.read_csv("o.csv")["rating"][3] <= 5
