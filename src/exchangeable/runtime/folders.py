"""Folders that are replaced atomically: a save may be killed at any moment, and loses nothing.

    1. write .NAME.new-PID      2. rename NAME to .NAME.old      3. rename .NAME.new-PID to NAME

Killed between 2 and 3 it leaves no NAME, but a complete ``.NAME.old``, which is restored.
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
"""The file that marks a folder as a checkpoint."""


def resolve_folder(path: str | os.PathLike[str]) -> Path:
    """Resolve a path, so that a save replaces the folder behind a link and not the link."""
    try:
        folder = Path(path).resolve()
    except (OSError, ValueError, RuntimeError, TypeError) as error:
        raise InputError(f"a path was needed, but {brief(path)} came: {one_line(error)}") from error
    if not folder.name:
        raise InputError(f"the path of a folder with a name was needed, but {folder} came")
    return folder


def sibling(folder: Path, suffix: str) -> Path:
    """Return the hidden folder beside ``folder`` with this suffix."""
    return folder.with_name(f".{folder.name}.{suffix}")


def old_folder(folder: Path) -> Path:
    """Return the name under which a save sets the old folder aside."""
    return sibling(folder, "old")


def find_saved(folder: Path) -> Path:
    """Find the folder of the checkpoint; restore one that a dead save set aside, if possible."""
    old = old_folder(folder)
    if os.path.lexists(folder) or not is_saved(old):
        return folder
    # A living save may be between its renames; restoring the old folder would make it fail.
    if not any(_is_alive(pid) for pid in _writers(folder)):
        with suppress(OSError):  # for example on a read-only disk
            os.rename(old, folder)
            return folder
    return old


def tidy(folder: Path) -> None:
    """Restore or delete the leftovers of dead saves."""
    for pid, leftover in _writers(folder).items():
        if not _is_alive(pid):
            shutil.rmtree(leftover, ignore_errors=True)
    find_saved(folder)
    if is_saved(folder):
        _discard_old(folder)


def _discard_old(folder: Path) -> None:
    """Delete the old folder, renamed first: a half deleted one must never be restored."""
    if is_saved(old_folder(folder)):
        doomed = sibling(folder, f"new-{os.getpid()}")
        os.rename(old_folder(folder), doomed)
        shutil.rmtree(doomed, ignore_errors=True)


def write(new: Path, contents: Mapping[str, bytes]) -> None:
    """Write files to a new folder and sync them to the disk."""
    new.mkdir()
    for name, content in contents.items():
        with open(new / name, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    _sync(new)


def swap(new: Path, folder: Path) -> None:
    """Put the new folder in the place of the old one, or leave both as they were."""
    moves = [(new, folder)]
    if is_saved(folder):
        moves.insert(0, (folder, old_folder(folder)))
    try:
        for source, target in moves:
            os.rename(source, target)
        _sync(folder.parent)
    except (OSError, KeyboardInterrupt):
        for source, target in reversed(moves):
            with suppress(OSError):  # it was not moved
                os.rename(target, source)
        raise
    with suppress(OSError):  # the new one is in place, and the next save tries again
        _keep_others(folder)
        _discard_old(folder)


def _keep_others(folder: Path) -> None:
    """Move files that are not part of the checkpoint from the old folder to the new one."""
    old = old_folder(folder)
    with suppress(OSError, ValueError, KeyError, TypeError):
        ours = {MANIFEST, *json.loads((old / MANIFEST).read_bytes())["files"]}
        for name in set(os.listdir(old)) - ours - set(os.listdir(folder)):
            os.rename(old / name, folder / name)


def _sync(folder: Path) -> None:
    """Sync the names in a folder to the disk, so that they survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _writers(folder: Path) -> dict[int, Path]:
    """Return processes that write here, or died while they did, with their folders."""
    form = re.compile(re.escape(sibling(folder, "new-").name) + r"([1-9][0-9]{0,8})")
    with suppress(OSError):
        names = [(form.fullmatch(name), name) for name in os.listdir(folder.parent)]
        return {int(match[1]): folder.parent / name for match, name in names if match}
    return {}


def _is_alive(pid: int) -> bool:
    """Whether another process has this id; leftovers of this process are not being written."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return pid != os.getpid()


def is_saved(folder: Path) -> bool:
    """Whether there is a complete checkpoint."""
    return os.path.isfile(folder / MANIFEST)


def check_replaceable(folder: Path) -> None:
    """Raise unless a save may replace the folder."""
    there = describe(folder)
    if there not in ("nothing", "an empty folder", "a checkpoint"):
        raise InputError(f"a checkpoint replaces only another, but at {folder} there is {there}")


def describe(folder: Path) -> str:
    """Describe what is at a path, for error messages."""
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
    """Return inode and time of change, which differ after a swap; None without a folder."""
    with suppress(OSError):
        info = os.stat(folder)
        return info.st_ino, info.st_mtime_ns
    return None


def one_line(error: BaseException) -> str:
    """Describe an error in one line."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(str(error).split())[:200] or type(error).__name__
