"""Checks for layers and models: random arrays, equivariance, independent queries."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from exchangeable.arrays.array import ExchangeableArray
from exchangeable.arrays.support import Support
from exchangeable.models.memory import MemoryModel


def random_array(
    shape: Sequence[int],
    *,
    density: float = 0.5,
    channels: int = 1,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> ExchangeableArray:
    """Draw normal values in a random share ``density`` of the cells, stored in a random sequence.

    >>> random_array((4, 3), density=0.5, channels=2)
    ExchangeableArray(4 x 3, 6 cells, 2 channels)
    """
    if not 0 <= density <= 1:
        raise ValueError(f"density must be between 0 and 1, but is {density}")
    generator = torch.Generator().manual_seed(seed)
    total = math.prod(shape)
    chosen = torch.randperm(total, generator=generator)[: round(density * total)]
    index = torch.stack(torch.unravel_index(chosen, tuple(shape)), dim=1)
    values = torch.randn(len(chosen), channels, generator=generator, dtype=dtype)
    return ExchangeableArray(Support(index, tuple(shape)), values)


def random_relabelling(shape: Sequence[int], *, joint: bool = False, seed: int = 0) -> list[Tensor]:
    """Draw a permutation for each axis, or one that all axes share."""
    generator = torch.Generator().manual_seed(seed)
    if joint:
        return [torch.randperm(shape[0], generator=generator)] * len(shape)
    return [torch.randperm(size, generator=generator) for size in shape]


def assert_equivariant(
    layer: Callable[[ExchangeableArray], ExchangeableArray],
    x: ExchangeableArray,
    *,
    joint: bool = False,
    seed: int = 0,
    rtol: float = 1e-10,
) -> None:
    """Assert that relabelling the axes before or after ``layer`` gives the same result.

    The cells are shuffled as well, so a layer that depends on the sequence in which they are
    stored fails too. ``joint`` relabels all axes alike. ``rtol`` is relative to the largest
    value of the result.

    >>> from exchangeable import ExchangeableLinear
    >>> layer = ExchangeableLinear(2, 3, order=2).double()
    >>> assert_equivariant(layer, random_array((5, 4), channels=2))
    """
    __tracebackhide__ = True
    relabelling = random_relabelling(x.shape, joint=joint, seed=seed)
    shuffle = _shuffle(x, seed)
    before = layer(x.relabel(relabelling).take(shuffle)).to_dense()
    after = layer(x).relabel(relabelling).to_dense()
    assert_same(before, after, rtol)


def assert_queries_independent(
    model: MemoryModel,
    observed: ExchangeableArray,
    queries: Support,
    *,
    joint: bool = False,
    seed: int = 0,
    rtol: float = 1e-10,
) -> None:
    """Assert that predictions are the same for single queries, chunks and a relabelled table.

    ``joint`` relabels all axes alike.
    """
    __tracebackhide__ = True
    together = model(observed, queries)
    for position, prediction in enumerate(together):
        one = torch.tensor([position], device=queries.index.device)
        assert_same(model(observed, queries.take(one))[0], prediction, rtol)
    memory = model.condition(observed)
    for size in {1, 2, max(len(queries) // 2, 1)}:
        assert_same(model.read(memory, queries, chunk_size=size), together, rtol)

    relabelling = random_relabelling(observed.shape, joint=joint, seed=seed)
    columns = zip(relabelling, queries.index.T, strict=True)
    renamed = torch.stack([names.to(column.device)[column] for names, column in columns], dim=1)
    relabelled = model(
        observed.relabel(relabelling).take(_shuffle(observed, seed)),
        Support(renamed, observed.shape),
    )
    assert_same(relabelled, together, rtol)


def assert_same(one: Tensor, other: Tensor, rtol: float = 1e-10) -> None:
    """Assert that two tensors are finite and agree to ``rtol`` of the largest value in them."""
    __tracebackhide__ = True
    assert one.isfinite().all(), f"values must be finite, but are {one}"
    assert other.isfinite().all(), f"values must be finite, but are {other}"
    largest = max((float(t.detach().abs().max()) for t in (one, other) if t.numel()), default=0.0)
    torch.testing.assert_close(one, other, rtol=0, atol=rtol * largest)


def _shuffle(array: ExchangeableArray, seed: int) -> Tensor:
    permutation = torch.randperm(len(array), generator=torch.Generator().manual_seed(seed))
    return permutation.to(array.values.device)
