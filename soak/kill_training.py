"""Kill training at random moments, resume, and see that nothing is lost.

Starts ``exchangeable train``, saving after every step, so that many kills hit a saving; sends
SIGKILL after a random time; looks at every file that is left; starts it again with --resume.
When the run has been killed often enough it may finish, and its weights must be, bit for bit,
those of a run that was never stopped. Then it fills a small disk while saving, where a tmpfs
can be mounted, and bends bits of a saved model.

    python soak/kill_training.py --times 50
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from exchangeable.errors import InputError
from exchangeable.runtime import checkpoint
from exchangeable.training.trained_model import TrainedModel

SIZES = ["--width", "16", "--depth", "3", "--evaluate-every", "20", "--save-every", "0"]


def command(folder: Path, steps: int) -> list[str]:
    train = [sys.executable, "-m", "exchangeable", "train", "film-club", "--out", str(folder)]
    return [*train, "--steps", str(steps), *SIZES, "--resume", "--device", "cpu"]


def step_of(folder: Path) -> int:
    """Where the run stands; raises if a file of it is not whole."""
    if not checkpoint.exists(folder):
        return 0
    stored = checkpoint.load(folder)
    return int(stored.config["run"]["step"]) if "run" in stored.config else -1


def killed(folder: Path, steps: int, generator: random.Random) -> str:
    """Start or go on, and kill after a random time since the first saving was seen."""
    before = step_of(folder)
    process = subprocess.Popen(
        command(folder, steps), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    moving = time.monotonic() + 60
    seen = folder.stat().st_mtime_ns if folder.exists() else 0
    while time.monotonic() < moving and process.poll() is None:
        if folder.exists() and _mtime(folder) != seen:
            break
        time.sleep(0.01)
    time.sleep(generator.random() * 0.4)
    if generator.random() < 0.5:  # half of them in the midst of a saving
        while process.poll() is None and not _saving(folder):
            pass
    process.send_signal(signal.SIGKILL)
    process.wait()
    left = _saving(folder)
    after = step_of(folder)
    if after == -1:
        return "finished"
    if after < before:
        raise AssertionError(f"went back from step {before} to {after}")
    return f"step {before} to {after}" + (f", while saving ({', '.join(left)})" if left else "")


def _saving(folder: Path) -> list[str]:
    """What lies beside the folder while it is being replaced."""
    return sorted(p.name for p in folder.parent.iterdir() if p.name.startswith(f".{folder.name}."))


def _mtime(folder: Path) -> int:
    try:
        return folder.stat().st_mtime_ns
    except FileNotFoundError:  # between two renames
        return 0


def same_weights(one: Path, other: Path) -> bool:
    first, second = (TrainedModel.load(path).model.state_dict() for path in (one, other))
    return all(torch.equal(first[name], second[name]) for name in first)


def full_disk(root: Path) -> str:
    """Save into a tmpfs that has room for one checkpoint and not for two."""
    place = root / "small"
    place.mkdir()
    mounted = ["mount", "-t", "tmpfs", "-o", "size=900k", "tmpfs", str(place)]
    if subprocess.run(mounted, capture_output=True, check=False).returncode:
        return "no tmpfs can be mounted here: not tried"
    try:
        weights = {"model": {"w": torch.randn(120_000)}}
        checkpoint.save(place / "model", {"kind": "test"}, weights, card="")
        code = (
            "import sys, torch; from exchangeable.runtime import checkpoint; "
            "checkpoint.save(sys.argv[1], {}, {'model': {'w': torch.zeros(150_000)}}, card='')"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(place / "model")],
            capture_output=True,
            text=True,
            check=False,
        )
        said = done.stderr.strip().splitlines()[-1]
        intact = checkpoint.load(place / "model").tensors["model"]["w"]
        assert torch.equal(intact, weights["model"]["w"])
        assert sorted(p.name for p in place.iterdir()) == ["model"]
        return said.split(": ", 1)[-1].replace(str(place), "DISK")
    finally:
        subprocess.run(["umount", str(place)], check=False)


def bent(folder: Path, times: int, generator: random.Random) -> int:
    """Flip single bits and cut files short; returns how many were refused of ``times``."""
    files = sorted(path for path in folder.iterdir() if path.stat().st_size)
    refused = 0
    for number in range(times):
        path = generator.choice(files)
        good = path.read_bytes()
        if number % 2:
            bad = good[: generator.randrange(len(good))]
        else:
            at = generator.randrange(8 * len(good))
            flipped = bytearray(good)
            flipped[at // 8] ^= 1 << at % 8
            bad = bytes(flipped)
        path.write_bytes(bad)
        try:
            TrainedModel.load(folder)
        except InputError:
            refused += 1
        path.write_bytes(good)
    TrainedModel.load(folder)
    return refused


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=50, help="how often to kill")
    parser.add_argument("--steps", type=int, default=400, help="steps of the run")
    parser.add_argument("--bent", type=int, default=1000, help="flips and truncations to try")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    generator = random.Random(options.seed)
    root = Path(tempfile.mkdtemp(prefix="kill-"))
    try:
        whole, stopped = root / "whole", root / "stopped"
        kills = saving = 0
        while kills < options.times:
            told = killed(stopped, options.steps, generator)
            kills += 1
            saving += "while saving" in told
            print(f"kill {kills:3}: {told}")
            if told == "finished":  # a run that ends has to be killed as often again
                shutil.rmtree(stopped)
                kills = saving = 0
        subprocess.run(command(stopped, options.steps), check=True, stdout=subprocess.DEVNULL)
        subprocess.run(command(whole, options.steps), check=True, stdout=subprocess.DEVNULL)
        same = same_weights(whole, stopped)
        verdict = "the same, bit for bit" if same else "NOT the same"
        print(f"after {kills} kills the weights are {verdict}")
        disk = full_disk(root)
        print(f"full disk: {disk}")
        refused = bent(whole, options.bent, generator)
        print(f"{refused} of {options.bent} bit flips and truncations were refused")
    finally:
        shutil.rmtree(root, ignore_errors=True)
    facts = {"kills": kills, "while_saving": saving, "same": same, "disk": disk, "refused": refused}
    print(json.dumps({**facts, "bent": options.bent}))
    if not same or refused != options.bent:
        sys.exit(1)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
