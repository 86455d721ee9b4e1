"""Several processes that share the cells give what one gives, and end clearly when one dies."""

import json
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
from tests.support.shared_cells import computed
from typer.testing import CliRunner

from exchangeable.cli import app
from exchangeable.runtime.processes import ALONE, Processes
from exchangeable.training.trained_model import TrainedModel

ROOT = Path(__file__).parents[2]
SUPPORT = ROOT / "tests" / "support"


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
    for _ in range(2):  # another job may take the port that torchrun has just found free
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, env=environment(), **options
        )
        if "address already in use" not in done.stderr.lower():
            break
    assert done.returncode == 0, done.stderr[-4000:]
    return done


def alone(*command):
    """A command in this process."""
    done = CliRunner().invoke(app, [str(part) for part in command])
    assert done.exit_code == 0, done.output


def test_shares_are_all_of_it_and_nothing_twice():
    for number in (0, 1, 2, 7, 100):
        shares = [Processes(rank, 3).share(number) for rank in range(3)]
        assert shares[0][0] == 0
        assert shares[-1][1] == number
        assert all(one[1] == other[0] for one, other in pairwise(shares))


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """The folder of what two processes computed, and three."""
    folder = tmp_path_factory.mktemp("shared")
    run([sys.executable, "-m", "tests.support.shared_cells", str(folder)], cwd=ROOT)
    return folder


@pytest.fixture(scope="module")
def expected():
    return computed(ALONE)


@pytest.mark.parametrize("number", [2, 3])
def test_answers_and_gradients_are_those_of_one_process(number, shared, expected):
    for rank in range(number):
        found = load_file(shared / f"{number}.{rank}.safetensors")
        assert set(found) == set(expected)
        for name, tensor in found.items():
            torch.testing.assert_close(tensor, expected[name], rtol=1e-10, atol=1e-10)


@pytest.fixture(scope="module")
def ratings(tmp_path_factory):
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
    path = tmp_path_factory.mktemp("ratings") / "ratings.csv"
    frame.write_csv(path)
    return path


def forked(*commands):
    """What commands tell that are run by two processes, one command after the other."""
    words = json.dumps([[str(part) for part in command] for command in commands])
    return run([sys.executable, str(SUPPORT / "forks.py"), "2", words], timeout=120)


def exit_codes(told):
    return json.loads(told.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def job(ratings, tmp_path_factory):
    """Models trained by one process and by two, and what two tell that complete by the first."""
    folder = tmp_path_factory.mktemp("job")
    train = ["train", ratings, "--steps", 12, "--width", 8, "--depth", 2, "--evaluate-every", 4]
    alone(*train, "--out", folder / "one")
    trained = run(torchrun(2, "-m", "exchangeable", *train, "--out", folder / "two"), timeout=120)
    complete = ["complete", ratings, "--model", folder / "one", "--out", folder / "two.csv"]
    completed = forked(complete, ["complete", folder / "none.csv"])
    return folder, trained, completed


def test_the_commands_work_unchanged(ratings, job):
    folder, trained, completed = job
    assert trained.stdout.count("trained residual") == 1
    one, two = (TrainedModel.load(folder / name) for name in ("one", "two"))
    rmse = "validation RMSE"
    assert two.facts[rmse] == pytest.approx(one.facts[rmse], rel=1e-4)

    alone("complete", ratings, "--model", folder / "one", "--out", folder / "one.csv")
    assert exit_codes(completed)[0] == [0, 0]
    assert completed.stdout.count("predicted 50 cells") == 1
    answers = [pl.read_csv(folder / f"{name}.csv") for name in ("one", "two")]
    assert answers[0].columns == answers[1].columns
    for column in answers[0].columns:
        difference = (answers[0][column] - answers[1][column]).abs().max()
        assert difference is None or difference < 1e-5


def test_wrong_input_is_told_once(job):
    _, _, completed = job
    assert all(exit_codes(completed)[1])
    assert completed.stderr.count("error: ") == 1


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
    train = ["train", ratings, "--steps", 6, "--width", 8, "--depth", 2]
    alone(*train, "--out", tmp_path / "0" / "model")
    told = forked([*train, "--resume", "--out", tmp_path / "{rank}" / "model"])
    assert exit_codes(told) == [[2, 2]]
    assert "every process must see the same folder" in told.stderr
