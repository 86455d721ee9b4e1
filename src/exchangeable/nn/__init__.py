"""Layers: observed cells write to pools, and every cell reads its own.

``pooling`` has the pure functions and ``pools`` their learned parts; ``layers`` and ``joint`` have
the linear layers, and ``blocks`` dropout, the residual block and the bottleneck of factors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from exchangeable.runtime.lazy import attach

if TYPE_CHECKING:
    from exchangeable.nn.blocks import ChannelDropout as ChannelDropout
    from exchangeable.nn.blocks import ExchangeableBlock as ExchangeableBlock
    from exchangeable.nn.blocks import FactorLayer as FactorLayer
    from exchangeable.nn.joint import JointlyExchangeableLinear as JointlyExchangeableLinear
    from exchangeable.nn.layers import ExchangeableLinear as ExchangeableLinear
    from exchangeable.nn.layers import Layer as Layer
    from exchangeable.nn.pooling import pool_attention as pool_attention
    from exchangeable.nn.pooling import pool_least_squares as pool_least_squares
    from exchangeable.nn.pooling import pool_max as pool_max
    from exchangeable.nn.pooling import pool_mean as pool_mean
    from exchangeable.nn.pooling import pool_sum as pool_sum
    from exchangeable.nn.pooling import unpool as unpool

__getattr__, __dir__ = attach(
    __name__,
    {
        "blocks": ("ChannelDropout", "ExchangeableBlock", "FactorLayer"),
        "joint": ("JointlyExchangeableLinear",),
        "layers": ("ExchangeableLinear", "Layer"),
        "pooling": (
            *("pool_attention", "pool_least_squares", "pool_max", "pool_mean", "pool_sum"),
            "unpool",
        ),
    },
)
