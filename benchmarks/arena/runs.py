"""Runs: a process for each, with limits of time and memory, and a JSON file of what came of it.

    results/TABLE/QUESTION.SEED/METHOD.json

A run that has a file is not repeated, also where the method failed or did not fit, which is a row
like others, unless it is of other code (``code``), or the limits are wider now and it had reached
those of before. Files are replaced whole, so that the arena can be stopped at any moment.
"""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.arena.code import code_of
from benchmarks.arena.methods import METHODS
from benchmarks.arena.problem import Problem
from benchmarks.arena.scoring import score, score_accuracies

from paper.lib.provenance import commit

RESULTS = Path(__file__).parent / "results"
Record = dict[str, Any]
POLL = 0.1
"""Seconds between two looks at the memory of a run."""


@dataclass(frozen=True)
class Limits:
    """What a run may take."""

    budget: float = 60.0
    """Seconds in which settings are chosen."""
    seconds: float = 300.0
    """Seconds for all of a run, of its processes' start too."""
    memory_mb: float = 8000.0
    """Resident memory."""


@dataclass(frozen=True)
class Run:
    """One method on one question about one table."""

    table: str
    question: str
    method: str
    seed: int = 0

    def path(self, results: Path) -> Path:
        return results / self.table / f"{self.question}.{self.seed}" / f"{self.method}.json"


def is_done(path: Path, limits: Limits) -> bool:
    """Whether a run of this code exists that wider limits would not change."""
    if not path.exists():
        return False
    record = json.loads(path.read_text())
    if record.get("code") != code_of(record["method"]):
        return False
    before = record["limits"]
    if "failed" in record:
        return not record["failed"].startswith("more than") or (
            before["seconds"] >= limits.seconds and before["memory_mb"] >= limits.memory_mb
        )
    return record.get("tried") == record.get("of") or before["budget"] >= limits.budget


def measured(run: Run, problem: Problem, limits: Limits, environments: Path) -> Record:
    """Run a method in a process of its own; the record has its scores, or why there are none."""
    method = METHODS[run.method]
    record: Record = {
        "table": run.table,
        "question": run.question,
        "method": run.method,
        "seed": run.seed,
        "digest": problem.digest(),
        "shape": list(problem.shape),
        "kind": problem.kind,
        "cells": len(problem.index),
        "queries": len(problem.queries),
        "deviation": float(np.std(problem.truth)),
        "limits": vars(limits),
        "commit": commit(),
        "code": code_of(run.method),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
    }
    if why := method.fits(problem):
        return record | {"failed": f"not tried: {why}"}
    with tempfile.TemporaryDirectory(prefix="arena-") as place:
        folder = Path(place)
        problem.write(folder / "problem.npz")
        np.save(folder / "truth.npy", problem.truth)
        command = method.command(run.method, folder, limits.budget, environments)
        if not Path(command[0]).exists():
            return record | {"missing": f"{method.environment} is not set up: --setup does it"}
        record |= limited(command, limits)
        if "failed" in record:
            return record
        try:
            with np.load(folder / "answers.npz", allow_pickle=False) as answers:
                found = dict(answers)
            scores = score(problem, found, record.get("validation_rmse"))
            if run.question == "accuracy":
                scores |= score_accuracies(problem, problem.clipped(found["means"]))
        except (OSError, ValueError) as error:
            return record | {"failed": f"{error}"[:300]}
    return record | {"scores": scores}


def limited(command: list[str], limits: Limits) -> Record:
    """Run a command and end it, with what it started, when it takes too long or too much."""
    started = time.perf_counter()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command, stdout=out, stderr=errors, start_new_session=True, env=variables()
        )
        why, most = "", 0.0
        try:
            while process.poll() is None and not why:
                time.sleep(POLL)
                most = max(most, resident_mb(process.pid))
                if time.perf_counter() - started > limits.seconds:
                    why = f"more than {limits.seconds:g} s"
                elif most > limits.memory_mb:
                    why = f"more than {limits.memory_mb:g} MB"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        told, complaints = (text_of(file) for file in (out, errors))
    record: Record = {"wall_s": time.perf_counter() - started, "peak_mb": most}
    lines = [line for line in told.splitlines() if line.startswith("{")]
    if why:
        return record | {"failed": why}
    if process.returncode or not lines:
        last = (complaints.strip().splitlines() or [f"ended with {process.returncode}"])[-1]
        return record | {"failed": last[:300]}
    return record | json.loads(lines[-1])


def variables() -> dict[str, str]:
    """Environment variables of a run: modules of the repository, and what ours needs."""
    root = Path(__file__).parents[2]
    return os.environ | {"PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}


def text_of(file: Any) -> str:
    file.seek(0)
    return file.read()


def resident_mb(pid: int) -> float:
    """Memory that a process holds now; 0 if it has ended."""
    try:
        found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0.0
    return int(found.group(1)) / 1024 if found else 0.0


def store(record: Record, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}.partial")
    partial.write_text(json.dumps(rounded(record), indent=1) + "\n")
    partial.rename(path)


def rounded(record: Any) -> Any:
    """Numbers with seven digits, which is more than they are worth."""
    if isinstance(record, dict):
        return {key: rounded(value) for key, value in record.items()}
    if isinstance(record, list):
        return [rounded(value) for value in record]
    return float(f"{record:.7g}") if isinstance(record, float) else record


def stored(results: Path) -> list[Record]:
    """All runs that there are, in the sequence of their paths."""
    return [json.loads(path.read_text()) for path in sorted(results.glob("*/*/*.json"))]
