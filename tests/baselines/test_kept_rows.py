"""Rows of variances that are kept: as soon as they pay, and as long as their tables stay."""

import torch

from exchangeable.baselines.factorization import VectorLayout
from exchangeable.baselines.kept_rows import KeptRows

LAYOUT = VectorLayout(2, 3)


def draw_tables(members=6):
    generator = torch.Generator().manual_seed(0)
    means = torch.randn(members + 1, LAYOUT.width, generator=generator)
    return means, torch.eye(LAYOUT.width).repeat(members + 1, 1, 1)


def test_rows_are_kept_once_as_many_cells_were_queried_as_there_are_members():
    kept, tables = KeptRows(), draw_tables()
    assert kept.of(LAYOUT, 0, 1, tables, 4) is None
    rows = kept.of(LAYOUT, 0, 1, tables, 4)
    assert rows is not None
    assert kept.of(LAYOUT, 0, 1, tables, 1) is rows


def test_rows_of_tables_that_changed_are_computed_again():
    kept, tables = KeptRows(), draw_tables()
    before = kept.of(LAYOUT, 0, 1, tables, 100)
    tables[0][2] += 1.0
    after = kept.of(LAYOUT, 0, 1, tables, 1)
    assert after is not before
    assert not torch.equal(after[2], before[2])
    assert torch.equal(after[3], before[3])


def test_tables_that_count_no_changes_keep_nothing():
    with torch.inference_mode():
        tables = draw_tables()
    assert KeptRows().of(LAYOUT, 0, 1, tables, 100) is None
