"""Tables whose axes are one set, on the command line."""

import numpy as np
import polars as pl
import pytest
from tests.support.commands import done, run

from exchangeable.completion.completer import Completer

SMALL = ("--steps", "4", "--width", "8", "--depth", "2")


@pytest.fixture
def links(here):
    draws = np.random.default_rng(0)
    pairs = [(i, j) for i in range(12) for j in range(12) if i != j and draws.random() < 0.5]
    frame = pl.DataFrame(
        {
            "who": [f"p{i}" for i, _ in pairs],
            "whom": [f"p{j}" for _, j in pairs],
            "value": [round(float(np.sin(i) * np.cos(j)), 3) for i, j in pairs],
        }
    )
    frame.with_columns(pl.when(pl.int_range(pl.len()) > 4).then("value").alias("value")).write_csv(
        "links.csv"
    )
    return here / "links.csv"


def test_complete_reads_both_axes_as_one_set(links):
    result = done("complete", "links.csv", "--joint", "--model", "vmf")
    assert "12 who x 12 whom" in result.output
    assert pl.read_csv("links.completed.csv")["value"].null_count() == 0


def test_a_joint_model_is_trained_and_completes_joint_tables_only(links):
    done("train", "links.csv", "--out", "model", "--joint", *SMALL)
    done("complete", "links.csv", "--joint", "--model", "model")
    refused = run("complete", "links.csv", "--model", "model", "--force")
    assert refused.exit_code == 2
    assert "one are two: --joint reads them as one" in refused.stderr.replace("\n", " ")
    resumed = done("train", "links.csv", "--out", "model", "--joint", "--resume", *SMALL)
    assert "finished already" in resumed.output
    changed = run("train", "links.csv", "--out", "model", "--resume", *SMALL)
    assert changed.exit_code == 2
    assert "was started with, but its model differs" in changed.stderr.replace("\n", " ")


def test_evaluate_and_recommend_take_joint_tables(links):
    result = done("evaluate", "links.csv", "--joint", "--models", "bias,vmf")
    assert "vmf" in result.output
    result = done("recommend", "links.csv", "p3", "--joint", "--model", "vmf", "-n", "20")
    assert "p3 " not in result.output.split("whom", 1)[1]


def test_the_service_takes_no_joint_table(links):
    refused = run("serve", "links.csv", "--joint")
    assert refused.exit_code == 2
    assert "tables of separate axes, but this is joint" in refused.stderr.replace("\n", " ")
    Completer("vmf", joint=True).fit(pl.read_csv("links.csv")).save("saved")
    refused = run("serve", "saved")
    assert refused.exit_code == 2
    assert "tables of separate axes, but this is joint" in refused.stderr.replace("\n", " ")
