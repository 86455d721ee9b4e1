"""What is loaded is what was saved, to the bit, however the process that saved it ended."""

import hashlib
import json
import os
import platform
import random

import numpy as np
import pytest
import torch
from tests.support.checkpoints import hidden, number_at, put

import exchangeable
from exchangeable.errors import InputError
from exchangeable.runtime import checkpoint
from exchangeable.runtime.checkpoint import Checkpoint, exists, fingerprint, load, save


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


def test_files_that_are_not_listed_are_ignored(tmp_path):
    put(tmp_path / "m")
    (tmp_path / "m" / "notes.txt").write_text("mine")
    assert number_at(tmp_path / "m") == 1


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
