"""Datasets by name, each with its licence and citation, and simulated ones that need no file.

``load(name)`` returns a ``Dataset``: a table, its published splits, and features and graphs of its
members. A module here describes one family of datasets; ``source`` finds, downloads and checks
their files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from exchangeable.runtime.lazy import attach

if TYPE_CHECKING:
    from exchangeable.datasets.registry import DATASETS as DATASETS
    from exchangeable.datasets.registry import fetch as fetch
    from exchangeable.datasets.registry import load as load
    from exchangeable.datasets.source import Dataset as Dataset
    from exchangeable.datasets.source import Source as Source

__getattr__, __dir__ = attach(
    __name__, {"registry": ("DATASETS", "fetch", "load"), "source": ("Dataset", "Source")}
)
