"""What code a run is of: a hash of the files that its answers and scores depend on.

Changes of comments and docstrings are none. A run of ours depends on the parts of the package that
its method uses; one of a peer on the script that asks it. Both depend on the tables, the questions,
the search and the scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from benchmarks.arena.methods import METHODS, PEERS

from paper.lib.provenance import KINDS, digest, package_files, together

ROOT = Path(__file__).parents[2]
ARENA = Path("benchmarks/arena")
ALL = (
    *(ARENA / f"{name}.py" for name in ("problem", "questions", "scoring", "search", "tables")),
    PEERS / "positives.py",
)
OURS = (ARENA / "ours.py", ARENA / "rasch.py")
OF_PEERS = (PEERS / "harness.py",)
FITTED, COMPLETED = (*KINDS["baselines"], "predictors/"), (*KINDS["pretrained"], "ranking/")
"""Parts of the package of methods that are fitted alone, and of those behind ``Completer``."""


@cache
def code_of(name: str) -> str:
    """Hash the code that a method's runs depend on."""
    method = METHODS[name]
    if method.environment is not None:
        scripts = [PEERS / script for script in (method.script, *method.modules)]
        return hashed([*ALL, *OF_PEERS, *scripts], ())
    return hashed([*ALL, *OURS], FITTED if method.fitted else COMPLETED)


def hashed(paths: Sequence[Path], parts: tuple[str, ...]) -> str:
    """Hash files of the repository, and parts of the package."""
    files = {path.as_posix(): ROOT / path for path in paths}
    files |= {n: path for n, path in package_files().items() if parts and n.startswith(parts)}
    return together({name: digest_of(path) for name, path in files.items()})


@cache
def digest_of(path: Path) -> str:
    """Hash a file, which many methods may depend on."""
    return digest(path.name, path.read_bytes())
