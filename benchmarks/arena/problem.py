"""A problem: the cells that methods read, and those that they are asked for.

The file that a method reads has no value of a test cell. The module needs numpy and nothing else,
so that it works in the environments of the peers.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Index = NDArray[np.int64]
Column = NDArray[np.int64]
"""The members of cells on one axis: (E,)."""
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Problem:
    """Cells of one table, and which of them are hidden."""

    kind: str
    """levels, real, binary or positives."""
    shape: tuple[int, ...]
    levels: Floats
    """Possible values, ascending; none of real numbers."""
    index: Index  # (E, D), cells that may be read
    values: Floats  # (E,)
    validation: Mask  # (V, E), draws of the cells that settings are chosen on, each hidden in turn
    queries: Index  # (Q, D), cells that are asked for; of positives what each user takes next
    features: dict[int, Floats] = field(default_factory=dict)  # (N_d, F) of some axes
    truth: Floats = field(default_factory=lambda: np.empty(0))  # (Q,)

    @property
    def order(self) -> int:
        return len(self.shape)

    def digest(self) -> str:
        """Hash of all that is read and asked, the same cells for every method."""
        hashed = hashlib.sha256(f"{self.kind} {self.shape}".encode())
        for array in (
            self.levels,
            self.index,
            self.values,
            self.validation,
            self.queries,
            self.truth,
            *(self.features[axis] for axis in sorted(self.features)),
        ):
            hashed.update(np.ascontiguousarray(array).tobytes())
        return hashed.hexdigest()[:16]

    @property
    def asked(self) -> Index:
        """What a method may know of the queries: of positives only the users, (U, 1), ascending."""
        return np.unique(self.queries[:, :1], axis=0) if self.kind == "positives" else self.queries

    def write(self, path: Path) -> None:
        """Write all but the truth, whole or not at all."""
        named = {f"features_{axis}": block for axis, block in self.features.items()}
        partial = path.with_suffix(".partial.npz")
        np.savez(
            partial,
            kind=np.array(self.kind),
            shape=np.array(self.shape),
            levels=self.levels,
            index=self.index,
            values=self.values,
            validation=self.validation,
            queries=self.asked,
            **named,
        )
        partial.rename(path)

    @classmethod
    def read(cls, path: str | Path) -> Problem:
        with np.load(path, allow_pickle=False) as stored:
            features = {
                int(name.removeprefix("features_")): stored[name]
                for name in stored
                if name.startswith("features_")
            }
            return cls(
                str(stored["kind"]),
                tuple(stored["shape"].tolist()),
                stored["levels"],
                stored["index"],
                stored["values"],
                stored["validation"],
                stored["queries"],
                features,
            )

    def clipped(self, answers: Floats, read: Mask | slice = slice(None)) -> Floats:
        """Keep answers within the possible values, or those that were read."""
        known = self.levels if len(self.levels) else self.values[read]
        return np.clip(answers, known.min(), known.max())
