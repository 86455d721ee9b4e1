"""Files that appear only when they are complete."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from exchangeable.errors import Failed


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a path beside ``path`` to write to; it is renamed when all of it is on the disk."""
    target = path.resolve()  # a link stays, and the file behind it is replaced
    temporary = target.with_name(f".{target.name}.new-{os.getpid()}")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(target)
    except OSError as error:
        raise Failed(f"{path} could not be written: {error.strerror or error}") from None
    finally:
        temporary.unlink(missing_ok=True)
