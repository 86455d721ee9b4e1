"""Locks between processes: a file that one of them holds, until it ends, however it ends."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import IO


class FileLock:
    """A file that at most one process of this machine holds."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[bytes] | None = None

    def acquire(self) -> bool:
        """Hold the file, unless another one does; return whether nobody else holds it now.

        Where files cannot be written or locked, nobody does.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            file = self.path.open("ab")
        except OSError:
            return True
        try:
            _lock(file)
        except BlockingIOError:
            file.close()
            return False
        except OSError:  # a file system without locks
            pass
        self._file = file
        return True

    def release(self) -> None:
        """Let another process hold the file, which stays where it is."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _lock(file: IO[bytes]) -> None:
    """Lock an open file; raise ``BlockingIOError`` if another one has."""
    if sys.platform == "win32":
        import msvcrt

        with suppress(OSError):
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            return
        raise BlockingIOError
    import fcntl

    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
