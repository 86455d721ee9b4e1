"""The curriculum: all settings that the weights of a pretrained model depend on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from exchangeable.errors import InputError
from exchangeable.models.configs import ResidualConfig
from exchangeable.pretraining.synthetic import max_order
from exchangeable.training.config import TrainingConfig
from exchangeable.values.codecs import ScaleFree


@dataclass(frozen=True)
class Curriculum:
    """Settings of pretraining; the weights are a function of them."""

    model: ResidualConfig
    training: TrainingConfig
    cells: int = 12_000
    """Maximum number of cells of a table."""
    visits: int = 10
    """Steps per new table: one is on the table itself, the others on earlier ones."""
    kept: int = 1500
    """Number of earlier tables that are kept to be used again."""
    judged: int = 100
    """Number of tables for validation, which the model is never trained on."""

    def __post_init__(self) -> None:
        for name in _OWN_SETTINGS:
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be 1 or more, but is {getattr(self, name)}")


_OWN_SETTINGS = ("cells", "visits", "kept", "judged")


def make_curriculum(*, seed: int = 0, **changed: Any) -> Curriculum:
    """Make a curriculum that does well on real tables, with settings ``changed`` by name."""
    codec = ScaleFree()
    model = ResidualConfig(
        codec.in_channels,
        codec.out_channels,
        width=32,
        depth=4,
        pooling=("mean",),
        activation="gated",
        dropout=0.0,
        prior=16,
        compared=24_000_000_000,
    )
    training = TrainingConfig(
        steps=80_000,
        learning_rate=1e-3,
        warm_up=0.02,
        weight_decay=0.1,
        average=0.999,
        loss="relative",
        squared_weight=1.0,
        hide_least=0.1,
        hide_most=0.5,
        evaluate_every=2000,
        seed=seed,
    )
    curriculum = Curriculum(model, training)
    try:
        for name, value in changed.items():
            curriculum = _replace_setting(curriculum, name, value)
    except ValueError as wrong:  # configurations check themselves
        raise InputError(str(wrong)) from wrong
    order, highest = curriculum.model.order, max_order(curriculum.cells)
    if order > highest:
        raise InputError(
            f"tables of up to {curriculum.cells:,} cells can be drawn with 1 to {highest} axes, "
            f"but the order is {order}"
        )
    return curriculum


def _replace_setting(curriculum: Curriculum, name: str, value: Any) -> Curriculum:
    """Replace one setting of the curriculum, of its model or of its training."""
    if name in _OWN_SETTINGS:
        return replace(curriculum, **{name: value})
    for part in ("model", "training"):
        config = getattr(curriculum, part)
        if hasattr(config, name):
            return replace(curriculum, **{part: replace(config, **{name: value})})
    raise InputError(f"a curriculum has no setting {name!r}")
