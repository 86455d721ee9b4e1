"""Tables that a service is to serve: from words of the command line, or from a TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from exchangeable.errors import InputError
from exchangeable.runtime.phrases import did_you_mean

LIMITS = ("body", "waiting", "calls", "writes", "share", "seconds", "call-seconds",
          "export-seconds", "cells", "effects")  # fmt: skip
"""Limits of a table that a file may set; those of files and connections are the service's."""
_FRACTIONS = ("share", "seconds", "call-seconds", "export-seconds")
_FIELDS = ("source", "model", "features", "read-only", "limits")


@dataclass(frozen=True)
class TableSetting:
    """A table that is to be served."""

    name: str
    source: str | None = None
    """Dataset, file or saved completer; None if the database must hold the table."""
    model: str | None = None
    features: tuple[str, ...] = ()
    """Files with features of members, as AXIS=FILE."""
    read_only: bool = False
    limits: Mapping[str, float] = field(default_factory=dict)
    """Limits that differ from the defaults, by their names in ``Limits``."""


@dataclass(frozen=True)
class TokenSetting:
    """A token with its role, for one table or for all."""

    role: str
    token: str
    table: str | None = None


@dataclass(frozen=True)
class Configuration:
    """What a service serves, and to whom."""

    tables: tuple[TableSetting, ...] = ()
    tokens: tuple[TokenSetting, ...] = ()


def parse_words(words: Sequence[str]) -> Configuration:
    """Settings of tables that are given as words: a source each, or name=source."""
    return Configuration(tuple(_parse_word(word) for word in words))


def _parse_word(word: str) -> TableSetting:
    from exchangeable.storage.schema import check_name, name_of

    name, equals, source = word.partition("=")
    if equals and name and not Path(word).exists():
        return TableSetting(check_name(name), source)
    return TableSetting(name_of("stdin" if word == "-" else word), word)


def read_configuration(path: Path) -> Configuration:
    """Read a TOML file; names of files in it are relative to its folder."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path}: TOML is needed, but {error}") from None
    try:
        _check_fields("the file", content, ("tables", "tokens"))
        tables = _expect("tables", content.get("tables", {}), dict)
        tokens = _expect("tokens", content.get("tokens", []), list)
        if not tables:
            raise InputError("a section [tables.NAME] is needed, but there is none")
        return Configuration(
            tuple(_table(name, section, path.parent) for name, section in tables.items()),
            tuple(_token(section) for section in tokens),
        )
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _table(name: str, section: Any, folder: Path) -> TableSetting:
    from exchangeable.storage.schema import check_name

    place = f"tables.{check_name(name)}"
    section = _expect(place, section, dict)
    _check_fields(place, section, _FIELDS)
    source = section.get("source")
    features = _expect(f"{place}.features", section.get("features", {}), dict)
    limits = _expect(f"{place}.limits", section.get("limits", {}), dict)
    _check_fields(f"{place}.limits", limits, LIMITS)
    for limit, value in limits.items():
        numbers: Any = int | float if limit in _FRACTIONS else int
        if isinstance(value, bool) or not isinstance(value, numbers) or value <= 0:
            kind = "number" if limit in _FRACTIONS else "whole number"
            raise InputError(f"{place}.limits.{limit} must be a {kind} above 0, but is {value!r}")
    return TableSetting(
        name,
        None if source is None else _find(_expect(f"{place}.source", source, str), folder),
        None if "model" not in section else _expect(f"{place}.model", section["model"], str),
        tuple(
            f"{axis}={_find(_expect(f'{place}.features.{axis}', file, str), folder)}"
            for axis, file in features.items()
        ),
        _expect(f"{place}.read-only", section.get("read-only", False), bool),
        {limit.replace("-", "_"): value for limit, value in limits.items()},
    )


def _token(section: Any) -> TokenSetting:
    section = _expect("tokens", section, dict)
    _check_fields("tokens", section, ("role", "table", "token"))
    for needed in ("role", "token"):
        if needed not in section:
            raise InputError(f"tokens must each have role and token, but one has no {needed}")
    for name, value in section.items():
        if not isinstance(value, str):  # the value stays out of the error
            raise InputError(f"tokens.{name} must be a text, but one is {type(value).__name__}")
    return TokenSetting(**section)


def _find(source: str, folder: Path) -> str:
    """A file relative to the folder of the configuration, or the name of a dataset."""
    return str(folder / source) if (folder / source).exists() else source


def _expect(place: str, value: Any, kind: type) -> Any:
    names = {dict: "a section", list: "a list", str: "a text", bool: "true or false"}
    if not isinstance(value, kind):
        raise InputError(f"{place} must be {names[kind]}, but is {str(value)[:60]!r}")
    return value


def _check_fields(place: str, section: Mapping[str, Any], known: Sequence[str]) -> None:
    for name in section:
        if name not in known:
            raise InputError(
                f"{place} may have {', '.join(known)}, but has {name[:60]!r}"
                f"{did_you_mean(name, known)}"
            )
