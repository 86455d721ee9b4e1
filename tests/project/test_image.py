"""The container's image: its health check works, and it holds what the command needs."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")


def instruction(name):
    """What follows the last instruction of a name."""
    return re.findall(rf"^{name} +(.*)$", TEXT, flags=re.MULTILINE)[-1]


def test_the_health_check_succeeds_only_while_the_service_runs(tmp_path):
    pytest.importorskip("uvicorn", reason="needs exchangeable[serve]")
    from tests.support.service import served

    command = json.loads(instruction("HEALTHCHECK").partition("CMD ")[2])
    command[0] = sys.executable
    with served(tmp_path, "--model", "bias") as service:
        checked = [word.replace(":8080/", f":{service.port}/") for word in command]
        assert checked != command
        assert subprocess.run(checked, capture_output=True).returncode == 0
    assert subprocess.run(checked, capture_output=True).returncode != 0


def test_it_does_not_run_as_root_and_keeps_its_state_in_a_volume():
    assert instruction("USER") == "exchangeable"
    assert instruction("VOLUME") == instruction("WORKDIR") == "/tables"
    assert TEXT.index("USER exchangeable") < TEXT.index("ENTRYPOINT")


def test_what_it_copies_is_there_and_not_ignored():
    allowed = {
        line[1:] for line in (ROOT / ".dockerignore").read_text().split() if line.startswith("!")
    }
    copied = {
        word
        for line in re.findall(r"^COPY (.*)$", TEXT, flags=re.MULTILINE)
        for word in shlex.split(line)[:-1]
    }
    assert copied == allowed
    assert all((ROOT / name).exists() for name in copied)


def test_its_command_is_one_of_the_package():
    from typer.testing import CliRunner

    from exchangeable.cli import app

    words = json.loads(instruction("CMD"))
    told = CliRunner().invoke(app, [words[0], "--help"], env={"COLUMNS": "200"})
    assert told.exit_code == 0
    assert all(word in told.output for word in words if word.startswith("--"))
