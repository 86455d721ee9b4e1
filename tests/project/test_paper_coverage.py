"""The page on what of the paper is where names things that exist, and leaves nothing empty."""

import importlib
import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from exchangeable.cli import app
from paper.figures import drawings
from paper.lib.methods import METHODS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "paper-coverage.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and "in the paper" not in line]
CODE = sorted(set(re.findall(r"`([^`]+)`", PAGE)))
NAMES = [name for name in CODE if re.match(r"(exchangeable|paper)(\.\w+)+", name)]
FILES = [name for name in CODE if "/" in name and name.endswith(".py") and " " not in name]
COMMANDS = [name for name in CODE if name.startswith("python ")]
OURS = [name for name in CODE if name.startswith("exchangeable ")]
"""What counts the parts of the paper: its LaTeX has so many."""
PARTS = {"Figure": 7, "Table": 4, "Equation": 6}


def test_no_place_of_the_tables_is_empty():
    assert len(ROWS) > 35
    for row in ROWS:
        cells = [cell.strip() for cell in row.strip("| ").split(" | ")]
        assert len(cells) == 3, row
        assert all(cells), row


@pytest.mark.parametrize("kind", PARTS)
def test_every_figure_table_and_equation_of_the_paper_has_a_place(kind):
    left = " ".join(row.split(" | ")[0] for row in ROWS)
    found = {int(number) for number in re.findall(rf"{kind} (\d)", left, flags=re.IGNORECASE)}
    assert found == set(range(1, PARTS[kind] + 1))


@pytest.mark.parametrize("name", NAMES)
def test_modules_classes_and_functions_exist(name):
    resolve(re.match(r"[\w.]+", name).group())


@pytest.mark.parametrize("name", FILES)
def test_files_exist(name):
    assert (ROOT / name).is_file()


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_of_modules_and_scripts_exist_and_their_methods_too(command):
    _, *words = shlex.split(command)
    if words[0] == "-m":
        assert callable(importlib.import_module(words[1]).main)
        words = words[1:]
    else:
        assert (ROOT / words[0]).is_file()
    if "--only" in words:
        known = {*METHODS, *drawings.PICTURES}
        assert set(words[words.index("--only") + 1 :]) <= known


@pytest.mark.parametrize("command", OURS)
def test_commands_of_the_package_exist_with_their_options(command):
    _, name, *words = shlex.split(command)
    options = {option for p in get_command(app).commands[name].params for option in p.opts}
    assert {word for word in words if word.startswith("--")} <= options


def test_a_name_that_does_not_exist_is_found_out():
    with pytest.raises(AttributeError):
        resolve("exchangeable.nn.pools.NoSuchPool")


def resolve(name):
    """The module, class or attribute of a dotted name."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        return found
    raise AttributeError(name)
