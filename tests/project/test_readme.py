"""The README's code runs as printed, and what it says of the repository is so."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


def test_there_is_code_to_run():
    assert len(BLOCKS) >= 2


@pytest.mark.parametrize("code", BLOCKS)
def test_code_runs_as_printed(code):
    exec(compile(code, "README.md", "exec"), {})


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_the_first_example_is_the_estimator():
    names = {}
    exec(compile(BLOCKS[0], "README.md", "exec"), names)
    assert names["completer"].predict([("dora", "Alien")]).shape == (1,)


def test_the_example_of_a_model_answers_as_many_cells_as_it_asks():
    names = {}
    code = next(block for block in BLOCKS if "model.extend" in block)
    exec(compile(code, "README.md", "exec"), names)
    assert names["answers"].shape == (2, 1)
    assert names["memory"].shape == (4, 4)


def test_the_code_in_the_docs_runs_page_by_page():
    for page in sorted((ROOT / "docs").glob("*.md")):
        code = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        exec(compile("\n".join(code), page.name, "exec"), {})


def test_both_commands_are_on_the_first_screen():
    first_screen = "\n".join(README.splitlines()[:40])
    assert "make demo" in first_screen
    assert "make test" in first_screen


def test_links_inside_the_repository_lead_somewhere():
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if "://" not in link]
    assert links
    for link in links:
        assert (ROOT / link).exists(), link


def test_names_in_the_readme_are_public():
    import exchangeable

    for name in re.findall(r"`([A-Z]\w+)`", README):
        assert name in exchangeable.__all__, name


def test_neither_torch_nor_polars_is_loaded_before_it_is_needed():
    code = (
        "import sys, exchangeable.cli; assert not {'torch', 'polars'} & set(sys.modules); "
        "from exchangeable.datasets import load; assert 'torch' not in sys.modules; "
        "from exchangeable import ResidualModel; assert 'torch' in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    without = "import sys; sys.modules['polars'] = None; from exchangeable import ResidualModel"
    assert subprocess.run([sys.executable, "-c", without], check=False).returncode == 0
