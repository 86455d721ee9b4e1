"""Which code a run was made by: its commit, and hashes of the source files that its figures need.

Two commits are the same code for a figure if the files that it depends on differ in nothing but
comments, docstrings and empty lines. Runs store the hashes. For those that were made before they
did, hashes are computed from the history, where it is there.
"""

from __future__ import annotations

import ast
import hashlib
import io
import os
import subprocess
import tarfile
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import exchangeable
from exchangeable.errors import InputError

PACKAGE = Path(exchangeable.__file__).parent
PREFIX = "src/exchangeable/"
"""Where the package is in the repository."""
_BASELINES = ("arrays/", "baselines/", "runtime/random.py", "sums/", "values/")
_TRAINED = (*_BASELINES, "kernels/", "models/", "nn/", "prior/", "training/")
_FINETUNED = (*_TRAINED, "pretraining/")
KINDS: Mapping[str, Sequence[str]] = {
    "counts": (),
    "baselines": _BASELINES,
    "trained": _TRAINED,
    "finetuned": _FINETUNED,
    "pretrained": (*_FINETUNED, "completion/", "data/", "predictors/"),
}
"""What figures depend on, by the kind of method: folders and files of the package.

Counting and the CP factorization of Last.fm need nothing of it.
"""
OTHERS = {"popularity", "artist-tag", "user-tag", "counts", "trees", "cp"}
"""Methods of ``paper.tables.lastfm`` that need nothing of the package."""

Run = Mapping[str, Any]
Code = Mapping[str, str]
"""Hashes by kind."""


def kind_of(method: str) -> str:
    """Return the kind of a method, by its name."""
    from exchangeable.baselines import BASELINES

    if method in OTHERS:
        return "counts"
    if method in BASELINES:
        return "baselines"
    if method.startswith("finetuned"):
        return "finetuned"
    return "pretrained" if method == "pretrained" else "trained"


def commit() -> str:
    """Return the commit of the code, with a + where the package has changes that are not in it.

    EXCHANGEABLE_COMMIT overrides it where there is no history.
    """
    if "EXCHANGEABLE_COMMIT" in os.environ:
        return os.environ["EXCHANGEABLE_COMMIT"]
    try:
        head = _git("rev-parse", "--short", "HEAD").decode().strip()
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", PREFIX)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head + ("+" if changed else "")


@lru_cache(maxsize=1)
def code_here() -> Code:
    """Hashes of the code at hand."""
    return _hashes(
        {name: path.read_bytes() for name, path in package_files().items() if path.is_file()}
    )


def package_files() -> dict[str, Path]:
    """Files of the package that figures may depend on, by name."""
    found = (path for path in PACKAGE.rglob("*") if counts(path.name))
    return {path.relative_to(PACKAGE).as_posix(): path for path in found}


@lru_cache(maxsize=64)
def code_of_commit(commit: str) -> Code | None:
    """Hashes of the code of a commit; None where its history is not there."""
    try:
        packed = _git("archive", commit, PREFIX)
    except (OSError, subprocess.CalledProcessError):
        return None
    files = {}
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive.getmembers():
            content = archive.extractfile(member) if counts(member.name) else None
            if content is not None:
                files[member.name.removeprefix(PREFIX)] = content.read()
    return _hashes(files)


def code_of(run: Run) -> Code:
    """Hashes of the code that made a run: stored, or those of its commit.

    A commit that cannot be looked up is code of its own.
    """
    if "code" in run:
        stored: Code = run["code"]
        return stored
    commit = str(run.get("commit", "unknown"))
    return code_of_commit(commit) or dict.fromkeys(KINDS, commit)


def is_one_code(runs: Sequence[tuple[str, Run]]) -> bool:
    """Whether the code of one of the runs, each with its kind, would make the figures of all."""
    codes = [(kind, code_of(run)) for kind, run in runs]
    return not codes or any(
        all(reference.get(kind) == code.get(kind) for kind, code in codes) for _, reference in codes
    )


def commits_of(runs: Sequence[Run]) -> str:
    """Return the commits of runs, as a row of a table shows them."""
    return ", ".join(dict.fromkeys(str(run.get("commit", "unknown")) for run in runs))


def check_one_code(rows: Mapping[str, Sequence[tuple[str, Run]]], any_commit: bool) -> str:
    """Return a sentence on the code of a table's rows, by their titles.

    Raise where they are of different code, unless that is accepted.
    """
    runs = [one for row in rows.values() for one in row]
    if not runs:
        return "No run is stored."
    if is_one_code(runs):
        return f"All runs are of the same code ({commits_of([run for _, run in runs])})."
    if not any_commit:
        told = "; ".join(
            f"{title}: {commits_of([run for _, run in row])}" for title, row in rows.items() if row
        )
        raise InputError(
            f"a table needs runs of the same code, but these are of different code ({told}): run "
            f"them again with --again, or print them with --any-commit"
        )
    return "Runs are of **different code**: the commit of each row is in its last column."


def counts(name: str) -> bool:
    """Whether figures may depend on a file."""
    return name.endswith((".py", ".safetensors"))


def _hashes(files: Mapping[str, bytes]) -> Code:
    """Hash files by kind."""
    digests = {name: digest(name, content) for name, content in files.items()}
    return {
        kind: together({n: d for n, d in digests.items() if n.startswith(tuple(parts))})
        for kind, parts in KINDS.items()
    }


def together(digests: Mapping[str, str]) -> str:
    """Hash the names and digests of files."""
    lines = "".join(f"{name} {digests[name]}\n" for name in sorted(digests))
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


def digest(name: str, content: bytes) -> str:
    """Hash a file; of a Python module without comments, docstrings and empty lines."""
    if name.endswith(".py"):
        content = _without_prose(content.decode()).encode()
    return hashlib.sha256(content).hexdigest()


def _without_prose(source: str) -> str:
    """Leave out comments, docstrings and empty lines.

    What is left is text, and no dump of a syntax tree, which each version of Python has its own of.
    """
    lines = source.splitlines()
    gone = [token.start + token.end for token in _tokens(source) if token.type == tokenize.COMMENT]
    gone += [
        (node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and _is_text(node.value)
    ]
    for first, start, last, end in sorted(gone, reverse=True):
        # Columns of syntax trees count bytes; what is cut begins and ends its lines, or is ASCII.
        head, tail = lines[first - 1][:start], lines[last - 1].encode()[end:].decode()
        lines[first - 1 : last] = [head + tail]
    return "\n".join(line.rstrip() for line in lines if line.strip())


def _tokens(source: str) -> Iterator[tokenize.TokenInfo]:
    return tokenize.generate_tokens(io.StringIO(source).readline)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _git(*arguments: str) -> bytes:
    done = subprocess.run(
        ["git", *arguments], capture_output=True, check=True, cwd=Path(__file__).parents[2]
    )
    return done.stdout
