"""Cells as numbers: numpy ``Cells``, supports and arrays of tensors, groups of cells, and grids.

``cells`` needs numpy only; the other modules use torch.
"""
