"""Several processes that share the cells give what one gives, and end clearly when one dies."""

import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
import torch
from safetensors.torch import load_file
from tests.support.two_processes import computed

from exchangeable.runtime.processes import ALONE, Processes
from exchangeable.training.trained_model import TrainedModel

JOB = Path(__file__).parents[1] / "support" / "two_processes.py"


def torchrun(number, *command):
    return [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(number),
        *[str(part) for part in command],
    ]


def environment():
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": ""}


def run(command, **options):
    return subprocess.run(
        command, check=True, capture_output=True, text=True, env=environment(), **options
    )


def test_shares_are_all_of_it_and_nothing_twice():
    for number in (0, 1, 2, 7, 100):
        shares = [Processes(rank, 3).share(number) for rank in range(3)]
        assert shares[0][0] == 0
        assert shares[-1][1] == number
        assert all(one[1] == other[0] for one, other in pairwise(shares))


@pytest.mark.parametrize("number", [2, 3])
def test_answers_and_gradients_are_those_of_one_process(number, tmp_path):
    run(torchrun(number, JOB, tmp_path, number))
    expected = computed(ALONE)
    for rank in range(number):
        found = load_file(tmp_path / f"{rank}.safetensors")
        assert set(found) == set(expected)
        for name, tensor in found.items():
            torch.testing.assert_close(tensor, expected[name], rtol=1e-10, atol=1e-10)


@pytest.fixture
def ratings(tmp_path):
    generator = torch.Generator().manual_seed(0)
    cells = torch.randperm(40 * 30, generator=generator)[:500]
    values = torch.randint(1, 6, (500,), generator=generator)
    frame = pl.DataFrame(
        {
            "user": (cells // 30).numpy(),
            "film": (cells % 30).numpy(),
            "rating": [None if n % 10 == 0 else int(v) for n, v in enumerate(values)],
        }
    )
    path = tmp_path / "ratings.csv"
    frame.write_csv(path)
    return path


def test_the_commands_work_unchanged(ratings, tmp_path):
    train = ["train", ratings, "--steps", 12, "--width", 8, "--depth", 2, "--evaluate-every", 4]
    one = [sys.executable, "-m", "exchangeable"]
    run([str(part) for part in [*one, *train, "--out", tmp_path / "one"]])
    told = run(torchrun(2, "-m", "exchangeable", *train, "--out", tmp_path / "two"))
    assert told.stdout.count("trained residual") == 1
    alone, together = (TrainedModel.load(tmp_path / name) for name in ("one", "two"))
    rmse = "validation RMSE"
    assert together.facts[rmse] == pytest.approx(alone.facts[rmse], rel=1e-4)

    complete = ["complete", ratings, "--model", tmp_path / "one", "--out"]
    run([str(part) for part in [*one, *complete, tmp_path / "one.csv"]])
    told = run(torchrun(2, "-m", "exchangeable", *complete, tmp_path / "two.csv"))
    assert told.stdout.count("predicted 50 cells") == 1
    answers = [pl.read_csv(tmp_path / f"{name}.csv") for name in ("one", "two")]
    assert answers[0].columns == answers[1].columns
    for column in answers[0].columns:
        difference = (answers[0][column] - answers[1][column]).abs().max()
        assert difference is None or difference < 1e-5


def test_wrong_input_is_told_once(tmp_path):
    command = torchrun(2, "-m", "exchangeable", "complete", tmp_path / "none.csv")
    told = subprocess.run(command, capture_output=True, text=True, env=environment())
    assert told.returncode != 0
    assert told.stderr.count("error: ") == 1


def test_a_worker_that_dies_ends_the_job_and_leaves_a_checkpoint(ratings, tmp_path):
    out = tmp_path / "model"
    steps = ["--steps", 100_000, "--save-every", 0.2, "--width", 8, "--depth", 2]
    command = torchrun(2, "-m", "exchangeable", "train", ratings, "--out", out, *steps)
    job = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    )
    try:
        deadline = time.monotonic() + 90
        while not out.exists() and job.poll() is None and time.monotonic() < deadline:
            time.sleep(0.2)
        assert out.exists(), job.communicate()[1]
        os.kill(_worker(job.pid, rank=1), signal.SIGKILL)
        _, errors = job.communicate(timeout=90)
    finally:
        job.kill()
    assert job.returncode != 0
    assert "error: another process of this job is gone" in errors or "stopped after step" in errors
    assert TrainedModel.load(out).facts["steps"] > 0
    resumed = [*[sys.executable, "-m", "exchangeable", "train", ratings, "--out", out], *steps]
    assert "going on in" in _beginning([str(part) for part in [*resumed, "--resume"]])


def _worker(parent, rank):
    """The process of a rank among the children of a job."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    for child in children:
        known = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        if f"RANK={rank}".encode() in known:
            return int(child)
    raise AssertionError(f"no worker {rank} among {children}")


def _beginning(command):
    """The first lines of a command, which is then stopped."""
    job = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment())
    lines = []
    for line in job.stdout:
        lines.append(line)
        if "going on" in line:
            break
    job.send_signal(signal.SIGTERM)
    job.communicate(timeout=60)
    return "".join(lines)


def test_processes_that_see_different_runs_do_not_wait_for_each_other(ratings, tmp_path):
    """Rank 0 finds a run to go on with, rank 1 none: both are told at once."""
    out = tmp_path / "0" / "model"
    train = ["train", ratings, "--steps", 6, "--width", 8, "--depth", 2]
    one = [sys.executable, "-m", "exchangeable", *train, "--out", out]
    run([str(part) for part in one])
    script = tmp_path / "job.py"
    script.write_text(
        "import os, sys\nfrom exchangeable.cli import run\n"
        f"sys.argv[1:] = {[str(part) for part in train]!r} + "
        f"['--resume', '--out', {str(tmp_path)!r} + '/' + os.environ['RANK'] + '/model']\nrun()\n"
    )
    told = subprocess.run(
        torchrun(2, script), capture_output=True, text=True, env=environment(), timeout=120
    )
    assert told.returncode != 0
    assert "every process must see the same folder" in told.stderr
