"""Kernels for the GPU, written in Triton: what the layers compute, in few passes over the cells.

``available`` and ``supported`` say whether they can be used; plain PyTorch does the same, slower.
Every sum is made in a fixed order, without atomic additions, so that runs repeat exactly.
Triton is imported with the first launch and not before.
"""

from exchangeable.kernels.combine import Norm, read
from exchangeable.kernels.launch import available, supported
from exchangeable.kernels.pooling import Pooled, pool, pool_all, segment_max, segment_sum, sum_all
from exchangeable.kernels.runs import Runs
from exchangeable.kernels.summaries import Sums, Weights, summable, summarised

__all__ = [
    "Norm",
    "Pooled",
    "Runs",
    "Sums",
    "Weights",
    "available",
    "pool",
    "pool_all",
    "read",
    "segment_max",
    "segment_sum",
    "sum_all",
    "summable",
    "summarised",
    "supported",
]
