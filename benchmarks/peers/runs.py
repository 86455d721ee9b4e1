"""Runs of peers, each a process of its own in an environment with the peer and nothing of ours.

A run prints a line of JSON after each stage (harness.py); what it printed before it ended is kept.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PINNED = HERE / "requirements.txt"
Record = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """How a row of the table comes about."""

    script: str
    arguments: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    """What has to be installed; ours needs nothing."""


def install(environment: Path, packages: Sequence[str], pinned: Path = PINNED) -> str:
    """Packages at their pinned versions; returns why it failed, or nothing."""
    if not python_of(environment).exists():
        venv.create(environment, with_pip=True)
        (environment / ".gitignore").write_text("*\n")
    command = [python_of(environment), "-m", "pip", "install", "--quiet", "-c", pinned, *packages]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.returncode:
        return ""
    told = [line for line in done.stderr.splitlines() if "error" in line.lower()]
    ends = dict.fromkeys([*told[:1], *told[-1:]])  # what went wrong first, and what that led to
    return f"cannot be installed: {'; '.join(map(str.strip, ends)) or 'pip failed'}"


def python_of(environment: Path) -> Path:
    return environment / "bin" / "python"


def measured(run: Run, path: Path, limit: int, environment: Path) -> Record:
    """All that a run told before it ended, and why it ended if that was too early."""
    python = python_of(environment) if run.packages else Path(sys.executable)
    if not python.exists():
        return {"failed": "not installed: --install does it"}
    command = [python, HERE / run.script, path, str(limit), *run.arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    record: Record = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            record |= json.loads(line)
    if done.returncode == -signal.SIGALRM:
        record["over"] = limit
    elif done.returncode:
        last = (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1]
        missing = "ModuleNotFoundError" in last and run.packages
        record["failed"] = f"{last}{' (--install gets it)' if missing else ''}"
    return record
