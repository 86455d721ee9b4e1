"""A file appears whole, once it is on the disk, or not at all."""

import errno
import os
from pathlib import Path

import pytest

from exchangeable.errors import Failed
from exchangeable.runtime.files import whole_file


def write(path, text):
    with whole_file(path) as target:
        target.write_text(text, encoding="utf-8")


def test_a_file_is_on_the_disk_before_it_takes_its_name(tmp_path, monkeypatch):
    """Otherwise a loss of power could leave an empty file in the place of the one before."""
    events, fsync, rename = [], os.fsync, Path.replace

    def noted_fsync(descriptor):
        fsync(descriptor)
        written = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        events.append(("on the disk", written.name, written.read_text(encoding="utf-8")))

    def noted_rename(self, target):
        events.append(("renamed", self.name, Path(target).name))
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(Path, "replace", noted_rename)
    write(tmp_path / "out.csv", "user,film")
    temporary = f".out.csv.new-{os.getpid()}"
    assert events == [
        ("on the disk", temporary, "user,film"),
        ("renamed", temporary, "out.csv"),
    ]


def test_a_file_that_cannot_be_made_durable_leaves_the_one_before(tmp_path, monkeypatch):
    path = tmp_path / "out.csv"
    write(path, "before")

    def refuse(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(Failed, match="could not be written: No space left"):
        write(path, "after")
    assert path.read_text(encoding="utf-8") == "before"
    assert os.listdir(tmp_path) == ["out.csv"]
