"""A completer in a folder: what answers, the table's cells, and the labels of its members."""

from __future__ import annotations

import io
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from exchangeable.arrays.cells import Cells
from exchangeable.completion.fit import Fitted
from exchangeable.completion.predictors import predictor_from_parts
from exchangeable.data.table import Table
from exchangeable.data.vocabulary import Vocabulary
from exchangeable.errors import InputError
from exchangeable.runtime import checkpoint
from exchangeable.runtime.devices import parse_size
from exchangeable.training.config import TrainingConfig
from exchangeable.training.task import facts_of
from exchangeable.values.scale import Scale

_PARAMS = ("model", "seed", "scale", "duplicates", "validation", "training", "memory")


def save_completer(path: str | Path, params: dict[str, Any], fitted: Fitted) -> None:
    """Write all of it, or nothing."""
    table, cells = fitted.table, fitted.cells
    described, tensors = fitted.predictor.parts()
    training = params["training"]
    config = {
        "kind": "completer",
        "params": {
            **{name: params[name] for name in _PARAMS},
            "training": None if training is None else asdict(training),
        },
        "answerer": described,
        "table": {
            "axes": list(table.axes),
            "value": table.value_name,
            "scale": _scale_to_json(table.scale),
            "cells scale": _scale_to_json(cells.scale),
            "native": table.native,
        },
        "notes": list(fitted.notes),
        "name": fitted.name,
        "folded": fitted.folded,
    }
    stored = {
        "index": torch.from_numpy(table.index),
        "values": torch.from_numpy(table.values),
        "cells.index": torch.from_numpy(cells.index),
        "cells.values": torch.from_numpy(cells.values),
    }
    files = {
        f"members-{number}.parquet": _labels_to_bytes(vocabulary)
        for number, vocabulary in enumerate(table.vocabularies)
    }
    checkpoint.save(
        path,
        config,
        {"model": tensors, "table": stored},
        card=_card(fitted),
        facts=facts_of(cells),
        files=files,
    )


def load_completer(path: str | Path, device: torch.device) -> tuple[dict[str, Any], Fitted]:
    """The parameters of a completer, and what it had been fitted to."""
    stored = checkpoint.load(path)
    if stored.config.get("kind") != "completer":
        raise InputError(
            f"{path}: a saved completer is needed, but this is a {stored.config.get('kind')}; "
            f"Completer(model=PATH) uses a trained model"
        )
    try:
        facts = stored.config["table"]
        scale, numbers = _scale_of_json(facts["scale"]), stored.tensors["table"]
        vocabularies = tuple(
            Vocabulary(_labels_of_bytes(stored.files[f"members-{n}.parquet"], axis))
            for n, axis in enumerate(facts["axes"])
        )
        table = Table(
            tuple(facts["axes"]),
            vocabularies,
            numbers["index"].numpy(),
            numbers["values"].numpy(),
            scale,
            facts["value"],
            native=facts["native"],
        )
        cells = Cells(
            numbers["cells.index"].numpy(),
            numbers["cells.values"].numpy(),
            table.shape,
            _scale_of_json(facts["cells scale"]),
        )
        params = {"memory": None, **stored.config["params"]}  # older folders know no limit
        if params["training"] is not None:
            params["training"] = TrainingConfig(**params["training"])
        if set(params) != set(_PARAMS):
            raise ValueError(f"its parameters are {sorted(params)}")
        _check_index(table.index, table.values, table.shape)
        _check_index(cells.index, cells.values, cells.shape)
        notes, name = tuple(stored.config["notes"]), str(stored.config["name"])
        described = stored.config["answerer"]
        limit = parse_size(params["memory"])
        predictor = predictor_from_parts(described, stored.tensors["model"], cells, device, limit)
        # A model has just read all cells together; a baseline is as it was.
        folded = int(stored.config.get("folded", 0)) if "baseline" in described else 0
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, pl.exceptions.PolarsError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path}: the completer cannot be rebuilt: {reason}") from None
    return params, Fitted(table, cells, predictor, notes, name, folded)


def _check_index(
    index: NDArray[np.int64], values: NDArray[np.float64], shape: tuple[int, ...]
) -> None:
    fits = index.ndim == 2 and index.shape == (len(values), len(shape)) and values.ndim == 1
    if not fits or not ((index >= 0) & (index < np.array(shape))).all():
        raise ValueError(f"cells must be within {shape}")


def _labels_to_bytes(vocabulary: Vocabulary) -> bytes:
    if vocabulary.labels.dtype == pl.Object:
        raise InputError(
            f"labels of one type can be saved, but those of {vocabulary.labels.name!r} are mixed"
        )
    buffer = io.BytesIO()
    vocabulary.labels.to_frame("label").write_parquet(buffer)
    return buffer.getvalue()


def _labels_of_bytes(content: bytes, axis: str) -> pl.Series:
    return pl.read_parquet(io.BytesIO(content))["label"].rename(axis)


def _scale_to_json(scale: Scale) -> dict[str, Any]:
    return {"kind": scale.kind, "levels": list(scale.levels)}


def _scale_of_json(stored: dict[str, Any]) -> Scale:
    return Scale(stored["kind"], tuple(stored["levels"]))


def _card(fitted: Fitted) -> str:
    return "\n".join(
        [
            f"# A completer ({fitted.name})",
            "",
            "It holds the cells of the table it was fitted to, and the labels of its members. "
            "Load it with `exchangeable.Completer.load(PATH)`.",
            "",
            *[f"- {note}" for note in fitted.notes],
            "",
        ]
    )
