"""A folder is replaced whole or not at all, whenever the process is killed and whatever fails."""

import errno
import os
import resource
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.checkpoints import hidden, number_at, put

from exchangeable.errors import Failed, InputError
from exchangeable.runtime import checkpoint
from exchangeable.runtime.checkpoint import exists, load


def test_a_later_save_replaces_all_of_the_earlier(tmp_path):
    put(tmp_path / "m", 1, files={"only-before": b""})
    put(tmp_path / "m", 2)
    assert number_at(tmp_path / "m") == 2
    assert not (tmp_path / "m" / "only-before").exists()
    assert os.listdir(tmp_path) == ["m"]


def test_a_link_to_a_checkpoint_stays_a_link(tmp_path):
    put(tmp_path / "real", 1)
    (tmp_path / "link").symlink_to("real")
    put(tmp_path / "link", 2)
    assert (tmp_path / "link").is_symlink()
    assert number_at(tmp_path / "real") == number_at(tmp_path / "link") == 2


def test_paths_may_be_relative_and_hold_any_letters(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in ("m", "a b*[c]", "é", "m.new-1", ".m"):
        put(path, 1)
        put(path, 2)
        assert number_at(path) == 2


class Killed(BaseException):
    """Stands for SIGKILL: no code of ours may catch it, and no call works after it."""


CALLS = ["fsync", "rename", "mkdir", "unlink", "rmdir", "listdir"]


def killed_at(call, monkeypatch, work):
    """Do the work, but die when it makes its n-th call to the system; whether it died."""
    made = 0

    def deadly(real):
        def made_or_killed(*args, **kwargs):
            nonlocal made
            made += 1
            if made > call:
                raise Killed
            return real(*args, **kwargs)

        return made_or_killed

    with monkeypatch.context() as patched:
        for name in CALLS:
            patched.setattr(os, name, deadly(getattr(os, name)))
        try:
            work()
        except Killed:
            return True
    return False


def ends(tmp_path, monkeypatch, work, prepare):
    """A folder for each call at which the work can be killed, left as the killed left it."""
    for call in range(1000):
        path = tmp_path / str(call) / "m"
        path.parent.mkdir()
        prepare(path)
        if not killed_at(call, monkeypatch, lambda path=path: work(path)):
            assert call > 10
            return
        yield path
    pytest.fail("never came to an end")


def test_a_save_killed_at_any_call_leaves_the_old_or_the_new(tmp_path, monkeypatch):
    found = []
    for path in ends(tmp_path, monkeypatch, lambda path: put(path, 2), put):
        assert exists(path)
        found.append(number_at(path))
        assert path.is_dir()
        put(path, 3)
        assert number_at(path) == 3
        assert os.listdir(path.parent) == ["m"]
    assert found == sorted(found)
    assert set(found) == {1, 2}


def test_a_first_save_killed_at_any_call_leaves_nothing_or_all(tmp_path, monkeypatch):
    found = []
    for path in ends(tmp_path, monkeypatch, lambda path: put(path, 2), lambda path: None):
        found.append(exists(path))
        if exists(path):
            assert number_at(path) == 2
        else:
            with pytest.raises(InputError, match=f"at {path} there is nothing"):
                load(path)
        put(path, 3)
        assert number_at(path) == 3
        assert os.listdir(path.parent) == ["m"]
    assert set(found) == {False, True}


def test_everything_is_on_the_disk_before_it_is_relied_on(tmp_path, monkeypatch):
    put(tmp_path / "m", 1)
    events, fsync, rename = [], os.fsync, os.rename

    def noted_fsync(descriptor):
        fsync(descriptor)
        events.append(os.readlink(f"/proc/self/fd/{descriptor}"))

    def noted_rename(here, there):
        events.append(Path(there).name.split("-")[0])
        rename(here, there)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "rename", noted_rename)
    put(tmp_path / "m", 2)
    new = tmp_path / f".m.new-{os.getpid()}"
    files = [str(new / name) for name in os.listdir(tmp_path / "m")]
    assert sorted(events[: len(files)]) == sorted(files)
    assert events[len(files) :] == [str(new), ".m.old", "m", str(tmp_path), ".m.new"]


def between_renames(path):
    """What a save killed between its renames leaves, with its own folder still to be read."""
    put(path, 1)
    path.rename(path.with_name(".m.old"))
    path.with_name(".m.new-999999998").mkdir()


def after_renames(path):
    """What a save killed before it deleted the old checkpoint leaves."""
    put(path, 0)
    path.rename(path.with_name(".m.old"))
    put(path.with_name("other"), 1)
    path.with_name("other").rename(path)


@pytest.mark.parametrize("state", [between_renames, after_renames])
def test_a_save_that_mends_may_be_killed_too(tmp_path, monkeypatch, state):
    found = []
    for path in ends(tmp_path, monkeypatch, lambda path: put(path, 2), state):
        assert exists(path)
        put(path, 3) if len(found) % 2 else None  # the next save need not be preceded by a load
        found.append(number_at(path))
        put(path, 3)
        assert os.listdir(path.parent) == ["m"]
    assert set(found) == {1, 2, 3}


def test_what_was_set_aside_is_brought_back_by_loading(tmp_path):
    path = tmp_path / "m"
    between_renames(path)
    assert exists(path)
    assert not path.exists()  # to ask changes nothing
    assert number_at(path) == 1
    assert path.is_dir()
    assert ".m.old" not in hidden(tmp_path)


def test_what_was_set_aside_is_brought_back_by_a_save_even_if_that_fails(tmp_path, monkeypatch):
    between_renames(tmp_path / "m")
    monkeypatch.setattr(os, "fsync", refuse(errno.ENOSPC))
    with pytest.raises(Failed, match="previous checkpoint there is intact"):
        put(tmp_path / "m", 2)
    assert os.listdir(tmp_path) == ["m"]
    assert number_at(tmp_path / "m") == 1


def test_what_was_set_aside_does_not_push_out_what_has_come_since(tmp_path):
    between_renames(tmp_path / "m")
    (tmp_path / "m").mkdir()
    assert not exists(tmp_path / "m")
    with pytest.raises(InputError, match="there is an empty folder"):
        load(tmp_path / "m")
    put(tmp_path / "m", 2)
    assert number_at(tmp_path / "m") == 2
    assert os.listdir(tmp_path) == ["m"]


def test_what_was_set_aside_is_read_where_it_lies_if_it_cannot_be_moved(tmp_path, monkeypatch):
    path = tmp_path / "m"
    between_renames(path)
    monkeypatch.setattr(os, "rename", refuse(errno.EROFS))
    assert number_at(path) == 1
    assert not path.exists()


def test_loading_stays_out_of_the_way_of_a_living_save(tmp_path):
    path = tmp_path / "m"
    between_renames(path)
    (tmp_path / f".m.new-{os.getppid()}").mkdir()
    assert number_at(path) == 1
    assert not path.exists()


@pytest.mark.parametrize("name", ["m", "a+[b]"])
def test_only_folders_of_dead_processes_are_removed(tmp_path, name):
    living, dead = f".{name}.new-{os.getppid()}", f".{name}.new-999999998"
    others = [f".{name}.new-{what}" for what in ("me", "0", "9999999999")]
    others += [".other.new-999999998", dead[1:]]
    for folder in (living, dead, *others):
        (tmp_path / folder / "inner").mkdir(parents=True)
    put(tmp_path / name)
    assert sorted(os.listdir(tmp_path)) == sorted([living, *others, name])


def test_a_folder_called_like_ours_is_never_deleted_or_brought_back(tmp_path):
    (tmp_path / ".m.old").mkdir()
    (tmp_path / ".m.old" / "mine").touch()
    assert not exists(tmp_path / "m")
    put(tmp_path / "m", 1)
    with pytest.raises(Failed, match="previous checkpoint there is intact"):
        put(tmp_path / "m", 2)
    assert number_at(tmp_path / "m") == 1
    assert (tmp_path / ".m.old" / "mine").exists()


def test_a_save_during_a_load_does_not_confuse_it(tmp_path, monkeypatch):
    put(tmp_path / "m", 1)
    real, saves = checkpoint._read_listed, []

    def interrupted(*args):
        if len(saves) < 3:
            saves.append(put(tmp_path / "m", 2 + len(saves)))
        return real(*args)

    monkeypatch.setattr(checkpoint, "_read_listed", interrupted)
    assert number_at(tmp_path / "m") == 4


KILLS = """
import os, random, signal, sys, time
sys.path.insert(0, sys.argv[1])
from test_checkpoint import number_at, put

path, choose, seen = sys.argv[2], random.Random(0), set()
put(path, 0)
for _ in range(40):
    before = number_at(path)
    child = os.fork()
    if child == 0:
        number = before
        while True:
            number = (number + 1) % 250
            put(path, number)
    time.sleep(choose.uniform(0.002, 0.03))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    seen.add(tuple(sorted(name.split("-")[0] for name in os.listdir(os.path.dirname(path)))))
    assert number_at(path) >= before or before > 200, (before, number_at(path))
put(path, 7)
assert number_at(path) == 7
print(os.listdir(os.path.dirname(path)), len(seen))
"""


def test_a_killed_process_leaves_a_whole_checkpoint(tmp_path):
    (tmp_path / "in").mkdir()
    here = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", KILLS, here, str(tmp_path / "in" / "m")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("['m'] ")
    assert int(done.stdout.split()[-1]) > 1  # some were killed while they wrote


def refuse(number):
    def refused(*_args, **_kwargs):
        raise OSError(number, os.strerror(number))

    return refused


@contextmanager
def full_disk(limit=2**22):
    """No file may grow beyond 4 MB; Python has SIGXFSZ ignored, so that writing fails.

    It holds for the log that these tests may be written to as well, so it must be short.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_told_and_leaves_the_previous_checkpoint(tmp_path):
    put(tmp_path / "m", 1)
    for path, left in (("m", "the previous checkpoint there is intact"), ("n", "none was there")):
        with full_disk(), pytest.raises(Failed) as told:
            put(tmp_path / path, 2, files={"large": b"0" * 2**23})
        message = f"{tmp_path / path} could not be saved: File too large; {left}"
        assert str(told.value) == message
    assert os.listdir(tmp_path) == ["m"]
    assert number_at(tmp_path / "m") == 1


def failing_at(call, name, monkeypatch, work):
    """Do the work, but let the n-th call of this name fail; whether there was one, and the word."""
    real, made = getattr(os, name), 0

    def failing(*args, **kwargs):
        nonlocal made
        made += 1
        if made == call:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(os, name, failing)
        try:
            work()
        except Failed as failed:
            return True, str(failed)
    return made >= call, None


@pytest.mark.parametrize("name", ["fsync", "rename", "mkdir", "open"])
@pytest.mark.parametrize("before", [0, 1])
def test_any_failing_call_leaves_all_as_it_was(tmp_path, monkeypatch, name, before):
    failures = 0
    for call in range(1, 100):
        path = tmp_path / str(call) / "m"
        path.parent.mkdir()
        if before:
            put(path, 1)
        some, told = failing_at(call, name, monkeypatch, lambda path=path: put(path, 2))
        assert hidden(path.parent) == [] or told is None
        if told is None:
            assert number_at(path) == 2  # such as when only tidying up failed
        else:
            failures += 1
            assert "No space left on device" in told
            assert ("previous checkpoint there is intact" in told) == bool(before)
            assert exists(path) == bool(before)
            assert not before or number_at(path) == 1
        put(path, 3)
        assert os.listdir(path.parent) == ["m"]
        if not some:
            break
    assert failures >= 1
    assert not some


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EDQUOT, errno.EIO])
def test_other_failures_are_told_in_one_line(tmp_path, monkeypatch, number):
    put(tmp_path / "m", 1)
    monkeypatch.setattr(os, "mkdir", refuse(number))
    with pytest.raises(Failed, match=f"m could not be saved: {os.strerror(number)}; the prev"):
        put(tmp_path / "m", 2)
    assert number_at(tmp_path / "m") == 1


def test_an_interrupted_save_cleans_up(tmp_path, monkeypatch):
    put(tmp_path / "m", 1)
    real = os.fsync

    def interrupt(descriptor):
        real(descriptor)
        if (tmp_path / ".m.old").exists():
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        put(tmp_path / "m", 2)
    assert os.listdir(tmp_path) == ["m"]
    assert number_at(tmp_path / "m") == 1


def test_what_is_not_a_checkpoint_is_never_replaced(tmp_path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine").touch()
    for name, there in (("file", "a file"), ("folder", r"a folder without manifest\.json")):
        assert not exists(tmp_path / name)
        with pytest.raises(InputError, match=f"replaces only another, but at .* there is {there}"):
            put(tmp_path / name)
        with pytest.raises(InputError, match=f"checkpoint was needed, but at .* there is {there}"):
            load(tmp_path / name)
    assert (tmp_path / "file").read_text() == "mine"
    assert os.listdir(tmp_path / "folder") == ["mine"]
    assert hidden(tmp_path) == []


def test_an_empty_folder_is_filled(tmp_path):
    (tmp_path / "m").mkdir()
    with pytest.raises(InputError, match="there is an empty folder"):
        load(tmp_path / "m")
    put(tmp_path / "m")
    assert number_at(tmp_path / "m") == 1
    assert os.listdir(tmp_path) == ["m"]


def test_a_parent_that_is_a_file_is_told(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(Failed, match=r"could not be saved: .*; none was there"):
        put(tmp_path / "file" / "m")
    with pytest.raises(InputError, match="there is nothing"):
        load(tmp_path / "file" / "m")


@pytest.mark.parametrize("path", ["/", "a\0b", None, 3])
def test_what_is_not_a_path_is_refused(path):
    for call in (put, load, exists):
        with pytest.raises(InputError, match=r"path .*needed, but"):
            call(path)
