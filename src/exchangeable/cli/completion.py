"""``exchangeable complete``, ``recommend`` and ``factorize``: answers for a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from exchangeable.cli.common import (
    DEFAULTS,
    AsJson,
    Device,
    FeatureFiles,
    Force,
    Memory,
    Model,
    Output,
    Seed,
    TableArgument,
    check_drawable,
    check_ending,
    check_free,
    feature_files,
    fitted,
    open_completer,
    open_table,
    progress_bar,
    report_errors,
    with_table_options,
    write_frame,
)
from exchangeable.data.options import TableOptions
from exchangeable.errors import InputError
from exchangeable.runtime.files import write_whole

if TYPE_CHECKING:
    import polars as pl

MOST_CELLS = 5_000_000

Out = Annotated[Path | None, typer.Option(help="Where to write: .csv, .tsv or .parquet.")]


@report_errors
@with_table_options
def complete(
    table: TableArgument,
    out: Out = None,
    queries: Annotated[
        Path | None, typer.Option(help="A file with the cells to answer, a column per axis.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Answer every cell of the table.")] = False,
    limit: Annotated[int, typer.Option(help="The most cells that --all may write.")] = MOST_CELLS,
    report: Annotated[
        Path | None, typer.Option(help="A page to look at: what was read, and how sure it is.")
    ] = None,
    model: Model = "auto",
    features: FeatureFiles = None,
    seed: Seed = 0,
    device: Device = "auto",
    memory: Memory = None,
    force: Force = False,
    options: TableOptions = DEFAULTS,
    as_json: AsJson = False,
) -> None:
    """Fill in a table: predictions with an 80 % interval.

    The cells to fill are those whose value is empty, those of --queries, or --all. Under
    torchrun several processes share the work, and the first of them writes.
    """
    from exchangeable.completion import fill
    from exchangeable.runtime.devices import parse_size
    from exchangeable.runtime.processes import join_processes

    if queries is not None and every:
        raise InputError("cells are those of --queries or --all of them, but both were given")
    place = out or default_out(table, "completed")
    check_ending(place)
    check_free(place, force)
    if report is not None:
        check_free(report, force)
        check_drawable()
        if report.resolve() == place.resolve():
            raise InputError(f"answers and report need files of their own, but both are {report}")
    parse_size(memory)
    with join_processes() as processes:
        output = Output(as_json, processes)
        found, _ = open_table(table, options)
        # All that can be wrong is found out before anything is fitted.
        request = fill.FillRequest.of(found, queries=queries, every=every, limit=limit)
        found = found.in_label_order(in_place=True)
        members = feature_files(features)
        completer = fitted(found, model, seed, device, members, output, memory, processes)
        with progress_bar(processes) as progress:
            frame = fill.fill(completer.fitted_, request, progress)
        content = None
        if report is not None:
            from exchangeable.evaluation.report import page

            with progress_bar(processes) as progress:
                content = page(table, found, completer, progress, members)
        if processes.first:
            write_frame(place, frame)
            if report is not None and content is not None:
                written = content
                write_whole(report, lambda path: path.write_text(written, encoding="utf-8"))
    output.know(
        out=str(place),
        answered=request.missing,
        report=None if report is None else str(report),
    )
    page_told = "" if report is None else f", and a report to {report}"
    output.end(f"answered {request.missing:,} cells, written to {place}{page_told}")


@report_errors
@with_table_options
def recommend(
    table: Annotated[str, typer.Argument(help="A dataset, a file, or a saved completer.")],
    member: Annotated[str, typer.Argument(help="For whom: the label of a member.")],
    n: Annotated[int, typer.Option("-n", help="How many.")] = 10,
    axis: Annotated[str, typer.Option(help="The member's axis, by name or number from 0.")] = "0",
    rate: Annotated[
        list[str] | None,
        typer.Option(help="A rating of the member, LABEL=VALUE, that is not in the table; again."),
    ] = None,
    given: Annotated[
        list[str] | None,
        typer.Option(help="With more than two axes: AXIS=LABEL of another axis; again."),
    ] = None,
    model: Model = "auto",
    features: FeatureFiles = None,
    seed: Seed = 0,
    device: Device = "auto",
    options: TableOptions = DEFAULTS,
    as_json: AsJson = False,
) -> None:
    """The best unseen cells of a member, known or new."""
    from exchangeable.arrays.cells import UNKNOWN
    from exchangeable.completion.inputs import find_axis
    from exchangeable.data.vocabulary import column_of

    output = Output(as_json)
    ratings = {label: _number(text, label) for label, text in _pairs("--rate", rate)}
    completer = open_completer(table, options, model, seed, device, output, feature_files(features))
    place = int(axis) if axis.isdecimal() else axis
    at = find_axis(completer.table_, place)
    others = [number for number in range(completer.table_.order) if number != at]
    vocabularies = completer.table_.vocabularies
    typed = {vocabularies[others[0]].parse_label(k): v for k, v in ratings.items()}
    fixed = {}
    for name, label in _pairs("--given", given, last=False):
        fixed[name] = vocabularies[find_axis(completer.table_, name)].parse_label(label)
    named = vocabularies[at].parse_label(member)
    found = completer.recommend(
        named,
        n,
        axis=at,
        ratings=typed or None,
        given=fixed or None,
    )
    rows = _polars(found)
    if vocabularies[at].encode(column_of("member", [named]))[0] == UNKNOWN:
        output.say(f"{member} is not in the table")
    output.know(member=member, recommended=rows.to_dicts())
    for row in rows.iter_rows(named=True):
        labels = ", ".join(str(v) for k, v in row.items() if k in completer.table_.axes)
        mean, low, high = list(row.values())[-3:]
        output.say(f"{mean:8.3f}  ({low:.2f} to {high:.2f})  {labels}")
    known = "" if len(rows) else f"nothing is left to recommend to {member}"
    output.end(known)


@report_errors
@with_table_options
def factorize(
    table: Annotated[str, typer.Argument(help="A dataset, a file, or a saved completer.")],
    out: Out = None,
    neighbours: Annotated[int, typer.Option(help="Nearest members to name.")] = 3,
    model: Model = "auto",
    features: FeatureFiles = None,
    seed: Seed = 0,
    device: Device = "auto",
    force: Force = False,
    options: TableOptions = DEFAULTS,
    as_json: AsJson = False,
) -> None:
    """One vector for each member of every axis, and who is nearest to whom; vmf's if by none."""
    from exchangeable.completion.factors import factor_frame

    place = out or default_out(table, "factors")
    check_ending(place)
    check_free(place, force)
    output = Output(as_json)
    completer = open_completer(
        table, options, model, seed, device, output, feature_files(features), usual="vmf"
    )
    frame = factor_frame(completer.fitted_, neighbours)
    write_frame(place, frame)
    for axis, size in zip(completer.table_.axes, completer.table_.shape, strict=True):
        example = frame.filter(frame["axis"] == axis).row(0, named=True)
        output.say(f"{size:,} {axis}: {example['member']} is nearest to {example['nearest']}")
    output.know(out=str(place), members=len(frame))
    output.end(f"vectors of {len(frame):,} members, written to {place}")


def default_out(name: str, what: str) -> Path:
    """Beside the input: ratings.csv.gz becomes ratings.completed.csv."""
    return Path(Path(name).parent, f"{stem_of(name)}.{what}.csv")


def stem_of(name: str) -> str:
    """What a table is called, without endings."""
    stem = Path(name).name
    for ending in (".gz", ".zip", ".csv", ".tsv", ".txt", ".dat", ".data", ".parquet"):
        stem = stem[: -len(ending)] if stem.lower().endswith(ending) else stem
    return stem or "table"


def _pairs(option: str, given: list[str] | None, last: bool = True) -> list[tuple[str, str]]:
    """Parted at the last sign of equality, or at the first."""
    pairs = []
    for text in given or []:
        name, equals, rest = text.rpartition("=") if last else text.partition("=")
        if not equals or not name:
            raise InputError(f"{option} takes NAME=VALUE, but came as {text!r}")
        pairs.append((name, rest))
    return pairs


def _number(text: str, label: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"the rating of {label!r} must be a number, but is {text!r}") from None


def _polars(frame: Any) -> pl.DataFrame:
    import polars as pl

    return frame if isinstance(frame, pl.DataFrame) else pl.DataFrame(frame)
