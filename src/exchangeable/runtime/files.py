"""Files that appear only when they are whole."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from exchangeable.errors import Failed


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a file beside ``path``, and put it there when all of it is on the disk."""
    place = path.resolve()  # a link stays one, and what it leads to is replaced
    temporary = place.with_name(f".{place.name}.new-{os.getpid()}")
    try:
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(place)
    except OSError as error:
        raise Failed(f"{path} could not be written: {error.strerror or error}") from None
    finally:
        temporary.unlink(missing_ok=True)
