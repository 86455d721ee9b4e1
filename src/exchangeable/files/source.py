"""Sources: files on disk, or bytes that came otherwise, without their compression."""

from __future__ import annotations

import gzip
import io
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from exchangeable.errors import InputError
from exchangeable.runtime.phrases import did_you_mean

Source = Path | bytes

START = 65536
"""Bytes at the start of a file that decide how it is read, if they hold two rows."""
MAX_START = 4 * 2**20
"""Bytes within which the first two rows must end."""
_MAX_NEIGHBOURS = 1000  # files of a folder that a misspelt name is compared with


def open_source(path: Path) -> Source:
    """Return the path of a plain file, or the bytes inside a compressed one; write nothing."""
    name = str(path)
    with _damage_as_input_error(name):
        if not path.exists():
            raise InputError(f"{name}: no such file{did_you_mean(path.name, _neighbours(path))}")
        if not path.is_file():
            what = "a directory" if path.is_dir() else "a pipe or device, which is read only once"
            raise InputError(f"{name}: a file is needed, but this is {what}")
        with path.open("rb") as file:
            content = _unpack(name, file)
        return path if content is None else content


def open_bytes(name: str, content: bytes) -> bytes:
    """Return bytes that came without a file, without their compression."""
    with _damage_as_input_error(name):
        unpacked = _unpack(name, io.BytesIO(content))
        return content if unpacked is None else unpacked


def read_start(source: Source, size: int = START) -> bytes:
    """Return the first bytes of a source."""
    if isinstance(source, bytes):
        return source[:size]
    with source.open("rb") as file:
        return file.read(size)


def read_all(source: Source) -> bytes:
    """Return all bytes of a source."""
    return source if isinstance(source, bytes) else source.read_bytes()


def _unpack(name: str, file: BinaryIO) -> bytes | None:
    """Return the content of an archive; None for a file that is none, or a spreadsheet."""
    start = file.read(4)
    file.seek(0)
    if not start:
        raise InputError(f"{name}: the file is empty")
    if start[:2] == b"\x1f\x8b":
        with gzip.open(file) as packed:
            return packed.read()
    return _unzip(name, file) if start == b"PK\x03\x04" else None


def _unzip(name: str, file: BinaryIO) -> bytes | None:
    with zipfile.ZipFile(file) as archive:
        files = [info for info in archive.infolist() if not _is_of_the_system(info)]
        if any(info.filename == "xl/workbook.xml" for info in files):
            return None
        if len(files) != 1:
            raise InputError(
                f"{name}: a zip must hold one file, but holds {len(files)}"
                + (f": {', '.join(f.filename for f in files[:3])}" if files else "")
            )
        inside = Path(files[0].filename)
        if inside.is_absolute() or ".." in inside.parts:
            raise InputError(f"{name}: the name {files[0].filename!r} leads out of the archive")
        if files[0].flag_bits & 1:
            raise InputError(f"{name}: the archive is encrypted; unpack it first")
        return archive.read(files[0])


def _is_of_the_system(info: zipfile.ZipInfo) -> bool:
    """Whether an entry of an archive is a folder, or one that macOS adds to every archive."""
    path = Path(info.filename)
    return info.is_dir() or "__MACOSX" in path.parts or path.name == ".DS_Store"


def _neighbours(path: Path) -> list[str]:
    """Return names of files in the folder where a file was not found."""
    try:
        with os.scandir(path.parent) as entries:
            return [entry.name for entry, _ in zip(entries, range(_MAX_NEIGHBOURS), strict=False)]
    except OSError:
        return []


@contextmanager
def _damage_as_input_error(name: str) -> Iterator[None]:
    try:
        yield
    except PermissionError:
        raise InputError(f"{name}: no permission to read the file") from None
    except (EOFError, gzip.BadGzipFile, zlib.error, zipfile.BadZipFile) as error:
        raise InputError(f"{name}: the archive is damaged or cut short ({error})") from None
    except NotImplementedError as error:
        raise InputError(f"{name}: the archive cannot be unpacked ({error})") from None
    except OSError as error:
        raise InputError(f"{name}: cannot be read ({error.strerror or error})") from None
