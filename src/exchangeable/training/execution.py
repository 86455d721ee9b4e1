"""How a run is executed: where, in which precision, within which memory and time, saved where."""

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
    """How a run is executed. Only device and precision affect the weights, by rounding."""

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    precision: Precision = "auto"
    folder: Path | None = None
    """Where the run is saved at intervals and at the end; none: it is not saved."""
    save_every: float = 60.0
    """Seconds between two saves."""
    seconds: float = math.inf
    """Time after which the run is saved and stopped, to be resumed later."""
    memory: int | None = None
    """Bytes that may be used; none: most of what is free."""
    plan: Plan | None = None
    """How cells pass through the model where a step over all of them would not fit."""
    processes: Processes = ALONE
    """Which processes share the cells; the first of them saves."""
    workers: int = 0
    """Processes that draw synthetic tables for pretraining; 0: the training process does."""
    progress: Progress = SILENT
