"""The command evaluate."""

import json

import pytest
from tests.support.commands import done


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
