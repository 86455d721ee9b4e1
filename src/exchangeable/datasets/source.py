"""Sources of datasets: the data folder, the cache, or else their publishers.

Files are looked up in the folder that ``EXCHANGEABLE_DATA`` names, then in the user's cache, and
then downloaded into the cache: to a temporary file first, so that the cache never holds half a
file. Archives are read as they are; nothing is unpacked to disk.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from exchangeable.data.features import MemberFeatures
from exchangeable.data.splits import Split
from exchangeable.data.table import Table
from exchangeable.datasets.checksums import SHA256
from exchangeable.errors import InputError
from exchangeable.files.text import Layout, TextFile


@dataclass(frozen=True)
class Source:
    """A dataset as its publisher offers it."""

    name: str
    title: str
    licence: str
    citation: str
    page: str
    """Where it can be obtained: a web page, or a package."""
    archive: str | None = None
    """Path of its archive below the data folder, if it comes in one."""
    urls: Mapping[str, str] = field(default_factory=dict)
    """URL of each file, by its path below the data folder; empty if it cannot be downloaded."""
    main: str | None = None
    """A file that is there if the archive was unpacked."""

    def read(self, path: str) -> bytes:
        """Read a file of the dataset, by its path below the data folder, or inside the archive."""
        for root in roots():
            if (root / path).is_file():
                return _read_checked(root / path, path)
            if self.archive is not None and (root / self.archive).is_file():
                _read_checked(root / self.archive, self.archive)
                return self._read_inside(root / self.archive, path)
        fetched = self.fetch(self.archive or path)
        return self._read_inside(fetched, path) if self.archive else fetched.read_bytes()

    def locate(self, path: str) -> Path | None:
        """Find a file that is there already, and check it; or the folder of an unpacked archive."""
        for root in roots():
            if (root / path).is_file():
                _read_checked(root / path, path)
                return root / path
            if path == self.archive and self.main and (root / self.main).is_file():
                return (root / self.main).parent
        return None

    def open_text(
        self, path: str, separator: str, columns: tuple[str, ...], *, header: bool
    ) -> TextFile:
        """Open a text file whose layout is known."""
        content = self.read(path)
        if separator == "::":
            content = content.replace(b"::", b"\x1f")
        if header:
            first = content.split(b"\n", 1)[0].decode("utf-8-sig", "replace").strip()
            if first.split(separator) != list(columns):
                raise InputError(
                    f"{path}: line 1: columns {', '.join(columns)} are needed, but this is "
                    f"{first!r}"
                )
        layout = Layout(path, separator, header, columns, quoted=separator == ",")
        return TextFile(layout, content)

    def fetch(self, path: str) -> Path:
        """Download a file into the cache, unless it is there, and check or record its hash."""
        target = cache() / path
        if target.is_file():
            _read_checked(target, path)
            return target
        url = self.urls.get(path)
        if not url:
            raise InputError(
                f"{self.name}: {path} is not there and cannot be downloaded; get it from "
                f"{self.page} and put it into {_target_folder(path)}"
            )
        _download(self, path, url, target)
        _read_checked(target, path)
        return target

    def hash_known(self, path: str) -> bool:
        """Whether the file's hash comes with the package; otherwise it is recorded at first use."""
        return path in SHA256

    def _read_inside(self, archive: Path, path: str) -> bytes:
        try:
            with zipfile.ZipFile(archive) as opened:
                return opened.read(path)
        except KeyError:
            raise InputError(f"{archive}: {path} is needed inside, but is not there") from None
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise InputError(f"{archive}: the archive is damaged ({error})") from None


@dataclass(frozen=True, eq=False)
class Dataset:
    """A dataset as loaded: its table, and what its publisher provides with it."""

    source: Source
    table: Table
    splits: Mapping[str, Split] = field(default_factory=dict)
    features: Mapping[int, MemberFeatures] = field(default_factory=dict)
    """Features of the members of an axis, by the number of the axis."""
    graphs: Mapping[int, NDArray[np.float64]] = field(default_factory=dict)
    """Graph or similarity of the members of an axis, (N, N), by the number of the axis."""


def roots() -> list[Path]:
    """Return the folders in which files are looked up."""
    named = os.environ.get("EXCHANGEABLE_DATA")
    return [*([Path(named)] if named else []), cache()]


def cache() -> Path:
    import pooch

    return Path(pooch.os_cache("exchangeable"))


def text_frame(content: bytes, separator: str, columns: list[str]) -> pl.DataFrame:
    """Parse a small Latin-1 text without a header as a frame of strings."""
    text = content.decode("latin-1").replace(separator, "\x1f")
    return pl.read_csv(
        io.StringIO(text),
        has_header=False,
        separator="\x1f",
        quote_char=None,
        schema=dict.fromkeys(columns, pl.String),
    )


def _read_checked(location: Path, path: str) -> bytes:
    """Read a file; raise unless its hash is the published one, or the one of its first use."""
    content = location.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    expected = SHA256.get(path) or _recorded_hash(location, path, digest)
    if digest != expected:
        raise InputError(
            f"{location}: the file is damaged or another version: sha256 must be "
            f"{expected[:12]}..., but is {digest[:12]}..."
        )
    return content


def _recorded_hash(location: Path, path: str, digest: str) -> str:
    """Return the hash recorded for a file in the cache, or record it; others are not recorded."""
    if cache() not in location.parents:
        return digest
    record = cache() / "sha256.json"
    try:
        hashes = json.loads(record.read_text()) if record.is_file() else {}
    except json.JSONDecodeError:
        raise InputError(f"{record}: the list of hashes is damaged; remove it") from None
    if path not in hashes:
        hashes[path] = digest
        temporary = record.with_suffix(f".{os.getpid()}.new")  # two processes may write at once
        temporary.write_text(json.dumps(hashes, indent=1))
        temporary.replace(record)
    return str(hashes[path])


def _download(source: Source, path: str, url: str, target: Path) -> None:
    import pooch

    target.parent.mkdir(parents=True, exist_ok=True)
    pooch.get_logger().setLevel("ERROR")  # the progress bar is enough
    try:
        pooch.retrieve(
            url,
            known_hash=SHA256.get(path),
            fname=target.name,
            path=target.parent,
            progressbar=_Progress(f"{source.name}: {target.name}"),
        )
    except Exception as error:  # requests and pooch raise many kinds; all mean the same here
        reason = type(error).__name__
        raise InputError(
            f"{source.name}: {path} could not be downloaded from {url} ({reason}); get it from "
            f"{source.page} and put it into {_target_folder(path)}"
        ) from None


def _target_folder(path: str) -> str:
    named = os.environ.get("EXCHANGEABLE_DATA")
    return str((Path(named) if named else cache()) / path)


class _Progress:
    """A progress bar with the methods that pooch calls, drawn by rich."""

    def __init__(self, title: str) -> None:
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

        self.total = 0
        self._bar = Progress(TextColumn(title), BarColumn(), DownloadColumn(), transient=True)
        self._task = self._bar.add_task(title, total=None)
        self._bar.start()

    def update(self, size: int) -> None:
        self._bar.update(self._task, advance=size, total=self.total or None)

    def reset(self) -> None:
        self._bar.reset(self._task)

    def close(self) -> None:
        self._bar.stop()
