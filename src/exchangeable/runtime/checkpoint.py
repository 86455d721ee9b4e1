"""A saved model: a folder of plain files that is whole or not there, and is never executed.

    config.json            what is needed to rebuild the model
    model.safetensors      its weights; further tensors lie in files of their own
    README.md              the model card
    manifest.json          size and sha256 of every file, versions, and facts such as metrics

A save writes a new folder beside the old one and swaps the two (``swapping``), so that a
process may be killed at any moment.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from reprlib import repr as brief
from typing import Any, NoReturn

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor

from exchangeable._version import __version__
from exchangeable.errors import Failed, InputError
from exchangeable.runtime import folders
from exchangeable.runtime.folders import MANIFEST, reason, what_is

FORMAT = 1
"""Raised when older versions of this package could not read what this one writes."""

MOST_MANIFEST = 2**24
"""Bytes. A larger manifest is not read, as its size stands nowhere to be checked."""

CONFIG, CARD, TENSORS = "config.json", "README.md", ".safetensors"
PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """What was saved, every byte of it verified."""

    config: dict[str, Any]
    tensors: dict[str, dict[str, Tensor]] = field(repr=False)
    """By file, "model" and others; on the CPU."""
    files: dict[str, bytes] = field(repr=False)
    """Whatever else was given to be kept."""
    facts: dict[str, Any]
    """What the manifest tells beside the hashes: those given, and ``versions``."""


def save(
    path: str | os.PathLike[str],
    config: Mapping[str, Any],
    tensors: Mapping[str, Mapping[str, Tensor]],
    *,
    card: str,
    facts: Mapping[str, Any] = {},
    files: Mapping[str, bytes] = {},
) -> None:
    """Put a checkpoint at ``path``, in place of the one there; if that fails, the old one stays.

    Config and facts are kept as JSON has them: tuples come back as lists, and all keys as text.
    """
    folder = folders.folder_of(path)
    contents = _contents(config, tensors, card, files)
    contents[MANIFEST] = _manifest(contents, facts)
    new = folders.sibling(folder, f"new-{os.getpid()}")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folders.tidy(folder)
        folders.check_replaceable(folder)
        folders.write(new, contents)
        folders.swap(new, folder)
    except OSError as error:
        shutil.rmtree(new, ignore_errors=True)
        left = "the previous checkpoint there is intact" if exists(folder) else "none was there"
        raise Failed(f"{folder} could not be saved: {reason(error)}; {left}") from error
    except KeyboardInterrupt:
        shutil.rmtree(new, ignore_errors=True)
        raise


def load(path: str | os.PathLike[str]) -> Checkpoint:
    """Read the checkpoint at ``path``; a file that is not as it was saved is refused."""
    folder = folders.folder_of(path)
    while True:
        place = folders.place_of(folder)
        before = folders.identity(place)
        try:
            return _read(place)
        except InputError:
            # A save that swapped the folders meanwhile shows one's manifest and another's files.
            if folders.identity(folders.place_of(folder)) == before:
                raise


def exists(path: str | os.PathLike[str]) -> bool:
    """Whether there is a checkpoint to load at ``path``, also one that a dead save set aside."""
    folder = folders.folder_of(path)
    return folders.is_saved(folder) or (
        not os.path.lexists(folder) and folders.is_saved(folders.old_of(folder))
    )


def fingerprint(*arrays: NDArray[Any]) -> str:
    """The sha256 of the arrays' dtypes, shapes and bytes: the same if they are the same data.

    >>> fingerprint(np.arange(3)) == fingerprint(np.arange(6)[:3])
    True
    """
    digest = hashlib.sha256()
    for array in map(np.asarray, arrays):
        if array.dtype.hasobject:
            raise InputError(f"a fingerprint needs plain values, but the array is {array.dtype}")
        digest.update(f"{array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


# What is written.


def _contents(
    config: Mapping[str, Any],
    tensors: Mapping[str, Mapping[str, Tensor]],
    card: str,
    files: Mapping[str, bytes],
) -> dict[str, bytes]:
    """Every file but the manifest, as bytes."""
    if "model" not in tensors:
        raise InputError(f'tensors must hold those of "model", but hold {brief(list(tensors))}')
    if not isinstance(config, Mapping):
        raise InputError(f"config must be a mapping, but is {brief(config)}")
    contents = {CONFIG: _json("config", dict(config)), CARD: card.encode(errors="replace")}
    contents |= {f"{name}{TENSORS}": _packed(name, group) for name, group in tensors.items()}
    for name, content in files.items():
        if name in contents or name == MANIFEST or name.endswith(TENSORS):
            raise InputError(f"a further file needs a name of its own, but is called {name}")
        contents[name] = bytes(content)
    for name in contents:
        if not PLAIN_NAME.fullmatch(name):
            raise InputError(f"a file needs a plain name, but is called {brief(name)}")
    return contents


def _packed(name: str, tensors: Mapping[str, Tensor]) -> bytes:
    """Tensors in the safetensors format, each a dense copy: views may share their memory."""
    if "__metadata__" in tensors:  # the format has it for something else
        raise InputError(f"{name} must hold plain tensors, but one is called __metadata__")
    try:
        return safetensors.torch.save({key: _copied(tensor) for key, tensor in tensors.items()})
    except (*_UNPACKABLE, AttributeError) as error:
        raise InputError(f"{name} must hold plain tensors, but {reason(error)}") from error


def _copied(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)


def _manifest(contents: Mapping[str, bytes], facts: Mapping[str, Any]) -> bytes:
    """The manifest, which ends up holding the hash of itself without that hash."""
    told = {
        "format": FORMAT,
        "files": {name: {"size": len(b), "sha256": _sha256(b)} for name, b in contents.items()},
        "versions": {
            "exchangeable": __version__,
            "python": platform.python_version(),
            "torch": str(torch.__version__),
        },
        "facts": {key: value for key, value in facts.items() if key != "versions"},
    }
    manifest = _json("facts", told | {"sha256": _sha256(_json("facts", told))})
    if len(manifest) > MOST_MANIFEST:
        raise InputError(f"facts must fit in {MOST_MANIFEST:,} bytes, but take {len(manifest):,}")
    return manifest


def _json(what: str, value: Any) -> bytes:
    try:
        return (json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{what} must be JSON without NaN, but {reason(error)}") from error


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


# How it is read.


def _read(folder: Path) -> Checkpoint:
    manifest = _read_manifest(folder)
    contents = {name: _read_listed(folder, name, of) for name, of in manifest["files"].items()}
    config = _parsed(folder / CONFIG, contents.pop(CONFIG))
    del contents[CARD]
    packed = [name for name in contents if name.endswith(TENSORS)]
    return Checkpoint(
        config=config,
        tensors={
            name.removesuffix(TENSORS): _unpacked(folder / name, contents.pop(name))
            for name in packed
        },
        files=contents,
        facts=manifest["facts"] | {"versions": manifest["versions"]},
    )


def _read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest, if every bit of it is as it was written."""
    path = folder / MANIFEST
    if not folders.is_saved(folder):
        raise InputError(f"a checkpoint was needed, but at {folder} there is {what_is(folder)}")
    content = _bytes(path, MOST_MANIFEST)
    manifest = _parsed(path, content)
    told = {key: value for key, value in manifest.items() if key != "sha256"}
    # The bytes must be the ones we would write: JSON can say the same in many ways.
    unharmed = manifest.get("sha256") == _sha256(_json(str(path), told))
    if not unharmed or _json(str(path), manifest) != content:
        raise InputError(f"{path} must be as it was saved, but was altered")
    _check_manifest(path, manifest)
    return manifest


def _check_manifest(path: Path, manifest: dict[str, Any]) -> None:
    """That a manifest, of any format, says what it must; its hash only shows it is unharmed."""
    for key, kind in {"format": int, "files": dict, "versions": dict, "facts": dict}.items():
        if type(manifest.get(key)) is not kind:
            raise InputError(f"{path} must tell {key}, but tells {brief(manifest.get(key))}")
    if manifest["format"] != FORMAT:
        raise InputError(
            f"{path} has format {brief(manifest['format'])} and needs exchangeable "
            f"{brief(manifest['versions'].get('exchangeable'))} or later, but this is "
            f"{__version__}, which reads format {FORMAT}"
        )
    for name in (CONFIG, CARD, f"model{TENSORS}"):
        if name not in manifest["files"]:
            raise InputError(f"{path} must list {name}, but does not")
    for name, told in manifest["files"].items():
        if not PLAIN_NAME.fullmatch(name):
            raise InputError(f"{path} must list plain names of files, but lists {brief(name)}")
        if not isinstance(told, dict) or type(told.get("size")) is not int:
            raise InputError(f"{path} must tell the size of {name}, but does not")


def _read_listed(folder: Path, name: str, told: dict[str, Any]) -> bytes:
    """A file of the size and the hash that the manifest tells."""
    path, size = folder / name, told["size"]
    content = _bytes(path, size)
    if len(content) != size:
        raise InputError(f"{path} must have {size:,} bytes, but has {len(content):,}")
    if _sha256(content) != told.get("sha256"):
        raise InputError(f"{path} must be as it was saved, but its sha256 is another")
    return content


def _bytes(path: Path, most: int) -> bytes:
    """All of a file, unless it is larger than it may be."""
    try:
        # Without O_NONBLOCK a pipe in a file's place would be waited for.
        with open(path, "rb", opener=lambda p, flags: os.open(p, flags | os.O_NONBLOCK)) as file:
            told = os.fstat(file.fileno())
            if not stat.S_ISREG(told.st_mode):
                raise InputError(f"{path} must be a file, but is not a regular one")
            if told.st_size > most:
                raise InputError(
                    f"{path} must have at most {most:,} bytes, but has {told.st_size:,}"
                )
            return file.read(told.st_size)
    except OSError as error:
        raise InputError(f"{path} must be a readable file, but: {reason(error)}") from error


def _parsed(path: Path, content: bytes) -> dict[str, Any]:
    try:
        value = json.loads(content.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} must be JSON, but is not: {reason(error)}") from error
    if not isinstance(value, dict):
        raise InputError(f"{path} must be a JSON object, but is {brief(value)}")
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"it holds {constant}")


_UNPACKABLE = (safetensors.SafetensorError, KeyError, RuntimeError, TypeError, ValueError)


def _unpacked(path: Path, content: bytes) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load(content)
    except _UNPACKABLE as error:
        raise InputError(f"{path} must hold tensors, but does not: {reason(error)}") from error
