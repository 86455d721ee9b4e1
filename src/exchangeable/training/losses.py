"""The losses of the steps of a run, read from the device without holding it up."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from exchangeable.training.run import check_finite


@dataclass(eq=False)
class Losses:
    """The loss of the last step that was read, checked to be finite.

    With ``late``, that is the step before the last one: while a loss is copied from the device the
    next step runs, so that the device never waits for the loop.
    """

    late: bool = False
    last: float = 0.0
    """The loss that was read last."""
    _waiting: list[tuple[int, Tensor, torch.cuda.Event]] = field(default_factory=list, init=False)

    def add(self, step: int, loss: Tensor) -> None:
        """Add the loss of a step; raise ``Failed`` if that of the step before has diverged."""
        if not self.late:
            self._read(step, loss)
            return
        copy = torch.empty((), dtype=loss.dtype, pin_memory=True)
        copy.copy_(loss, non_blocking=True)
        copied = torch.cuda.Event()
        copied.record()
        self.wait()
        self._waiting.append((step, copy, copied))

    def wait(self) -> None:
        """Read all that were added; raise ``Failed`` if one has diverged."""
        for step, loss, copied in self._waiting:
            copied.synchronize()
            self._read(step, loss)
        self._waiting.clear()

    def _read(self, step: int, loss: Tensor) -> None:
        self.last = float(loss)
        check_finite("loss", self.last, step)
