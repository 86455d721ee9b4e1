"""A model with its memory of a table as a predictor.

Each axis of the memory has one member more than the table, without a cell: it stands for every
member that is not in the table.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from exchangeable.arrays.array import ExchangeableArray, FeatureTensors
from exchangeable.arrays.cells import Cells, Floats, Index, cells_of_their_members
from exchangeable.arrays.support import Support
from exchangeable.models.factors import read_factors
from exchangeable.models.memory import Memory
from exchangeable.models.memory_plan import plan_reading
from exchangeable.models.prior_fit import fit_prior
from exchangeable.models.rewrite import rewrite
from exchangeable.predictors.best import RoughPredictions
from exchangeable.predictors.correction import Correction
from exchangeable.predictors.new_members import NewMembersPredictor
from exchangeable.predictors.spare_members import (
    features_with_spare,
    padded_with_zeros,
    side_information,
    to_tensor,
    with_spare,
)
from exchangeable.predictors.state import (
    can_store,
    has_state,
    read_all_unseen,
    state_from_parts,
    state_to_parts,
)
from exchangeable.predictors.trained import (
    coordinates_with_spare,
    model_from_parts,
    model_to_parts,
    prepare,
)
from exchangeable.predictors.unseen import UnseenReading, try_unseen
from exchangeable.prior.presence import count_cells
from exchangeable.prior.prior import Prior
from exchangeable.prior.side_information import SideInformation
from exchangeable.runtime.cache import cached_property
from exchangeable.runtime.processes import ALONE, Processes
from exchangeable.runtime.progress import SILENT, Progress
from exchangeable.runtime.threads import one_thread
from exchangeable.training.trained_model import TrainedModel
from exchangeable.training.validation import CELLS_PER_READ
from exchangeable.values.calibration import UNCALIBRATED, Calibration
from exchangeable.values.codecs import ValueStats, encoder
from exchangeable.values.distributions import Distribution
from exchangeable.values.joined import Joined

if TYPE_CHECKING:
    from exchangeable.data.features import TableFeatures

MAX_REWRITTEN_SHARE = 0.5
"""Share of the cells up to which those of members with other values are read again; of more all
are read."""


@dataclass(frozen=True, eq=False)
class ModelPredictor:
    """Predicts from the memory that a model has of the table."""

    trained: TrainedModel
    memory: Memory
    stats: ValueStats
    features: FeatureTensors | None
    processes: Processes = ALONE
    memory_limit: int | None = None
    """Bytes that reading may take."""
    calibration: Calibration = UNCALIBRATED
    prior: Prior | None = None
    """The prior of the memory, for cells at any time."""
    correction: Correction | None = None
    """What held-out cells say of the means; that of the last comparison, as the calibration is."""
    whole: ModelPredictor | None = None
    """The predictor of the whole table, where this one is of a new member."""
    unseen: dict[tuple[int, ...], UnseenReading] = field(default_factory=dict)
    """How members without cells are read, by axes, as far as it was asked. Like the calibration it
    is that of the last reading: cells that are folded in since do not change it."""

    @classmethod
    def of(
        cls,
        trained: TrainedModel,
        cells: Cells,
        features: FeatureTensors | None = None,
        device: torch.device | None = None,
        *,
        memory: int | None = None,
        processes: Processes = ALONE,
        progress: Progress = SILENT,
    ) -> ModelPredictor:
        """Condition the model on the observed cells, within ``memory`` bytes."""
        trained.check(cells.order, joint=cells.joint)
        trained, cells, device = prepare(trained, cells, features, device)
        side, by_layers = side_information(trained, cells, features, device)
        stats = ValueStats.of(cells.values, cells.scale)
        observed = cells.to_array(with_spare(cells.shape)).to(device)
        with torch.no_grad(), one_thread(device):
            prior = fit_prior(
                trained.model, observed, stats, side, memory, processes, progress.note
            )
            groups = trained.model.grouped(observed.support).group_index
            plan, sentence = plan_reading(trained.model, groups, len(cells), memory)
            if plan.activations != "memory" or not plan.keep_pools:
                progress.note(sentence)
            conditioned = trained.model.condition(
                observed,
                by_layers,
                encode=encoder(trained.codec, stats),
                prior=None if prior is None else prior.at(side.times),
                plan=plan,
                processes=processes,
                progress=progress,
            )
        return cls(trained, conditioned, stats, features, processes, memory, prior=prior)

    @cached_property
    def device(self) -> torch.device:
        return self.trained.model.device

    def predict(self, index: Index, times: Floats | None = None) -> Distribution:
        coordinates = coordinates_with_spare(index, self.memory.shape)
        first, last = self.processes.share(len(index))
        queries = Support(coordinates[first:last].to(self.device), self.memory.shape)
        mine = to_tensor(None if times is None else times[first:last], self.device)
        with torch.inference_mode(), one_thread(self.device):
            channels = None if self.prior is None else self.prior(queries.index, mine)
            outputs = self._read(queries, channels)
        outputs = self.processes.all_gather(outputs, len(index))
        if channels is not None:
            channels = self.processes.all_gather(channels, len(index))
        return self._decode(outputs, channels, coordinates)

    def rough_predictions(self, index: Index) -> RoughPredictions | None:
        """Predict means of cells (Q, D) by the prior, and any of them by the model, on demand."""
        prior = self.prior
        if prior is None or prior.joint or self.processes.size > 1:
            return None
        coordinates = coordinates_with_spare(index, self.memory.shape).to(self.device)
        with torch.inference_mode(), one_thread(self.device):
            means, estimates = prior.estimate_means(coordinates)

        def read(positions: Tensor) -> Distribution:
            at = positions.to(self.device)
            with torch.inference_mode(), one_thread(self.device):
                channels = prior.channels_of(estimates.take(at), coordinates[at])
                return self.predict_from(coordinates[at], channels)

        return RoughPredictions(self.to_values(means), read)

    def predict_from(self, cells: Tensor, channels: Tensor) -> Distribution:
        """Predict cells (Q, D) from the channels (Q, K) that the prior has for them."""
        outputs = self._read(Support(cells, self.memory.shape), channels)
        return self._decode(outputs, channels, cells.cpu())

    def _read(self, queries: Support, channels: Tensor | None) -> Tensor:
        """Read cells, for which the prior has these channels (Q, K): the outputs (Q, O)."""
        memory = self.memory
        if channels is not None:
            memory = replace(memory, prior=lambda _: channels)
        return self.trained.model.read(memory, queries, CELLS_PER_READ)

    def to_values(self, means: Tensor) -> Tensor:
        """Return the prior's means (Q,) in the units of the table, on the CPU."""
        return (means * self.stats.deviation + self.stats.mean).cpu()

    def _decode(
        self, outputs: Tensor, channels: Tensor | None, coordinates: Tensor
    ) -> Distribution:
        """Decode outputs (Q, O) of cells; of members without cells apart from others."""
        outputs = outputs.double().cpu()
        if self.prior is None or channels is None:
            return self.calibration.apply(self.trained.codec.read(outputs, self.stats))
        channels = channels.cpu()
        counts = count_cells(self.prior.fitted.presence, coordinates.to(self.device))
        scarcity, unseen = self.prior.trust.scarcity(counts).cpu(), (counts == 0).cpu()
        if not unseen.any():
            return self._decode_seen(outputs, channels, scarcity)
        pattern = (unseen << torch.arange(unseen.shape[1])).sum(dim=1)
        parts: list[tuple[Tensor, Distribution]] = []
        for flags in pattern.unique().tolist():
            cells = (pattern == flags).nonzero().squeeze(1)
            axes = tuple(axis for axis in range(unseen.shape[1]) if flags >> axis & 1)
            if axes:
                part = self._read_unseen(axes)(outputs[cells], self.stats)
            else:
                part = self._decode_seen(outputs[cells], channels[cells], scarcity[cells])
            parts.append((cells, part))
        return Joined(tuple(parts))

    def _decode_seen(self, outputs: Tensor, channels: Tensor, scarcity: Tensor) -> Distribution:
        """Decode outputs of cells whose members have cells, from their prior's channels."""
        predictions = self.trained.codec.read(outputs, self.stats)
        if self.correction is not None:
            predictions = self.correction.apply(predictions, channels, scarcity, self.stats)
        return self.calibration.apply(predictions)

    def _read_unseen(self, axes: tuple[int, ...]) -> UnseenReading:
        """Return how cells are decoded whose members on some axes have no cells."""
        if self.calibration == UNCALIBRATED:
            return UnseenReading(self.trained.codec.without_correction, UNCALIBRATED)
        whole = self.whole or self
        assert whole.prior is not None
        if axes not in self.unseen:
            self.unseen[axes] = try_unseen(
                whole.trained, whole.memory, whole.prior, whole.stats, axes
            )
        return self.unseen[axes]

    def updated(self, cells: Cells, changed: Index, *, known: int) -> ModelPredictor:
        if self.needs_refit(cells, changed, known=known):
            return self.refreshed(cells)
        with torch.no_grad(), one_thread(self.device):
            return self._extended(cells, changed, known)

    def _extended(self, cells: Cells, changed: Index, known: int) -> ModelPredictor:
        """Return the predictor after cells at the positions ``changed`` came or were replaced."""
        prior, prior_of = self.prior, None
        features = padded_with_zeros(self.features, cells.shape)
        if prior is not None:
            every = cells.to_array(with_spare(cells.shape)).to(self.device)
            times = to_tensor(cells.times, self.device)
            side = SideInformation(times, features_with_spare(features, cells.shape, self.device))
            prior = prior.updated(every, torch.from_numpy(changed).to(self.device), side)
            prior_of = prior.at(times).take
        memory, model = self.memory, self.trained.model
        replaced, added = changed[changed < known], changed[changed >= known]
        if len(added):
            # The spare member of before has no cell, so the first new one can take its place.
            own_prior = None if prior_of is None else prior_of(added)
            memory = model.extend(memory, self._encoded(cells, added), prior=own_prior)
        if len(replaced):
            positions = cells_of_their_members(cells, replaced)
            own_prior = None if prior_of is None else prior_of(positions)
            index = torch.from_numpy(cells.index[replaced]).to(self.device)
            observed = self._encoded(cells, positions)
            memory = rewrite(model, memory, observed, index, prior=own_prior)
        return replace(self, memory=memory, prior=prior, features=features)

    def _encoded(self, cells: Cells, positions: Index) -> ExchangeableArray:
        """Return some of the cells as they enter the model."""
        observed = cells.take(positions).to_array(with_spare(cells.shape))
        return observed.map_values(encoder(self.trained.codec, self.stats)).to(self.device)

    def with_features(self, features: TableFeatures) -> ModelPredictor:
        """Return the same predictor with other features, which the next reading will see."""
        tensors = features.to_tensors(centred=self.trained.prior_reads_features)
        return replace(self, features=tensors)

    def needs_refit(self, cells: Cells, changed: Index, *, known: int) -> bool:
        replaced = changed[changed < known]
        if not self.can_extend or (len(replaced) and len(cells.shape) == 1):
            return True
        most = MAX_REWRITTEN_SHARE * len(cells)
        return len(replaced) > most or len(cells_of_their_members(cells, replaced)) > most

    @property
    def can_extend(self) -> bool:
        """Whether cells can come later: not where layers take features, or no pools are kept."""
        by_layers = self.features is not None and not self.trained.prior_reads_features
        return not by_layers and bool(self.memory.pools)

    def refreshed(self, cells: Cells) -> ModelPredictor:
        predictor = ModelPredictor.of(
            self.trained,
            cells,
            padded_with_zeros(self.features, cells.shape),
            self.device,
            memory=self.memory_limit,
            processes=self.processes,
        )
        return replace(predictor, calibration=self.calibration, correction=self.correction)

    def for_new_members(
        self,
        axis: int,
        index: Index,
        values: Floats,
        features: Tensor | None = None,
        *,
        count: int = 1,
    ) -> NewMembersPredictor | None:
        if not self.can_extend or self.trained.config.joint:  # there they are on both axes
            return None
        return NewMembersPredictor.of(self, axis, index, values, features, count)

    def factors(self) -> tuple[Floats, ...]:
        # The last member of each axis is the spare one.
        vectors = read_factors(self.trained.model, self.memory)
        return tuple(rows[:-1].detach().double().cpu().numpy() for rows in vectors)

    def to_parts(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        config, model = model_to_parts(self.trained, self.features, self.calibration)
        config["correction"] = None if self.correction is None else self.correction.to_json()
        prior = self.prior
        if prior is not None and not can_store(prior):
            return config, model  # all cells are read again
        if prior is not None and self.calibration != UNCALIBRATED:
            read_all_unseen(self.trained, self.memory, prior, self.stats, self.unseen)
        state, tensors = state_to_parts(self.memory, self.stats, prior, self.unseen)
        return {**config, "state": state}, {**model, **tensors}

    @classmethod
    def from_parts(
        cls,
        config: dict[str, Any],
        tensors: dict[str, Tensor],
        cells: Cells,
        device: torch.device,
        memory: int | None = None,
    ) -> ModelPredictor:
        """Build a predictor from what ``to_parts`` returned.

        The model reads the cells again where folders of earlier versions do not have its state.
        """
        trained, features, calibration = model_from_parts(config, tensors, len(cells.shape))
        correction = Correction.from_json(config.get("correction"))
        if not has_state(config):
            predictor = cls.of(trained, cells, features, device, memory=memory)
            return replace(predictor, calibration=calibration, correction=correction)
        trained.check(cells.order, joint=cells.joint)
        trained, _, device = prepare(trained, cells, features, device)
        side, by_layers = side_information(trained, cells, features, device)
        observed = cells.to_array(with_spare(cells.shape)).to(device)
        with one_thread(device):
            read, stats, prior, unseen = state_from_parts(
                config, tensors, trained, observed, side, by_layers
            )
        predictor = cls(trained, read, stats, features, ALONE, memory, calibration, prior)
        return replace(predictor, correction=correction, unseen=unseen)
