"""What the pages say of the pretrained model comes from commands, which run on any table."""

import json

import numpy as np
import pytest
import torch

from exchangeable.datasets import load
from exchangeable.values.distributions import OnLevels
from exchangeable.values.scale import Scale
from paper.lib.problems import Problem
from paper.pretrained import correction, coverage, development, synthetic_tables, unseen_users


@pytest.fixture
def asked():
    table = load("film-club").table
    problem = Problem("club", table.index, table.values, table.shape, table.scale, {})
    hide = np.random.default_rng(0).random(len(table)) < 0.2
    return development.Asked("club", problem, np.flatnonzero(~hide), np.flatnonzero(hide))


@pytest.fixture
def only_the_club(asked, monkeypatch):
    for module in (development, coverage, correction):
        monkeypatch.setattr(module, "development", lambda: iter([asked]))


def run(module, monkeypatch, *options):
    monkeypatch.setattr("sys.argv", ["it", *map(str, options)])
    module.main()


def test_all_methods_are_judged_on_the_same_cells(
    asked, only_the_club, monkeypatch, tmp_path, capsys
):
    run(development, monkeypatch, "--out", tmp_path)
    printed = capsys.readouterr().out
    found = json.loads((tmp_path / "development.club.json").read_text())
    assert found["hidden"] == len(asked.hidden)
    for name in (*development.OTHERS, "pretrained"):
        assert 0.5 < found[name]["rmse"] < 1
        assert f"{found[name]['rmse']:.4f}" in printed
        assert found[name]["cells"] == len(asked.hidden)
    low, high = found["against vmf"]
    assert low < found["pretrained"]["rmse"] - found["vmf"]["rmse"] < high
    run(development, monkeypatch, "--out", tmp_path, "--print")
    again = capsys.readouterr().out
    assert again.startswith(printed)
    assert "of the same code" in again
    rows = printed.strip().splitlines()
    assert len({row.count("|") for row in rows}) == 1


def test_prior_stack_network_and_correction_are_judged_on_the_same_cells(
    asked, only_the_club, monkeypatch, tmp_path, capsys
):
    run(correction, monkeypatch, "--out", tmp_path)
    printed = capsys.readouterr().out
    found = json.loads((tmp_path / "correction.club.json").read_text())
    for name in correction.ROWS:
        assert 0.5 < found[name]["rmse"] < 1
        assert found[name]["cells"] == len(asked.hidden)
    assert found["prior"]["rmse"] != found["network"]["rmse"]
    run(correction, monkeypatch, "--out", tmp_path, "--print")
    assert capsys.readouterr().out == printed


def test_tables_are_chosen_by_name(only_the_club, monkeypatch, tmp_path, capsys):
    run(development, monkeypatch, "--out", tmp_path, "--only", "another")
    assert not list(tmp_path.iterdir())


def test_users_never_read_are_predicted_nearly_as_well_as_with_all_cells(asked):
    everything = np.arange(len(asked.problem.values))
    alone, together, bias, bmf = unseen_users.errors(asked.problem, everything, 0.5, 0)
    assert alone == pytest.approx(together, rel=0.02)
    assert all(0.6 < error < 0.8 for error in (together, bias, bmf))


def test_calibration_is_drawn_and_told(only_the_club, monkeypatch, tmp_path, capsys):
    picture = tmp_path / "new" / "c.png"
    run(coverage, monkeypatch, "--out", picture)
    assert "club: 80 % intervals hold" in capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_chances_of_levels_are_compared_with_how_often_they_came():
    generator = torch.Generator().manual_seed(0)
    chances = torch.tensor([[0.2, 0.8], [0.6, 0.4]], dtype=torch.float64).repeat(5000, 1)
    truth = (torch.rand(10_000, generator=generator) < chances[:, 1]).double()
    answers = OnLevels(torch.tensor([0.0, 1.0], dtype=torch.float64), chances.log())
    given, came = coverage.came(answers, truth)
    np.testing.assert_allclose(given, [0.2, 0.4, 0.6, 0.8])
    np.testing.assert_allclose(came, given, atol=0.03)
    shares = coverage.held(answers, truth)
    assert (np.diff(shares) >= 0).all()


def test_statistics_tell_tables_apart(tmp_path, monkeypatch):
    generator = np.random.default_rng(0)
    index = np.argwhere(generator.random((60, 40)) < 0.5)
    row, column = generator.normal(size=60), generator.normal(size=40)
    scale = Scale("real")
    noise = 0.3 * generator.normal(size=len(index))
    biased = synthetic_tables.Cells(index, row[index[:, 0]] + noise, (60, 40), scale)
    product = synthetic_tables.Cells(
        index, row[index[:, 0]] * column[index[:, 1]] + noise, (60, 40), scale
    )
    one, other = (synthetic_tables.statistics(cells, 0) for cells in (biased, product))
    assert one.by_biases > 0.8
    assert one.by_factors < 0.05
    assert other.by_biases < 0.2
    assert other.by_factors > 0.6
    assert other.spectrum[0] > 5 * other.spectrum[1]
    assert one.per_row == pytest.approx(len(index) / 60)
    assert one.commonest == pytest.approx(1 / len(index))
    monkeypatch.setattr(synthetic_tables, "REAL", {})
    run(synthetic_tables, monkeypatch, "--draws", 3, "--out", tmp_path / "d.png")
    assert (tmp_path / "d.png").read_bytes().startswith(b"\x89PNG")
