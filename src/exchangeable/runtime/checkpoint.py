"""Checkpoints: folders of plain files that are complete or absent, and never executed.

    config.json            the configuration from which the model is rebuilt
    model.safetensors      its weights; further tensors have files of their own
    README.md              the model card
    manifest.json          size and sha256 of every file, versions, and facts such as metrics

A save writes a new folder beside the old one and swaps the two (``folders``), so that a
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
from exchangeable.runtime.folders import MANIFEST, describe, one_line

FORMAT = 1
"""Version of the format; raised when older versions of this package could not read it."""

MAX_MANIFEST_BYTES = 2**24
"""A larger manifest is not read, as its size is recorded nowhere."""

CONFIG, CARD, TENSORS = "config.json", "README.md", ".safetensors"
PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The contents of a saved folder, every byte of them verified."""

    config: dict[str, Any]
    tensors: dict[str, dict[str, Tensor]] = field(repr=False)
    """Tensors by file, "model" and others; on the CPU."""
    files: dict[str, bytes] = field(repr=False)
    """Further files."""
    facts: dict[str, Any]
    """Facts of the manifest: those that were saved, and ``versions``."""


def save(
    path: str | os.PathLike[str],
    config: Mapping[str, Any],
    tensors: Mapping[str, Mapping[str, Tensor]],
    *,
    card: str,
    facts: Mapping[str, Any] = {},
    files: Mapping[str, bytes] = {},
) -> None:
    """Save a checkpoint at ``path`` in place of the one there; if that fails, the old one stays.

    Config and facts are stored as JSON: tuples are loaded as lists, and all keys as text.
    """
    folder = folders.resolve_folder(path)
    contents = _encode_files(config, tensors, card, files)
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
        raise Failed(f"{folder} could not be saved: {one_line(error)}; {left}") from error
    except KeyboardInterrupt:
        shutil.rmtree(new, ignore_errors=True)
        raise


def load(path: str | os.PathLike[str]) -> Checkpoint:
    """Read the checkpoint at ``path``; raise if a file is not as it was saved."""
    folder = folders.resolve_folder(path)
    while True:
        source = folders.find_saved(folder)
        before = folders.identity(source)
        try:
            return _read(source)
        except InputError:
            # A save that swapped the folders meanwhile mixes one's manifest with another's files.
            if folders.identity(folders.find_saved(folder)) == before:
                raise


def exists(path: str | os.PathLike[str]) -> bool:
    """Whether there is a checkpoint to load at ``path``, or one that a dead save set aside."""
    folder = folders.resolve_folder(path)
    return folders.is_saved(folder) or (
        not os.path.lexists(folder) and folders.is_saved(folders.old_folder(folder))
    )


def fingerprint(*arrays: NDArray[Any]) -> str:
    """Return the sha256 of the arrays' dtypes, shapes and bytes: equal for equal data.

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


# Writing ---------------------------------------------------------------------------------


def _encode_files(
    config: Mapping[str, Any],
    tensors: Mapping[str, Mapping[str, Tensor]],
    card: str,
    files: Mapping[str, bytes],
) -> dict[str, bytes]:
    """Return every file but the manifest, as bytes."""
    if "model" not in tensors:
        raise InputError(f'tensors must hold those of "model", but hold {brief(list(tensors))}')
    if not isinstance(config, Mapping):
        raise InputError(f"config must be a mapping, but is {brief(config)}")
    contents = {CONFIG: _json("config", dict(config)), CARD: card.encode(errors="replace")}
    contents |= {f"{name}{TENSORS}": _pack(name, group) for name, group in tensors.items()}
    for name, content in files.items():
        if name in contents or name == MANIFEST or name.endswith(TENSORS):
            raise InputError(f"a further file needs a name of its own, but is called {name}")
        contents[name] = bytes(content)
    for name in contents:
        if not PLAIN_NAME.fullmatch(name):
            raise InputError(f"a file needs a plain name, but is called {brief(name)}")
    return contents


def _pack(name: str, tensors: Mapping[str, Tensor]) -> bytes:
    """Encode tensors as safetensors, each a dense copy: views may share their memory."""
    if "__metadata__" in tensors:  # reserved by the format
        raise InputError(f"{name} must hold plain tensors, but one is called __metadata__")
    try:
        return safetensors.torch.save({key: _copy(tensor) for key, tensor in tensors.items()})
    except (*_UNPACKABLE, AttributeError) as error:
        raise InputError(f"{name} must hold plain tensors, but {one_line(error)}") from error


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)


def _manifest(contents: Mapping[str, bytes], facts: Mapping[str, Any]) -> bytes:
    """Build the manifest, which includes the hash of itself without that hash."""
    content = {
        "format": FORMAT,
        "files": {name: {"size": len(b), "sha256": _sha256(b)} for name, b in contents.items()},
        "versions": {
            "exchangeable": __version__,
            "python": platform.python_version(),
            "torch": str(torch.__version__),
        },
        "facts": {key: value for key, value in facts.items() if key != "versions"},
    }
    manifest = _json("facts", content | {"sha256": _sha256(_json("facts", content))})
    if len(manifest) > MAX_MANIFEST_BYTES:
        raise InputError(
            f"facts must fit in {MAX_MANIFEST_BYTES:,} bytes, but take {len(manifest):,}"
        )
    return manifest


def _json(name: str, value: Any) -> bytes:
    """Encode as JSON, always in the same way."""
    try:
        return (json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{name} must be JSON without NaN, but {one_line(error)}") from error


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


# Reading ---------------------------------------------------------------------------------


def _read(folder: Path) -> Checkpoint:
    manifest = _read_manifest(folder)
    contents = {
        name: _read_listed(folder, name, entry) for name, entry in manifest["files"].items()
    }
    config = _parse_json(folder / CONFIG, contents.pop(CONFIG))
    del contents[CARD]
    packed = [name for name in contents if name.endswith(TENSORS)]
    return Checkpoint(
        config=config,
        tensors={
            name.removesuffix(TENSORS): _unpack(folder / name, contents.pop(name))
            for name in packed
        },
        files=contents,
        facts=manifest["facts"] | {"versions": manifest["versions"]},
    )


def _read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest; raise unless every bit of it is as it was written."""
    path = folder / MANIFEST
    if not folders.is_saved(folder):
        raise InputError(f"a checkpoint was needed, but at {folder} there is {describe(folder)}")
    content = _bytes(path, MAX_MANIFEST_BYTES)
    manifest = _parse_json(path, content)
    hashed = {key: value for key, value in manifest.items() if key != "sha256"}
    # The bytes must be the ones that are written here: JSON has many forms of the same content.
    intact = manifest.get("sha256") == _sha256(_json(str(path), hashed))
    if not intact or _json(str(path), manifest) != content:
        raise InputError(f"{path} must be as it was saved, but was altered")
    _check_manifest(path, manifest)
    return manifest


def _check_manifest(path: Path, manifest: dict[str, Any]) -> None:
    """Raise unless a manifest has all that is needed; its hash only shows that it is intact."""
    for key, kind in {"format": int, "files": dict, "versions": dict, "facts": dict}.items():
        if type(manifest.get(key)) is not kind:
            raise InputError(f"{path} must hold {key}, but holds {brief(manifest.get(key))}")
    if manifest["format"] != FORMAT:
        raise InputError(
            f"{path} has format {brief(manifest['format'])} and needs exchangeable "
            f"{brief(manifest['versions'].get('exchangeable'))} or later, but this is "
            f"{__version__}, which reads format {FORMAT}"
        )
    for name in (CONFIG, CARD, f"model{TENSORS}"):
        if name not in manifest["files"]:
            raise InputError(f"{path} must list {name}, but does not")
    for name, entry in manifest["files"].items():
        if not PLAIN_NAME.fullmatch(name):
            raise InputError(f"{path} must list plain names of files, but lists {brief(name)}")
        if not isinstance(entry, dict) or type(entry.get("size")) is not int:
            raise InputError(f"{path} must hold the size of {name}, but does not")


def _read_listed(folder: Path, name: str, entry: dict[str, Any]) -> bytes:
    """Read a file; raise unless it has the size and the hash of its entry in the manifest."""
    path, size = folder / name, entry["size"]
    content = _bytes(path, size)
    if len(content) != size:
        raise InputError(f"{path} must have {size:,} bytes, but has {len(content):,}")
    if _sha256(content) != entry.get("sha256"):
        raise InputError(f"{path} must be as it was saved, but its sha256 is another")
    return content


def _bytes(path: Path, max_size: int) -> bytes:
    """Read a whole file; raise if it is larger than ``max_size``."""
    try:
        # Without O_NONBLOCK opening a pipe in a file's place would block.
        with open(path, "rb", opener=lambda p, flags: os.open(p, flags | os.O_NONBLOCK)) as file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode):
                raise InputError(f"{path} must be a file, but is not a regular one")
            if info.st_size > max_size:
                raise InputError(
                    f"{path} must have at most {max_size:,} bytes, but has {info.st_size:,}"
                )
            return file.read(info.st_size)
    except OSError as error:
        raise InputError(f"{path} must be a readable file, but: {one_line(error)}") from error


def _parse_json(path: Path, content: bytes) -> dict[str, Any]:
    try:
        value = json.loads(content.decode(), parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} must be JSON, but is not: {one_line(error)}") from error
    if not isinstance(value, dict):
        raise InputError(f"{path} must be a JSON object, but is {brief(value)}")
    return value


def _reject_constant(constant: str) -> NoReturn:
    raise ValueError(f"it holds {constant}")


_UNPACKABLE = (safetensors.SafetensorError, KeyError, RuntimeError, TypeError, ValueError)


def _unpack(path: Path, content: bytes) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load(content)
    except _UNPACKABLE as error:
        raise InputError(f"{path} must hold tensors, but does not: {one_line(error)}") from error
