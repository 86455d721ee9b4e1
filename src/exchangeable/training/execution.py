"""Execution of a run: device, precision, memory, time limit, folder and progress."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

import torch

from exchangeable.models.stream import Plan
from exchangeable.runtime.devices import Precision
from exchangeable.runtime.processes import ALONE, Processes
from exchangeable.runtime.progress import SILENT, Progress


@dataclass(frozen=True)
class Execution:
    """Settings of execution; only device and precision affect the weights, by rounding."""

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    precision: Precision = "auto"
    folder: Path | None = None
    """Folder in which the run is saved at intervals and at the end; none: it is not saved."""
    save_every: float = 60.0
    """Seconds between two saves."""
    seconds: float = math.inf
    """Time after which the run is saved and stopped, to be resumed later."""
    memory: int | None = None
    """Bytes that may be used; none: most of what is free."""
    plan: Plan | None = None
    """Chunks in which cells pass through the model where all of them would not fit in memory."""
    processes: Processes = ALONE
    """Which processes share the cells; the first of them saves."""
    workers: int = 0
    """Processes that draw synthetic tables for pretraining; 0: the training process does."""
    progress: Progress = SILENT
