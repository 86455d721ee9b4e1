"""The demo runs as a command, says what it did, and writes its picture."""

import os
import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


def run(*options):
    # Wide enough for the table, whatever the terminal of whoever runs the tests.
    return subprocess.run(
        [sys.executable, "-W", "error", str(DEMO), *options],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "COLUMNS": "120", "PYTHONIOENCODING": "utf-8"},
        check=False,
    )


def test_the_demo_beats_biases_on_a_table_it_never_saw(tmp_path):
    picture = tmp_path / "new folder" / "demo.png"
    done = run("--out", str(picture))
    assert done.returncode == 0, done.stderr
    lines = [line.split("│") for line in done.stdout.splitlines() if "│" in line]
    errors = {row[1].strip(): (float(row[2]), float(row[3])) for row in lines if len(row) == 5}
    for at in (0, 1):  # on hidden ratings, and of the true taste
        assert errors["pretrained model"][at] < errors["bias per member and film"][at]
        assert errors["pretrained model"][at] < errors["variational factorization"][at]
        assert errors["bias per member and film"][at] < errors["mean"][at]
    assert len([row for row in lines if len(row) == 8]) == 8  # ratings with their intervals
    assert str(picture.name) in done.stdout.replace("\n", "")
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_an_unknown_option_is_named():
    done = run("--stepps", "3")
    assert done.returncode == 2
    assert "unrecognized arguments: --stepps" in done.stderr
