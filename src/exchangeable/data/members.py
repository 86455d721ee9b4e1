"""What is known of the members of all axes of a table, as models take it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from exchangeable.data.features import MemberFeatures
from exchangeable.data.table import Table
from exchangeable.errors import InputError
from exchangeable.nn.layers import Features
from exchangeable.training.trained_model import TrainedModel


@dataclass(frozen=True, eq=False)
class Members:
    """Features of the members of each axis, and what each of them is called."""

    values: Features | None
    names: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, table: Table, given: Mapping[str, Any] | None) -> Members:
        """From frames about members, by the names of their axes."""
        if given is not None and not isinstance(given, Mapping):
            raise InputError(
                f"features must be a mapping from axes to frames, but are a {type(given).__name__}"
            )
        if not given:
            return cls(None, ())
        unknown = set(given) - set(table.axes)
        if unknown:
            raise InputError(
                f"features must be of axes {', '.join(table.axes)}, but are of {sorted(unknown)}"
            )
        found = [
            MemberFeatures.of(given[axis], table.vocabularies[number]) if axis in given else None
            for number, axis in enumerate(table.axes)
        ]
        return cls(
            tuple(None if f is None else torch.from_numpy(f.values) for f in found),
            tuple(() if f is None else f.names for f in found),
        )

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many features the members of each axis have."""
        return tuple(len(names) for names in self.names)

    def check(self, trained: TrainedModel) -> None:
        """Raise unless the model was trained with features of these names."""
        wanted = trained.facts.get("features") or []
        if self.names and not wanted:
            raise InputError(
                "the model knows no features of members: residual and factorized are "
                "trained with them"
            )
        if [list(names) for names in self.names] != wanted:
            raise InputError(
                f"the model was trained with features {wanted or 'of no member'}, by axis, but "
                f"{[list(names) for names in self.names] or 'none'} came"
            )
