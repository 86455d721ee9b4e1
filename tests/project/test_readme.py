"""The code of README and docs runs as printed, and what the README says of the repository is so."""

import ast
import contextlib
import io
import re
import runpy
import subprocess
import sys

import pytest
from tests.support.markdown import ROOT, blocks, pages, same_output
from tests.support.strangers import STRANGERS

import exchangeable

README = (ROOT / "README.md").read_text(encoding="utf-8")
WITH_CODE = {
    str(page.relative_to(ROOT)): found
    for page in pages()
    if (found := blocks(page.read_text(encoding="utf-8")))
}
EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.py") if path.stem != "demo")
ROOMS = {name for name in exchangeable.__all__ if name.islower() and name != "complete"}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(page):
    """Run the blocks of a page in one namespace; give back its names and what each printed."""
    names, printed = {}, []
    for block in WITH_CODE[page]:
        code = compile("\n" * (block.line - 1) + block.code, page, "exec")
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(code, names)
        printed.append(out.getvalue())
    return names, printed


@STRANGERS
@pytest.mark.parametrize("page", [page for page in WITH_CODE if page != "README.md"])
def test_the_code_of_a_page_runs_and_prints_what_the_page_shows(page):
    _, printed = run(page)
    for block, output in zip(WITH_CODE[page], printed, strict=True):
        if block.output is not None:
            assert same_output(output, block.output), f"{page}:{block.line} prints\n{output}"


def test_the_first_example_is_the_estimator_and_prints_what_the_readme_shows():
    names, (printed,) = run("README.md")
    assert names["completer"].predict([("dora", "Alien")]).shape == (1,)
    assert same_output(printed, WITH_CODE["README.md"][0].output), printed


def test_the_example_of_a_model_predicts_as_many_cells_as_it_queries():
    found = WITH_CODE["docs/guide/training.md"]
    names = {"ex": exchangeable}
    exec(next(block.code for block in found if "model.extend" in block.code), names)
    assert names["predictions"].shape == (2, 1)
    assert names["memory"].shape == (4, 4)


def test_the_recipes_for_contributors_implement_the_interfaces_that_they_name():
    from exchangeable.baselines import Baseline, FittedBaseline
    from exchangeable.nn.pools import Pool

    names, _ = run("CONTRIBUTING.md")
    for made, interface in (("Median", Baseline), ("FittedMedian", FittedBaseline)):
        wanted = {*vars(interface), *interface.__annotations__}
        assert {n for n in wanted if n[0] != "_"} <= {
            *dir(names[made]),
            *names[made].__annotations__,
        }
    assert {n for n in vars(names["RootMeanSquarePool"]) if n[0] != "_"} <= set(dir(Pool))


@pytest.mark.parametrize("page", [page for page in WITH_CODE if page != "CONTRIBUTING.md"])
def test_pages_use_public_names_only(page):
    for block in WITH_CODE[page]:
        assert_public(block.code)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_notebooks_run(name, monkeypatch, capsys):
    path = ROOT / "examples" / f"{name}.py"
    assert_public(path.read_text(encoding="utf-8"))
    # A process of its own would load everything again; tests/cli runs the command as one.
    monkeypatch.setattr(subprocess, "run", run_in_this_process)
    runpy.run_path(str(path), run_name="__main__")
    assert "RMSE" in capsys.readouterr().out


def run_in_this_process(command, check):
    from exchangeable.cli import app

    assert check
    assert command[1:3] == ["-m", "exchangeable"]
    assert not app(command[3:], standalone_mode=False)


def assert_public(code):
    """Assert that code imports the package, its public rooms, and splits and samplers in them."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module or ""]
        else:
            continue
        for module in modules:
            if module.split(".")[0] == "exchangeable":
                assert module == "exchangeable" or module.split(".", 1)[1] in ROOMS, module


def test_both_commands_are_on_the_first_screen():
    first_screen = "\n".join(README.splitlines()[:40])
    assert "make demo" in first_screen
    assert "make test" in first_screen


def test_the_readme_fits_a_few_screens():
    assert len(README.splitlines()) <= 120


def test_the_summary_of_results_is_what_the_stored_runs_give():
    summary = runpy.run_path(str(ROOT / "paper" / "tables" / "summary.py"))["summary"]()
    assert summary in (ROOT / "docs" / "results.md").read_text(encoding="utf-8")


def test_names_in_the_readme_are_public():
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
