"""What is loaded is what was saved, to the bit, however the process that saved it ended."""

import errno
import hashlib
import json
import os
import platform
import random
import resource
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

import exchangeable
from exchangeable.errors import Failed, InputError
from exchangeable.runtime import checkpoint
from exchangeable.runtime.checkpoint import Checkpoint, exists, fingerprint, load, save


def put(path, number=1, **other):
    """A tiny checkpoint that tells its number in every file."""
    given = {
        "config": {"number": number},
        "tensors": {
            "model": {"weight": torch.full((2,), float(number))},
            "training": {"step": torch.tensor(number)},
        },
        "card": f"# Model {number}\n",
        "facts": {"number": number},
        "files": {"members-0.parquet": bytes([number])},
    } | other
    save(path, given.pop("config"), given.pop("tensors"), **given)


def number_at(path):
    """The number that all files of the checkpoint agree on."""
    loaded = load(path)
    numbers = {
        loaded.config["number"],
        *loaded.tensors["model"]["weight"].tolist(),
        loaded.tensors["training"]["step"].item(),
        loaded.facts["number"],
        *loaded.files["members-0.parquet"],
    }
    assert len(numbers) == 1
    return numbers.pop()


def hidden(folder):
    return sorted(name for name in os.listdir(folder) if name.startswith("."))


def forge(path, change):
    """Alter a manifest and give it the hash it needs, as an attacker would."""
    manifest = json.loads((path / "manifest.json").read_bytes())
    del manifest["sha256"]
    change(manifest)
    text = json.dumps(manifest, indent=1, sort_keys=True) + "\n"
    manifest["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    text = json.dumps(manifest, indent=1, sort_keys=True) + "\n"
    (path / "manifest.json").write_text(text)


def listed(content):
    return {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def replace_file(path, name, content):
    """Put other content in a file, and list it, so that only parsing can refuse it."""
    (path / name).write_bytes(content)
    forge(path, lambda manifest: manifest["files"].update({name: listed(content)}))


# Round trips.


def test_what_is_loaded_is_what_was_saved(tmp_path):
    config = {"width": 64, "rate": 0.1, "axes": [0, 1], "name": "é\n", "none": None, "deep": {}}
    facts = {"metrics": {"rmse": 0.1 + 0.2}, "data": fingerprint(np.arange(3))}
    path = tmp_path / "runs" / "one"
    assert not exists(path)
    put(path, config=config, facts=facts, files={"a.bin": b"\0\xff", "empty": b""})
    loaded = load(path)
    assert isinstance(loaded, Checkpoint)
    assert exists(path)
    assert loaded.config == config
    assert loaded.files == {"a.bin": b"\0\xff", "empty": b""}
    assert loaded.facts.pop("versions") == {
        "exchangeable": exchangeable.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    assert loaded.facts == facts
    assert set(loaded.tensors) == {"model", "training"}
    assert (path / "README.md").read_text() == "# Model 1\n"
    assert hidden(path.parent) == []


FLOATS = [torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.complex64]
WHOLE = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


@pytest.mark.parametrize("dtype", FLOATS + WHOLE)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (2, 3)])
def test_tensors_of_any_kind_come_back_to_the_bit(tmp_path, dtype, shape):
    tensor = torch.randn(shape).mul(100).to(dtype)
    put(tmp_path / "m", tensors={"model": {"x": tensor, "y": tensor}, "none": {}})
    loaded = load(tmp_path / "m").tensors
    assert loaded["none"] == {}
    for name in "xy":
        back = loaded["model"][name]
        assert (back.dtype, back.shape, back.device.type) == (dtype, shape, "cpu")
        assert torch.equal(back, tensor)


def test_views_are_saved_as_they_look_and_share_no_memory_afterwards(tmp_path):
    whole = torch.arange(12.0).reshape(3, 4)
    views = {
        "whole": whole,
        "turned": whole.T,
        "part": whole[1:, ::2],
        "spread": torch.ones(1).expand(5),
        "parameter": torch.nn.Parameter(whole),
        "conjugate": torch.tensor([1 + 2j]).conj(),
        "negative": torch.tensor([1 + 2j]).conj().imag,
    }
    put(tmp_path / "m", tensors={"model": views})
    back = load(tmp_path / "m").tensors["model"]
    for name, view in views.items():
        assert torch.equal(back[name], view.detach().resolve_conj())
    back["whole"].zero_()
    assert back["turned"].sum() == whole.sum()
    assert whole.sum() == 66


def test_special_numbers_keep_their_bits(tmp_path):
    special = torch.tensor([float("nan"), float("inf"), -0.0, 1e-45])
    put(tmp_path / "m", tensors={"model": {"x": special}})
    back = load(tmp_path / "m").tensors["model"]["x"]
    assert torch.equal(back.view(torch.int32), special.view(torch.int32))


def test_saving_what_was_loaded_gives_the_same_bytes(tmp_path):
    put(tmp_path / "m")
    loaded = load(tmp_path / "m")
    save(
        tmp_path / "again",
        loaded.config,
        loaded.tensors,
        card="# Model 1\n",
        facts=loaded.facts,
        files=loaded.files,
    )
    for name in os.listdir(tmp_path / "m"):
        assert (tmp_path / "m" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


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


def test_files_that_are_not_listed_are_ignored(tmp_path):
    put(tmp_path / "m")
    (tmp_path / "m" / "notes.txt").write_text("mine")
    assert number_at(tmp_path / "m") == 1


# Harm.


def test_every_flipped_bit_is_noticed(tmp_path):
    put(tmp_path / "m")
    chosen, flips = random.Random(0), 0
    for file in sorted((tmp_path / "m").iterdir()):
        whole = file.read_bytes()
        bits = range(8 * len(whole))
        if file.suffix != ".json" and len(bits) > 200:
            bits = chosen.sample(bits, 200)
        for bit in bits:
            harmed = bytearray(whole)
            harmed[bit // 8] ^= 1 << bit % 8
            file.write_bytes(harmed)
            with pytest.raises(InputError) as told:
                load(tmp_path / "m")
            assert str(file) in str(told.value)
            assert "\n" not in str(told.value)
        file.write_bytes(whole)
        flips += len(bits)
    assert flips >= 500
    assert number_at(tmp_path / "m") == 1


def test_every_truncation_and_every_addition_is_noticed(tmp_path):
    put(tmp_path / "m")
    for file in sorted((tmp_path / "m").iterdir()):
        whole = file.read_bytes()
        for harmed in [whole[:end] for end in range(len(whole))] + [whole + b"\n", whole + b"\0"]:
            file.write_bytes(harmed)
            with pytest.raises(InputError, match=file.name):
                load(tmp_path / "m")
        file.write_bytes(whole)
    assert number_at(tmp_path / "m") == 1


@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "training.safetensors", "README.md"]
)
def test_a_missing_file_is_named(tmp_path, name):
    put(tmp_path / "m")
    (tmp_path / "m" / name).unlink()
    with pytest.raises(InputError, match=f"{name} must be .*No such file"):
        load(tmp_path / "m")


def test_files_of_two_checkpoints_do_not_mix(tmp_path):
    put(tmp_path / "one", 1)
    put(tmp_path / "two", 2)
    (tmp_path / "two" / "model.safetensors").replace(tmp_path / "one" / "model.safetensors")
    with pytest.raises(InputError, match="its sha256 is another"):
        load(tmp_path / "one")


@pytest.mark.parametrize(
    "rewrite",
    [
        lambda text: text.replace(b"\n", b"\r\n"),
        lambda text: text.replace(b"\n ", b"\n  "),
        lambda text: json.dumps(json.loads(text)).encode(),
        lambda text: text.replace(b'"facts"', b'"\\u0066acts"'),
        lambda text: text.replace(b'"format": 1', b'"format": 9,\n "format": 1'),
    ],
)
def test_a_manifest_that_says_the_same_in_other_bytes_is_refused(tmp_path, rewrite):
    put(tmp_path / "m")
    manifest = tmp_path / "m" / "manifest.json"
    before = manifest.read_bytes()
    manifest.write_bytes(rewrite(before))
    assert json.loads(manifest.read_bytes()) == json.loads(before)
    with pytest.raises(InputError, match="but was altered"):
        load(tmp_path / "m")


NAMES = ["../stolen", "/etc/passwd", "a/b", "..", ".", "", ".hidden", "a\\b", "a\0b", "a\n", "é"]


@pytest.mark.parametrize("name", NAMES)
def test_a_forged_manifest_cannot_name_what_lies_elsewhere(tmp_path, name):
    put(tmp_path / "m")
    (tmp_path / "stolen").write_bytes(b"secret")
    forge(tmp_path / "m", lambda manifest: manifest["files"].update({name: listed(b"secret")}))
    with pytest.raises(InputError, match="must list plain names of files, but lists") as told:
        load(tmp_path / "m")
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda m: m["files"].update(extra=listed(b"")), "extra must be a readable file"),
        (lambda m: m["files"].pop("config.json"), "must list config.json"),
        (lambda m: m["files"].pop("README.md"), "must list README.md"),
        (lambda m: m["files"].pop("model.safetensors"), "must list model.safetensors"),
        (lambda m: m["files"].update({"README.md": 3}), "size of README.md"),
        (lambda m: m["files"]["README.md"].update(size="10"), "size of README.md"),
        (lambda m: m["files"]["README.md"].update(size=True), "size of README.md"),
        (lambda m: m["files"]["README.md"].update(size=-1), "README.md must have at most -1"),
        (lambda m: m["files"]["README.md"].update(size=10**30), "README.md must have 1,000"),
        (lambda m: m["files"]["README.md"].pop("sha256"), "its sha256 is another"),
        (lambda m: m.update(files=[]), r"must hold files, but holds \[\]"),
        (lambda m: m.pop("facts"), "must hold facts, but holds None"),
        (lambda m: m.update(versions=1), "must hold versions"),
        (lambda m: m.update(format=True), "must hold format, but holds True"),
        (lambda m: m.update(format="1"), "must hold format"),
    ],
)
def test_a_forged_manifest_must_say_what_is_needed(tmp_path, change, told):
    put(tmp_path / "m")
    forge(tmp_path / "m", change)
    with pytest.raises(InputError, match=told) as error:
        load(tmp_path / "m")
    assert "\n" not in str(error.value)


def test_a_newer_format_is_refused_with_the_version_it_needs(tmp_path):
    put(tmp_path / "m")
    forge(
        tmp_path / "m",
        lambda m: m.update(format=2, files={}, versions=m["versions"] | {"exchangeable": "7.1"}),
    )
    with pytest.raises(InputError, match=r"format 2 and needs exchangeable '7\.1' or later, but"):
        load(tmp_path / "m")


BAD_JSON = [
    b"",
    b"[]",
    b"null",
    b"{",
    b"\xff\xfe",
    b'{"a": NaN}',
    b'{"a": 1' + b"0" * 5000 + b"}",
    b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    b"[" * 100_000,
]


@pytest.mark.parametrize("content", BAD_JSON, ids=range(len(BAD_JSON)))
@pytest.mark.parametrize("name", ["config.json", "manifest.json"])
def test_bad_json_is_refused_in_one_line(tmp_path, name, content):
    put(tmp_path / "m")
    if name == "config.json":
        replace_file(tmp_path / "m", name, content)
    else:
        (tmp_path / "m" / name).write_bytes(content)
    with pytest.raises(InputError, match=f"{name} must be ") as told:
        load(tmp_path / "m")
    assert "\n" not in str(told.value)


def test_a_manifest_with_a_number_that_no_float_holds_is_refused(tmp_path):
    put(tmp_path / "m")
    manifest = tmp_path / "m" / "manifest.json"
    manifest.write_bytes(manifest.read_bytes().replace(b'"format": 1', b'"format": 1e999'))
    with pytest.raises(InputError, match=r"manifest\.json must be JSON"):
        load(tmp_path / "m")


UNPACKABLE = [
    b"",
    b"\xff" * 8,
    b"\x02" + b"\0" * 7 + b"[]",
    (58).to_bytes(8, "little") + b'{"a":{"dtype":"F32","shape":[9],"data_offsets":[0,4]}}    1234',
    (58).to_bytes(8, "little") + b'{"a":{"dtype":"X99","shape":[1],"data_offsets":[0,4]}}    1234',
]


@pytest.mark.parametrize("content", UNPACKABLE, ids=range(len(UNPACKABLE)))
def test_bad_tensors_are_refused_in_one_line(tmp_path, content):
    put(tmp_path / "m")
    replace_file(tmp_path / "m", "model.safetensors", content)
    with pytest.raises(InputError, match=r"model\.safetensors must hold tensors, but") as told:
        load(tmp_path / "m")
    assert "\n" not in str(told.value)


def test_a_pickle_is_not_executed(tmp_path):
    put(tmp_path / "m")
    torch.save({"weight": torch.ones(1)}, tmp_path / "pickle")
    replace_file(tmp_path / "m", "model.safetensors", (tmp_path / "pickle").read_bytes())
    with pytest.raises(InputError, match="must hold tensors"):
        load(tmp_path / "m")


def test_a_file_of_the_wrong_size_is_not_read(tmp_path):
    put(tmp_path / "m")
    for name in ("README.md", "manifest.json"):
        with open(tmp_path / "m" / name, "r+b") as file:
            file.truncate(2**40)  # takes no room, and would take all memory
        with pytest.raises(InputError, match=f"{name} must have at most .* 1,099,511,627,776"):
            load(tmp_path / "m")


def test_what_is_not_a_file_is_not_waited_for(tmp_path):
    put(tmp_path / "m")
    for name, make in (("README.md", os.mkfifo), ("config.json", os.mkdir)):
        (tmp_path / "m" / name).unlink()
        make(tmp_path / "m" / name)
        with pytest.raises(InputError, match=f"{name} must be a"):
            load(tmp_path / "m")
        put(tmp_path / "m", 2)  # nor does it stand in the way


def test_nothing_is_parsed_before_all_is_verified(tmp_path, monkeypatch):
    put(tmp_path / "m")
    (tmp_path / "m" / "README.md").write_text("# Model 2\n")
    monkeypatch.setattr(checkpoint, "_unpack", lambda *_: pytest.fail("was parsed"))
    with pytest.raises(InputError, match=r"README\.md must be as it was saved"):
        load(tmp_path / "m")


# Sudden ends.


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


# Failures that are told.


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


# Bad input.


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


nested = {}
for _ in range(20_000):
    nested = {"a": nested}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"config": {"a": float("nan")}}, "config must be JSON without NaN"),
        ({"config": {"a": [float("-inf")]}}, "config must be JSON without NaN"),
        ({"config": {"a": {1, 2}}}, "config must be JSON"),
        ({"config": nested}, "config must be JSON"),
        ({"config": [1]}, r"config must be a mapping, but is \[1\]"),
        ({"facts": {"rmse": float("nan")}}, "facts must be JSON"),
        ({"facts": {"a": "0" * 2**24}}, "facts must fit in 16,777,216 bytes"),
        ({"tensors": {"weights": {}}}, r"\"model\", but hold \['weights'\]"),
        ({"tensors": {"model": {"a": [1.0]}}}, "model must hold plain tensors"),
        ({"tensors": {"model": {"a": torch.eye(2).to_sparse()}}}, "model must hold plain"),
        ({"tensors": {"model": {"a": torch.ones(2, device="meta")}}}, "model must hold plain"),
        ({"tensors": {"model": {1: torch.ones(2)}}}, "model must hold plain tensors"),
        ({"tensors": {"model": {"a": torch.ones(2, dtype=torch.complex128)}}}, "model must hold"),
        ({"tensors": {"model": {"__metadata__": torch.ones(2)}}}, "model must hold plain"),
        ({"tensors": {"model": {}, "../up": {}}}, "plain name, but is called"),
        ({"files": {"a/b": b""}}, "plain name, but is called 'a/b'"),
        ({"files": {"../up": b""}}, "plain name"),
        ({"files": {"a" * 200: b""}}, "plain name"),
        ({"files": {"config.json": b""}}, "name of its own, but is called config.json"),
        ({"files": {"README.md": b""}}, "name of its own"),
        ({"files": {"manifest.json": b""}}, "name of its own"),
        ({"files": {"extra.safetensors": b""}}, "name of its own"),
    ],
)
def test_what_cannot_be_kept_is_refused_before_anything_is_touched(tmp_path, given, told):
    put(tmp_path / "m", 1)
    with pytest.raises(InputError, match=told) as error:
        put(tmp_path / "m", 2, **given)
    assert "\n" not in str(error.value)
    assert os.listdir(tmp_path) == ["m"]
    assert number_at(tmp_path / "m") == 1


# Fingerprints.


def test_a_fingerprint_tells_data_apart_by_values_shape_and_type():
    base = np.arange(6, dtype=np.int64)
    different = [
        (base,),
        (base.reshape(2, 3),),
        (base.astype(np.int32),),
        (base.view(np.uint64),),
        (base[::-1],),
        (base[:3], base[3:]),
        (base, base[:0]),
        (),
        (base[:1],),
        (np.int64(0),),
        (np.array(["a", "b"]),),
        (np.array(["2020-01-01"], dtype="datetime64[D]"),),
    ]
    assert len({fingerprint(*arrays) for arrays in different}) == len(different)


def test_a_fingerprint_does_not_tell_how_data_lie_in_memory():
    base = np.arange(6.0).reshape(2, 3)
    assert fingerprint(base) == fingerprint(np.asfortranarray(base))
    assert fingerprint(base.T) == fingerprint(base.T.copy())
    assert fingerprint(np.arange(3, dtype="<i8")) == (
        hashlib.sha256(b"<i8 (3,)\n" + np.arange(3, dtype="<i8").tobytes()).hexdigest()
    )


def test_objects_have_no_fingerprint():
    with pytest.raises(InputError, match="plain values, but the array is object"):
        fingerprint(np.array([None]))
