"""The command evaluate."""

import json

import pytest
from tests.support.commands import done, run


def test_evaluate_prints_writes_and_draws_with_the_yardsticks(here):
    result = done("evaluate", "film-club", "--models", "mean,vmf", "--seeds", "0,1")
    for row in ("mean", "vmf", "bias", "bmf", "RMSE", "±"):
        assert row in result.output
    facts = json.loads((here / "film-club.random.json").read_text())
    assert [row["model"] for row in facts["models"]] == ["mean", "vmf", "bias", "bmf"]
    assert (here / "film-club.random.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize("split", ["new-rows", "new-columns", "new-both"])
def test_evaluate_for_members_that_are_new(here, split):
    done("evaluate", "film-club", "--models", "vmf", "--split", split, "--out", "e.json")
    facts = json.loads((here / "e.json").read_text())
    rmse = {row["model"]: row["rmse"]["mean"] for row in facts["models"]}
    assert 0.3 < rmse["vmf"] < 1.2


def test_evaluate_has_auto_by_default_and_runs_again(here):
    for _ in range(2):
        facts = json.loads(done("evaluate", "film-club", "--json").stdout)
    assert {row["model"] for row in facts["models"]} == {"auto", "vmf", "bias", "bmf"}
    refused = run("evaluate", "film-club", "--out", facts["out"])
    assert refused.exit_code == 2


def test_evaluate_takes_features_for_the_models_that_read_them(here):
    (here / "films.csv").write_text("film,year\nHeat,1995\nAlien,1979\nBig,1988\n")
    asked = ("evaluate", "film-club", "--models", "pretrained", "--features", "film=films.csv")
    facts = json.loads(done(*asked, "--json").stdout)
    plain = json.loads(done(*asked[:4], "--json").stdout)
    rmse = {
        name: {row["model"]: row["rmse"]["mean"] for row in found["models"]}
        for name, found in (("features", facts), ("plain", plain))
    }
    assert rmse["features"]["bias"] == rmse["plain"]["bias"]
    assert rmse["features"]["pretrained"] != rmse["plain"]["pretrained"]
