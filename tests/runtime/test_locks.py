"""A file is held by one process, until that releases it or ends."""

import subprocess
import sys

from exchangeable.runtime.locks import FileLock

HOLD = """
import sys, time
from pathlib import Path
from exchangeable.runtime.locks import FileLock
print(FileLock(Path(sys.argv[1])).acquire(), flush=True)
lock = FileLock(Path(sys.argv[2]))
print(lock.acquire(), flush=True)
time.sleep(600)
"""


def test_one_of_two_holds_a_file(tmp_path):
    one, two = FileLock(tmp_path / "a" / "lock"), FileLock(tmp_path / "a" / "lock")
    assert one.acquire()
    assert not two.acquire()
    one.release()
    assert two.acquire()
    two.release()


def test_a_process_that_is_killed_holds_nothing_any_more(tmp_path):
    mine, other = FileLock(tmp_path / "mine"), FileLock(tmp_path / "other")
    assert mine.acquire()
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, mine.path, other.path], stdout=subprocess.PIPE, text=True
    ) as process:
        assert [process.stdout.readline().strip() for _ in range(2)] == ["False", "True"]
        assert not other.acquire()
        process.kill()
        process.wait()
        assert other.acquire()
    mine.release()
    other.release()


def test_where_nothing_can_be_written_nobody_holds_anything(tmp_path):
    (tmp_path / "file").write_text("no folder")
    assert FileLock(tmp_path / "file" / "lock").acquire()
