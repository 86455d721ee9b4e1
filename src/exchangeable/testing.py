"""Checks for your own layers and models: random arrays, equivariance, independent queries."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from exchangeable.array import ExchangeableArray, Support
from exchangeable.memory import MemoryModel


def random_array(
    shape: Sequence[int],
    *,
    density: float = 0.5,
    channels: int = 1,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> ExchangeableArray:
    """Normal values in a random share ``density`` of the cells, stored in random order.

    >>> random_array((4, 3), density=0.5, channels=2)
    ExchangeableArray(4 x 3, 6 cells, 2 channels)
    """
    generator = torch.Generator().manual_seed(seed)
    total = math.prod(shape)
    chosen = torch.randperm(total, generator=generator)[: round(density * total)]
    index = torch.stack(torch.unravel_index(chosen, tuple(shape)), dim=1)
    values = torch.randn(len(chosen), channels, generator=generator, dtype=dtype)
    return ExchangeableArray(Support(index, tuple(shape)), values)


def random_relabelling(shape: Sequence[int], *, joint: bool = False, seed: int = 0) -> list[Tensor]:
    """A permutation for each axis, or one that all axes share."""
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
    """Assert that relabelling the axes before ``layer`` or after it comes to the same.

    The cells are shuffled as well, so a layer that reads the order in which they happen to
    be stored is found out too. ``joint`` relabels all axes alike. ``rtol`` is relative to
    the largest value that comes out.

    >>> from exchangeable import ExchangeableLinear
    >>> layer = ExchangeableLinear(2, 3, order=2).double()
    >>> assert_equivariant(layer, random_array((5, 4), channels=2))
    """
    __tracebackhide__ = True
    relabelling = random_relabelling(x.shape, joint=joint, seed=seed)
    shuffle = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    before = layer(x.relabel(relabelling).take(shuffle)).to_dense()
    after = layer(x).relabel(relabelling).to_dense()
    assert_same(before, after, rtol)


def assert_queries_independent(
    model: MemoryModel,
    observed: ExchangeableArray,
    queries: Support,
    *,
    seed: int = 0,
    rtol: float = 1e-10,
) -> None:
    """Assert that answers stay when cells are asked alone, in chunks, and of a relabelled table."""
    __tracebackhide__ = True
    together = model(observed, queries)
    alone = [model(observed, queries.take(torch.tensor([q]))) for q in range(len(queries))]
    assert_same(torch.cat(alone), together, rtol)
    memory = model.condition(observed)
    for size in {1, 2, max(len(queries) // 2, 1)}:
        assert_same(model.read(memory, queries, chunk_size=size), together, rtol)

    relabelling = random_relabelling(observed.shape, seed=seed)
    shuffle = torch.randperm(len(observed), generator=torch.Generator().manual_seed(seed))
    columns = zip(relabelling, queries.index.T, strict=True)
    renamed = torch.stack([names[column] for names, column in columns], dim=1)
    elsewhere = model(observed.relabel(relabelling).take(shuffle), Support(renamed, observed.shape))
    assert_same(elsewhere, together, rtol)


def assert_same(one: Tensor, other: Tensor, rtol: float = 1e-10) -> None:
    """Assert that two tensors agree to ``rtol`` of the largest value in them."""
    __tracebackhide__ = True
    largest = max((float(t.detach().abs().max()) for t in (one, other) if t.numel()), default=0.0)
    torch.testing.assert_close(one, other, rtol=0, atol=rtol * largest)
