"""Cells are drawn by what is in the table alone, and by nothing that can be read from the rest."""

import numpy as np
import torch

from exchangeable.runtime.random import CellShares, residual_hashes


def shares_of(index, residuals, shape):
    hashes = residual_hashes(residuals)
    drawing = CellShares(shape, index.device)
    drawing.add(index, hashes)
    return drawing.of(index, hashes)


def answers(shape=(80, 300), seed=0):
    """All cells of a table of 0 and 1, and what effects of rows and columns leave of them."""
    rng = np.random.default_rng(seed)
    index = torch.cartesian_prod(*(torch.arange(size) for size in shape))
    effects = [torch.from_numpy(rng.normal(0, 0.1, size)) for size in shape]
    sums = effects[0][index[:, 0]] + effects[1][index[:, 1]]
    values = torch.from_numpy((rng.random(len(index)) < 0.5).astype(float))
    return index, values, values - 0.5 - sums, sums


def test_shares_are_uniform_and_hide_as_many_of_each_member():
    index, values, residuals, _ = answers()
    shares = shares_of(index, residuals, (80, 300))
    counts = np.histogram(shares, 10, (0, 1))[0]
    assert (abs(counts / len(shares) - 0.1) < 0.01).all()
    by_row = (shares < 0.1).double().view(80, 300).mean(dim=1)
    assert abs(by_row - 0.1).max() < 0.08
    assert abs(values[shares < 0.1].double().mean() - values.double().mean()) < 0.03


def test_cells_that_are_not_drawn_do_not_tell_the_levels_of_those_that_are():
    """Late digits are sums of those of row, column and level: with these, cells of a phase that
    are left are all of the same level.
    """
    index, values, residuals, sums = answers()
    left = shares_of(index, residuals, (80, 300)) >= 0.1
    scale = 2.0 ** np.floor(np.log2(float(residuals.square().mean().sqrt())))
    phase = (20 * ((1e4 * sums / scale) % 1)).long()
    ones, cells = (
        torch.zeros(20, dtype=torch.float64).index_add_(0, phase[left], each[left].double())
        for each in (values, torch.ones(len(values)))
    )
    assert abs(ones / cells - 0.5).max() < 0.08


def test_members_with_the_same_effects_have_other_cells_drawn():
    """Rows have one of three effects, columns of four, and values two levels."""
    index, values, _, _ = answers()
    residuals = values - 0.5 - 0.01 * (index[:, 0] % 3) - 0.02 * (index[:, 1] % 4)
    drawn = shares_of(index, residuals.double(), (80, 300)) < 0.1
    group = (index[:, 0] % 3) * 8 + (index[:, 1] % 4) * 2 + values.long()
    share = torch.zeros(24).index_add_(0, group, drawn.float()) / group.bincount(minlength=24)
    assert share.max() < 0.2
    assert share.min() > 0.03


def test_shares_do_not_depend_on_how_members_are_numbered_or_cells_ordered():
    index, _, residuals, _ = answers((20, 30))
    some = torch.from_numpy(np.random.default_rng(1).permutation(600)[:400])
    numbers = [torch.from_numpy(np.random.default_rng(2).permutation(size)) for size in (20, 30)]
    renamed = torch.stack([each[index[:, axis]] for axis, each in enumerate(numbers)], dim=1)
    plain = shares_of(index[some], residuals[some], (20, 30))
    again = shares_of(renamed[some].flip(0), residuals[some].flip(0), (20, 30))
    torch.testing.assert_close(plain, again.flip(0), rtol=0, atol=0)
