"""Tables are printed of runs of the same code only, unless others are accepted."""

import json
import subprocess
import sys

import pytest

from exchangeable.errors import InputError
from paper.lib import provenance, runs
from paper.lib.provenance import check_one_code, code_of, is_one_code
from paper.lib.tables import Column, Row, format_table
from paper.pretrained import development
from paper.tables import ml100k, summary


def run(commit, **code):
    return {"commit": commit, "code": {**dict.fromkeys(provenance.KINDS, "same"), **code}}


def test_runs_of_two_commits_whose_files_are_the_same_are_of_one_code():
    assert is_one_code([("trained", run("a")), ("trained", run("b"))])
    assert not is_one_code([("trained", run("a")), ("trained", run("b", trained="other"))])


def test_what_a_kind_of_figure_does_not_depend_on_may_differ():
    later = run("b", trained="other", finetuned="other", pretrained="other")
    assert is_one_code([("baselines", run("a")), ("trained", later)])
    assert not is_one_code([("trained", run("a")), ("trained", later)])
    # Each agrees with some other, but no one code makes all three.
    first, second = run("a", trained="1", baselines="1"), run("b", trained="1", baselines="2")
    assert not is_one_code([("trained", first), ("baselines", first), ("baselines", second)])


def test_different_code_is_refused_with_its_commits_and_printed_if_accepted():
    rows = {"bias": [("baselines", run("a1"))], "ours": [("trained", run("b2"))]}
    assert check_one_code(rows, any_commit=False) == "All runs are of the same code (a1, b2)."
    rows["ours"].append(("trained", run("c3", trained="y")))
    with pytest.raises(InputError, match=r"bias: a1; ours: b2, c3.*--any-commit"):
        check_one_code(rows, any_commit=False)
    assert "different code" in check_one_code(rows, any_commit=True)


def test_a_table_has_the_commits_of_its_rows_and_no_figure_of_mixed_code():
    found = [
        {"problem": "p", "split": "a", "method": "ours", "rmse": 0.9, **run("a1")},
        {"problem": "p", "split": "a", "method": "ours", "rmse": 0.8, **run("b2", trained="x")},
    ]
    table = [Column("A", "p", ("a",))], [Row("ours", [], "ours"), Row("bias", [], "bias")]
    with pytest.raises(InputError, match="different code"):
        format_table("T", *table, found)
    shown = format_table("T", *table, found, any_commit=True).splitlines()
    assert shown[4].endswith("| a1, b2 |")
    assert shown[5] == "| bias | – | – |"
    assert "**different code**" in shown[-1]


def test_comments_docstrings_and_empty_lines_are_no_other_code():
    plain = "def f(x):\n    return x + 1\n"
    prose = '"""Module."""\n# why\n\ndef f(x):\n    """Add é."""\n\n    return x + 1  # one\n'
    other = "def f(x):\n    return x + 2\n"
    digests = [
        provenance._hashes({"nn/f.py": s.encode()})["trained"] for s in (plain, prose, other)
    ]
    assert digests[0] == digests[1] != digests[2]
    text = 'A = """a # no comment"""\n'  # a value, which counts
    assert provenance._without_prose(text) == text.rstrip()


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("baselines/gibbs.py", {"baselines", "trained", "finetuned", "pretrained"}),
        ("models/memory.py", {"trained", "finetuned", "pretrained"}),
        ("pretraining/order2/model.safetensors", {"finetuned", "pretrained"}),
        ("completion/fit.py", {"pretrained"}),
        ("serve/page.py", set()),
    ],
)
def test_a_file_counts_for_the_kinds_that_depend_on_it(name, kinds):
    before, after = (provenance._hashes({name: text}) for text in (b"a = 1", b"a = 2"))
    assert {kind for kind in provenance.KINDS if before[kind] != after[kind]} == kinds


def test_methods_have_a_kind():
    kinds = {m: provenance.kind_of(m) for m in ("bmf", "ours", "finetuned", "pretrained", "trees")}
    assert list(kinds.values()) == ["baselines", "trained", "finetuned", "pretrained", "counts"]


def test_the_code_of_an_old_run_is_looked_up_in_the_history(monkeypatch):
    head = provenance._git("rev-parse", "HEAD").decode().strip()
    assert code_of({"commit": head}) == provenance.code_of_commit(head)
    assert code_of({"commit": "never"}) == dict.fromkeys(provenance.KINDS, "never")
    assert code_of({"commit": head, "code": {"trained": "kept"}}) == {"trained": "kept"}
    changed = provenance._git("status", "--porcelain", "--", provenance.PREFIX)
    if not changed:
        assert provenance.code_here() == provenance.code_of_commit(head)


def test_a_run_has_the_commit_and_the_code_that_made_it(monkeypatch):
    facts = runs.environment_facts("cpu")
    assert facts["code"] == provenance.code_here()
    monkeypatch.setenv("EXCHANGEABLE_COMMIT", "elsewhere")
    assert runs.environment_facts("cpu")["commit"] == "elsewhere"


def test_commands_refuse_stored_runs_of_different_code(tmp_path, monkeypatch, capsys):
    for seed, code in enumerate(("x", "y")):
        own = {"problem": "ml-100k", "split": "u1", "method": "bmf", "seed": seed, "rmse": 0.9}
        runs.keep({**own, **run(f"c{seed}", baselines=code)}, tmp_path)
    monkeypatch.setattr(sys, "argv", ["paper", "--print", "--out", str(tmp_path)])
    with pytest.raises(InputError, match="Bayesian MF: c0, c1"):
        ml100k.main()
    assert capsys.readouterr().out.strip() == ""
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--any-commit"])
    ml100k.main()
    assert "| Bayesian MF | – | 0.9000 ± 0.0000 (2) | – | c0, c1 |" in capsys.readouterr().out


def test_the_summary_says_the_commits_of_its_rows(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["summary", "--any-commit"])
    summary.main()
    printed = capsys.readouterr().out
    assert printed.startswith(summary.summary())
    for title, *_ in summary.ROWS:
        assert f"\n{title}: " in printed


def test_yardsticks_that_were_kept_have_their_own_code():
    scores = {"rmse": 1.0}
    kept = {"table": "t", "bias": {**scores, "commit": "old"}, "vmf": scores, "bmf": scores}
    found = development.methods_of({**kept, "pretrained": scores, "commit": "new"})
    assert [one["commit"] for _, one in found] == ["old", "new", "new", "new"]


def test_a_repository_that_is_not_there_is_no_error(monkeypatch):
    def fail(*_, **__):
        raise subprocess.CalledProcessError(128, "git")

    monkeypatch.setattr(subprocess, "run", fail)
    monkeypatch.delenv("EXCHANGEABLE_COMMIT", raising=False)
    assert provenance.commit() == "unknown"
    provenance.code_of_commit.cache_clear()
    assert json.dumps(code_of({"commit": "abc"}))
