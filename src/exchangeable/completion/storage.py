"""A completer in a folder: its predictor, the table's cells, and the labels of its members."""

from __future__ import annotations

import io
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import torch
from torch import Tensor

from exchangeable.arrays.cells import Cells, Floats
from exchangeable.completion.fit import Fitted
from exchangeable.data.feature_columns import column_from_json, column_to_json
from exchangeable.data.features import MemberFeatures, TableFeatures
from exchangeable.data.table import Table
from exchangeable.data.vocabulary import Vocabulary
from exchangeable.errors import InputError
from exchangeable.predictors import literal
from exchangeable.predictors.base import Predictor
from exchangeable.predictors.baseline import BaselinePredictor
from exchangeable.predictors.ranking import RankingPredictor
from exchangeable.predictors.state import PREFIX, has_state
from exchangeable.predictors.units import UnitsPredictor
from exchangeable.runtime import checkpoint
from exchangeable.runtime.devices import parse_size
from exchangeable.training.config import TrainingConfig
from exchangeable.training.task import facts_of
from exchangeable.values.scale import Scale

_PARAMS = (
    *("model", "seed", "scale", "duplicates", "validation", "training", "memory", "units"),
    *("joint", "sample_cells", "verbose"),
)


def save_completer(path: str | Path, params: dict[str, Any], fitted: Fitted) -> None:
    """Write all of it, or nothing."""
    table, cells = fitted.table, fitted.cells
    predictor, tensors = fitted.predictor.to_parts()
    training = params["training"]
    config = {
        "kind": "completer",
        "params": {
            **{name: params[name] for name in _PARAMS},
            "training": None if training is None else asdict(training),
        },
        "answerer": predictor,
        "table": {
            "axes": list(table.axes),
            "value": table.value_name,
            "scale": _scale_to_json(table.scale),
            "cells scale": _scale_to_json(cells.scale),
            "native": table.native,
            "time": table.time_name,
            "units": table.units,
            "joint": table.joint,
        },
        "features": features_to_json(fitted.features),
        "notes": list(fitted.notes),
        "name": fitted.name,
        "folded": fitted.cells_since_refresh,
        "mirrored": fitted.mirrored,
    }
    stored = {
        "index": torch.from_numpy(table.index),
        "values": torch.from_numpy(table.values),
        "cells.index": torch.from_numpy(cells.index),
        "cells.values": torch.from_numpy(cells.values),
    }
    for name, times in (("times", table.times), ("cells.times", cells.times)):
        if times is not None:
            stored[name] = torch.from_numpy(times)
    for axis, features in enumerate(fitted.features.axes):
        if features is not None:
            stored[f"features.{axis}"] = torch.from_numpy(features.values)
            stored[f"described.{axis}"] = torch.from_numpy(features.described)
            stored[f"centre.{axis}"] = torch.from_numpy(features.centre)
    files = {
        f"members-{axis}.parquet": _labels_to_bytes(vocabulary)
        for axis, vocabulary in enumerate(table.vocabularies)
    }
    for axis, features in enumerate(fitted.features.axes):
        if features is not None:
            files[f"features-{axis}.parquet"] = _to_bytes(features.rows)
    checkpoint.save(
        path,
        config,
        {
            "model": {name: each for name, each in tensors.items() if not _is_state(name)},
            "state": {name: each for name, each in tensors.items() if _is_state(name)},
            "table": stored,
        },
        card=_card(fitted),
        facts=facts_of(cells),
        files=files,
    )


def load_completer(path: str | Path, device: torch.device) -> tuple[dict[str, Any], Fitted]:
    """Return the parameters of a completer, and its fitted state."""
    stored = checkpoint.load(path)
    config = stored.config
    if config.get("kind") != "completer":
        raise InputError(
            f"{path}: a saved completer is needed, but this is a {config.get('kind')}; "
            f"Completer(model=PATH) uses a trained model"
        )
    try:
        table, cells = _read_table(config["table"], stored.tensors["table"], stored.files)
        params = _read_params(config["params"])
        notes, name, predictor = tuple(config["notes"]), str(config["name"]), config["answerer"]
        tensors = {**stored.tensors["model"], **stored.tensors.get("state", {})}
        fitted = Fitted(
            table,
            cells,
            predictor_from_parts(predictor, tensors, cells, device, parse_size(params["memory"])),
            notes,
            name,
            # A model without its state has just read all cells together; others are as they were.
            int(config.get("folded", 0)) if "baseline" in predictor or has_state(predictor) else 0,
            _read_features(config.get("features", []), stored.tensors["table"], stored.files),
            bool(config.get("mirrored", False)),
        )
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, pl.exceptions.PolarsError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path}: the completer cannot be rebuilt: {reason}") from None
    return params, fitted


def predictor_from_parts(
    config: dict[str, Any],
    tensors: dict[str, Tensor],
    cells: Cells,
    device: torch.device,
    memory: int | None = None,
) -> Predictor:
    """Build a predictor for the same cells from what its ``to_parts`` returned."""
    if "units" in config:
        read = partial(predictor_from_parts, device=device, memory=memory)
        return UnitsPredictor.from_parts(config, tensors, cells, read)
    if "baseline" in config:
        return BaselinePredictor.from_parts(config, tensors, cells)
    if "ranker" in config:
        return RankingPredictor.from_parts(config, tensors, cells, device)
    return literal.predictor_from_parts(config, tensors, cells, device, memory)


def _is_state(name: str) -> bool:
    """Whether a tensor is part of what a model has read, and not of its weights."""
    return name.startswith(PREFIX)


def _read_table(
    config: dict[str, Any], tensors: dict[str, Tensor], files: dict[str, bytes]
) -> tuple[Table, Cells]:
    """Return the table and the cells that were read of it, after a check of their coordinates."""
    vocabularies = tuple(
        Vocabulary(_labels_of_bytes(files[f"members-{number}.parquet"], axis))
        for number, axis in enumerate(config["axes"])
    )
    table = Table(
        tuple(config["axes"]),
        vocabularies,
        tensors["index"].numpy(),
        tensors["values"].numpy(),
        _scale_of_json(config["scale"]),
        config["value"],
        times=_numpy_or_none(tensors.get("times")),
        time_name=config.get("time"),
        native=config["native"],
        units=config.get("units"),
        joint=bool(config.get("joint", False)),
    )
    cells = Cells(
        tensors["cells.index"].numpy(),
        tensors["cells.values"].numpy(),
        table.shape,
        _scale_of_json(config["cells scale"]),
        _numpy_or_none(tensors.get("cells.times")),
        table.joint,
    )
    _check_index(table)
    _check_index(cells)
    return table, cells


def _numpy_or_none(tensor: Tensor | None) -> Floats | None:
    return None if tensor is None else tensor.numpy()


def _read_features(
    stored: list[dict[str, Any] | None], tensors: dict[str, Tensor], files: dict[str, bytes]
) -> TableFeatures:
    """Return the features of the members; older folders have none."""
    axes = [
        None
        if each is None
        else MemberFeatures(
            tuple(each["names"]),
            tensors[f"features.{axis}"].numpy(),
            tuple(each["found"]),
            tuple(column_from_json(column) for column in each["columns"]),
            tensors[f"described.{axis}"].numpy(),
            tensors[f"centre.{axis}"].numpy(),
            _rows_of_bytes(files.get(f"features-{axis}.parquet")),
        )
        for axis, each in enumerate(stored)
    ]
    found = tuple("; ".join(each["found"]) for each in stored if each is not None)
    return TableFeatures(tuple(axes), found)


def features_to_json(features: TableFeatures) -> list[dict[str, Any] | None]:
    """Describe the features of each axis, without their values."""
    return [
        None
        if axis is None
        else {
            "names": list(axis.names),
            "found": list(axis.found),
            "columns": [column_to_json(column) for column in axis.columns],
        }
        for axis in features.axes
    ]


def _read_params(stored: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of the constructor."""
    # Older folders have none of these.
    absent = {"memory": None, "units": None, "sample_cells": None, "joint": False, "verbose": False}
    params = {**absent, **stored}
    if params["training"] is not None:
        params["training"] = TrainingConfig(**params["training"])
    if set(params) != set(_PARAMS):
        raise ValueError(f"its parameters are {sorted(params)}")
    return params


def _check_index(cells: Table | Cells) -> None:
    """Raise unless there is a value for every cell, and every cell is within the shape."""
    index, values, shape = cells.index, cells.values, cells.shape
    fits = index.ndim == 2 and index.shape == (len(values), len(shape)) and values.ndim == 1
    if not fits or not ((index >= 0) & (index < shape)).all():
        raise ValueError(f"cells must be within {shape}")


def _labels_to_bytes(vocabulary: Vocabulary) -> bytes:
    if vocabulary.labels.dtype == pl.Object:
        raise InputError(
            f"labels of one type can be saved, but those of {vocabulary.labels.name!r} are mixed"
        )
    return _to_bytes(vocabulary.labels.to_frame("label"))


def _to_bytes(frame: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    return buffer.getvalue()


def _rows_of_bytes(content: bytes | None) -> pl.DataFrame:
    """Return rows of features; older folders have none."""
    return pl.DataFrame() if content is None else pl.read_parquet(io.BytesIO(content))


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
