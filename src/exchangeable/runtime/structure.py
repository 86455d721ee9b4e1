"""Structures of tensors as JSON and named tensors, and back; nothing is executed.

A structure is a tensor, a number, a text, None, or a tuple, list or mapping of structures.
Dataclasses and named tuples are structures too, if their kind is listed. A tensor that occurs twice
is stored once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor

Kinds = Mapping[str, type]
"""Kinds of objects by the name under which they are stored."""

TENSOR, KIND, FIELDS, PAIRS, NUMBER = "tensor", "kind", "fields", "pairs", "number"


def pack(value: Any, kinds: Kinds, prefix: str) -> tuple[Any, dict[str, Tensor]]:
    """Return a structure as JSON, and its tensors by names that begin with ``prefix``."""
    names: dict[int, str] = {}
    tensors: dict[str, Tensor] = {}
    kind_of = {kind: name for name, kind in kinds.items()}

    def describe(part: Any) -> Any:
        if isinstance(part, Tensor):
            if id(part) not in names:
                names[id(part)] = f"{prefix}{len(names)}"
                tensors[names[id(part)]] = part
            return {TENSOR: names[id(part)]}
        if type(part) in kind_of:
            own = {name: describe(getattr(part, name)) for name in _field_names(type(part))}
            return {KIND: kind_of[type(part)], FIELDS: own}
        if isinstance(part, Mapping):
            return {PAIRS: [[describe(key), describe(each)] for key, each in part.items()]}
        if isinstance(part, list | tuple):
            return [describe(each) for each in part]
        if isinstance(part, float) and not math.isfinite(part):
            return {NUMBER: repr(part)}
        if part is None or isinstance(part, bool | int | float | str):
            return part
        raise TypeError(f"a {type(part).__name__} cannot be stored")

    return describe(value), tensors


def unpack(stored: Any, kinds: Kinds, tensors: Mapping[str, Tensor]) -> Any:
    """Build the structure that ``pack`` described; sequences become tuples."""

    def build(part: Any) -> Any:
        if isinstance(part, list):
            return tuple(build(each) for each in part)
        if not isinstance(part, dict):
            return part
        if TENSOR in part:
            return tensors[part[TENSOR]]
        if NUMBER in part:
            return float(part[NUMBER])
        if PAIRS in part:
            return {build(key): build(each) for key, each in part[PAIRS]}
        kind = kinds[part[KIND]]
        return kind(**{name: build(part[FIELDS][name]) for name in _field_names(kind)})

    return build(stored)


def _field_names(kind: type) -> tuple[str, ...]:
    """Return the arguments that an object of a kind is made with."""
    if is_dataclass(kind):
        return tuple(each.name for each in fields(kind) if each.init)
    named: tuple[str, ...] = getattr(kind, "_fields", ())
    return named
