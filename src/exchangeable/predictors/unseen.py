"""How members without cells are read, tried on members that have some.

Their errors are those of other members, had these no cells: larger than of hidden cells, and of
another form. So observed cells are predicted as if their members were unseen: that calibrates the
intervals, and tells whether the network's correction of the mean helps. It learned that one from
synthetic tables, where few cells may mean another thing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from exchangeable.arrays.support import Support
from exchangeable.models.memory import Memory
from exchangeable.prior.prior import Prior
from exchangeable.prior.trust import is_gain
from exchangeable.training.trained_model import TrainedModel
from exchangeable.training.validation import CELLS_PER_READ
from exchangeable.values.calibration import Calibration
from exchangeable.values.codecs import Codec, ValueStats
from exchangeable.values.distributions import Distribution


class UnseenReading(NamedTuple):
    """How outputs for cells of unseen members are decoded."""

    codec: Codec
    calibration: Calibration

    def __call__(self, outputs: Tensor, stats: ValueStats) -> Distribution:
        return self.calibration.apply(self.codec.read(outputs, stats))


def try_unseen(
    trained: TrainedModel, memory: Memory, prior: Prior, stats: ValueStats, axes: tuple[int, ...]
) -> UnseenReading:
    """Try the predictions of cells whose members on some axes have no cells."""
    fitted = prior.fitted
    cells, channels = prior.of_unseen(axes)
    index = fitted.index[cells]
    index[:, [*axes]] = index.new_tensor(memory.shape)[[*axes]] - 1
    with torch.inference_mode():
        outputs = trained.model.read(
            replace(memory, prior=lambda _: channels), Support(index, memory.shape), CELLS_PER_READ
        )
    values = fitted.values[cells]
    if fitted.drift is not None:
        assert fitted.side.times is not None
        values = values + fitted.drift.at(fitted.index[cells], fitted.side.times[cells])
    truth = (values * stats.deviation + stats.mean).double().cpu()
    plain, corrected = (
        codec.read(outputs.double().cpu(), stats)
        for codec in (trained.codec.without_correction, trained.codec)
    )
    gain = (plain.mean() - truth).square() - (corrected.mean() - truth).square()
    if is_gain(gain):
        return UnseenReading(trained.codec, Calibration.fit(corrected.rank(truth).numpy()))
    calibration = Calibration.fit(plain.rank(truth).numpy())
    return UnseenReading(trained.codec.without_correction, calibration)
