"""Folders that are replaced whole: a save may be killed at any moment, and loses nothing.

    1. write .NAME.new-PID      2. rename NAME to .NAME.old      3. rename .NAME.new-PID to NAME

Killed between 2 and 3 it leaves no NAME, but a whole ``.NAME.old``, which is taken back.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from reprlib import repr as brief

from exchangeable.errors import InputError

MANIFEST = "manifest.json"
"""The file that makes a folder one of ours."""


def folder_of(path: str | os.PathLike[str]) -> Path:
    """The folder meant, links followed, so that a link to a checkpoint is not what is replaced."""
    try:
        folder = Path(path).resolve()
    except (OSError, ValueError, RuntimeError, TypeError) as error:
        raise InputError(f"a path was needed, but {brief(path)} came: {reason(error)}") from error
    if not folder.name:
        raise InputError(f"the path of a folder with a name was needed, but {folder} came")
    return folder


def sibling(folder: Path, suffix: str) -> Path:
    return folder.with_name(f".{folder.name}.{suffix}")


def old_of(folder: Path) -> Path:
    return sibling(folder, "old")


def place_of(folder: Path) -> Path:
    """Where the checkpoint lies. One that a dead save set aside is brought back, if it can be."""
    old = old_of(folder)
    if os.path.lexists(folder) or not is_saved(old):
        return folder
    # A living save may be between its renames, and finds its target taken if we bring it back.
    if not any(_is_alive(pid) for pid in _writers(folder)):
        with suppress(OSError):  # such as a disk that can only be read
            os.rename(old, folder)
            return folder
    return old


def tidy(folder: Path) -> None:
    """Bring back or clear away what dead saves have left."""
    for pid, left in _writers(folder).items():
        if not _is_alive(pid):
            shutil.rmtree(left, ignore_errors=True)
    place_of(folder)
    if is_saved(folder):
        _discard_old(folder)


def _discard_old(folder: Path) -> None:
    """Delete what was set aside, under another name: half of it must never be brought back."""
    if is_saved(old_of(folder)):
        doomed = sibling(folder, f"new-{os.getpid()}")
        os.rename(old_of(folder), doomed)
        shutil.rmtree(doomed, ignore_errors=True)


def write(new: Path, contents: Mapping[str, bytes]) -> None:
    new.mkdir()
    for name, content in contents.items():
        with open(new / name, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    _sync(new)


def swap(new: Path, folder: Path) -> None:
    """Put the new folder in the place of the old one, or leave all as it was."""
    moves = [(new, folder)]
    if is_saved(folder):
        moves.insert(0, (folder, old_of(folder)))
    try:
        for here, there in moves:
            os.rename(here, there)
        _sync(folder.parent)
    except (OSError, KeyboardInterrupt):
        for here, there in reversed(moves):
            with suppress(OSError):  # what was not moved cannot be moved back
                os.rename(there, here)
        raise
    with suppress(OSError):  # the new one is in place, and the next save tries again
        _keep_others(folder)
        _discard_old(folder)


def _keep_others(folder: Path) -> None:
    """What somebody else put into the old folder goes over to the new one."""
    old = old_of(folder)
    with suppress(OSError, ValueError, KeyError, TypeError):
        ours = {MANIFEST, *json.loads((old / MANIFEST).read_bytes())["files"]}
        for name in set(os.listdir(old)) - ours - set(os.listdir(folder)):
            os.rename(old / name, folder / name)


def _sync(folder: Path) -> None:
    """Make the names in a folder last through a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _writers(folder: Path) -> dict[int, Path]:
    """Processes that are writing here, or died when they were, with their folders."""
    form = re.compile(re.escape(sibling(folder, "new-").name) + r"([1-9][0-9]{0,8})")
    with suppress(OSError):
        found = [(form.fullmatch(name), name) for name in os.listdir(folder.parent)]
        return {int(match[1]): folder.parent / name for match, name in found if match}
    return {}


def _is_alive(pid: int) -> bool:
    """Whether another process has this number; what this very one left is not being written."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return pid != os.getpid()


def is_saved(folder: Path) -> bool:
    return os.path.isfile(folder / MANIFEST)


def check_replaceable(folder: Path) -> None:
    there = what_is(folder)
    if there not in ("nothing", "an empty folder", "a checkpoint"):
        raise InputError(f"a checkpoint replaces only another, but at {folder} there is {there}")


def what_is(folder: Path) -> str:
    if not os.path.lexists(folder):
        return "nothing"
    if not os.path.isdir(folder):
        return "a file"
    if is_saved(folder):
        return "a checkpoint"
    with suppress(OSError):
        return f"a folder without {MANIFEST}" if os.listdir(folder) else "an empty folder"
    return "a folder that cannot be read"


def identity(folder: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        told = os.stat(folder)
        return told.st_ino, told.st_mtime_ns
    return None


def reason(error: BaseException) -> str:
    """What went wrong, in one line."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(str(error).split())[:200] or type(error).__name__
