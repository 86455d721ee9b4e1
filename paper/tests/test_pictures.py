"""The pictures show what the code does, and are the same files each time."""

import struct
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from exchangeable import FactorizedAutoencoder, FactorizedConfig, Support
from exchangeable.errors import InputError
from paper.figures import drawings
from paper.lib import measurements

ROOT = Path(__file__).parents[2]
SIZES = {  # in pixels
    "tied-weights": (1560, 675),
    "sharing": (1560, 525),
    "factorized": (1680, 607),
    "sampling": (1590, 615),
    "pooling": (1680, 675),
}


def agreement(n, m):
    return tuple(axis for axis in range(len(n)) if n[axis] == m[axis])


@pytest.mark.parametrize("shape", [(5,), (4, 5), (3, 4, 3)])
def test_the_matrix_has_a_value_for_each_set_of_axes_that_two_cells_agree_on(shape):
    matrix = measurements.matrix_of(measurements.layer_of(len(shape)), shape)
    cells, found = list(product(*map(range, shape))), {}
    for (row, n), (column, m) in product(enumerate(cells), repeat=2):
        found.setdefault(agreement(n, m), set()).add(matrix[row, column])
    assert len(np.unique(matrix)) == len(found) == 2 ** len(shape)
    assert all(len(values) == 1 for values in found.values())
    assert measurements.tied(matrix, shape) == {
        values.pop(): axes for axes, values in found.items()
    }


def test_a_matrix_that_is_tied_otherwise_is_not_drawn():
    matrix = measurements.matrix_of(measurements.layer_of(2), (3, 4))
    further = np.where(matrix == matrix[0, 1], matrix[0, 4], matrix)  # rows as columns
    with pytest.raises(AssertionError, match="agree on other axes"):
        measurements.tied(further, (3, 4))
    loose = matrix.copy()
    loose[0, 0] += 0.5
    with pytest.raises(AssertionError, match="5 values"):
        measurements.tied(loose, (3, 4))


def test_the_weights_are_those_that_the_picture_of_sharing_names():
    layer = measurements.layer_of(2)
    terms = zip(layer.axes, layer.terms, strict=True)
    weights = {axes: term.weights[0].item() for axes, term in terms}
    assert layer.own.item() == 1
    assert weights == {(): 2, (0,): 4, (1,): 8}
    # Summed and not averaged: 2, its row 2 + 4, its column 2 + 8, itself 1 + 2 + 4 + 8.
    assert np.unique(measurements.matrix_of(layer, (5, 6))).tolist() == [2, 6, 10, 15]


def test_a_pool_holds_the_cells_that_agree_with_the_one_that_reads_it():
    cell, shape = (1, 1, 0), (3, 3, 3)
    for axes in [(), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)]:
        pooled = measurements.pooled_with(shape, axes, cell)
        for other in product(range(3), repeat=3):
            assert pooled[other] == (set(axes) <= set(agreement(cell, other)))


def test_a_table_goes_through_the_layers_as_through_the_model():
    table = np.array([[1.0, np.nan, -1.0], [np.nan, 0.5, 2.0]])
    config = FactorizedConfig(1, 1, encoder=(4, 5), decoder=(6,), dropout=0.0)
    model = FactorizedAutoencoder(config).eval()
    shown = measurements.passed_through(model, table)
    everywhere = Support.of(np.argwhere(np.ones((2, 3))), (2, 3))
    with torch.no_grad():
        answers = model(measurements.array_of(table), everywhere).numpy().reshape(2, 3)
    np.testing.assert_allclose(shown.answers - measurements.MIDDLE, answers, rtol=1e-5)
    assert (np.isnan(shown.encoded[..., 0]) == np.isnan(table)).all()
    assert [vectors.shape for vectors in shown.factors] == [(2, 5), (3, 5)]
    assert (shown.encoded.shape, shown.decoded.shape) == ((2, 3, 5), (2, 3, 6))


def test_every_chosen_row_and_column_shows_in_the_picture_of_sampling():
    support = measurements.skewed()
    for sampler in measurements.samplers_of(support)[1:]:
        drawn = sampler.draw(np.random.default_rng(measurements.SEED))
        members = support.index.numpy()[drawn].T
        assert tuple(len(np.unique(axis)) for axis in members) == sampler.sizes


def test_only_conditional_samples_draw_some_cells_more_often():
    uniform, conditional, unbiased = map(
        measurements.chances, measurements.samplers_of(measurements.skewed())
    )
    assert uniform == pytest.approx((0.3, 0.3), abs=0.03)
    assert unbiased == pytest.approx((8 * 11 / (14 * 20),) * 2, abs=0.03)
    assert conditional[0] < 0.1 < 0.5 < conditional[1]


@pytest.mark.parametrize("name", SIZES)
def test_a_picture_is_a_small_png_and_the_same_each_time(name, tmp_path):
    pytest.importorskip("matplotlib", reason="pictures need matplotlib, which is an extra")
    first = drawings.draw(name, tmp_path / "new folder")
    second = drawings.draw(name, tmp_path)
    assert (first.name, second) == (f"{name}.png", tmp_path / f"{name}.png")
    content = first.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", content[16:24]) == SIZES[name]
    assert 10_000 < len(content) < 200_000
    assert content == second.read_bytes()


def test_the_command_draws_one_picture_or_all(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib", reason="pictures need matplotlib, which is an extra")
    assert list(drawings.PICTURES) == list(SIZES)
    monkeypatch.setattr(sys, "argv", ["pictures", "--out", str(tmp_path), "--only", "pooling"])
    drawings.main()
    assert [path.name for path in tmp_path.iterdir()] == ["pooling.png"]
    assert capsys.readouterr().out == f"Wrote {tmp_path / 'pooling.png'}\n"


def test_without_matplotlib_it_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"exchangeable\[plot\]"):
        drawings.draw("pooling", tmp_path)
    monkeypatch.setattr(sys, "argv", ["pictures", "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="2"):
        drawings.main()
    assert "pictures need matplotlib" in capsys.readouterr().err
