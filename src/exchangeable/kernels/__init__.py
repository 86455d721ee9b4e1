"""GPU kernels in Triton: the computations of the layers, in few passes over the cells.

They take and return plain tensors. ``available`` and ``supported`` tell whether they can be used;
plain PyTorch computes the same, slower.
Every sum is made in a fixed sequence, without atomic additions, so that runs repeat exactly.
Triton is imported with the first launch and not before.
"""

from exchangeable.kernels.combine import Norm, read
from exchangeable.kernels.launch import available, supported
from exchangeable.kernels.pooling import Pooled, pool, pool_all, segment_max, segment_sum, sum_all
from exchangeable.kernels.runs import Runs
from exchangeable.kernels.summaries import Sums, Weights, can_summarise, summarise, summarise_all

__all__ = [
    "Norm",
    "Pooled",
    "Runs",
    "Sums",
    "Weights",
    "available",
    "can_summarise",
    "pool",
    "pool_all",
    "read",
    "segment_max",
    "segment_sum",
    "sum_all",
    "summarise",
    "summarise_all",
    "supported",
]
