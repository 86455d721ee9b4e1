"""``exchangeable complete``, ``recommend`` and ``factorize``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exchangeable.cli.options import (
    DEFAULTS,
    AsJson,
    Device,
    FeatureFiles,
    Force,
    Memory,
    Model,
    Seed,
    TableArgument,
    TableOrCompleter,
    open_table,
    with_table_options,
)
from exchangeable.cli.output import (
    Output,
    check_ending,
    check_plotting,
    check_writable,
    default_out,
    progress_bar,
    report_errors,
    write_frame,
)
from exchangeable.data.options import TableOptions
from exchangeable.errors import InputError
from exchangeable.runtime.files import whole_file
from exchangeable.runtime.phrases import format_count

if TYPE_CHECKING:
    from exchangeable.cli.features import Frames
    from exchangeable.completion.completer import Completer
    from exchangeable.data.table import Table
    from exchangeable.runtime.processes import Processes

MAX_CELLS = 5_000_000
"""Default maximum of cells that ``--all`` writes."""

Out = Annotated[Path | None, typer.Option(help="Output file: .csv, .tsv or .parquet.")]


@report_errors
@with_table_options
def complete(
    table: TableArgument,
    out: Out = None,
    queries: Annotated[
        Path | None, typer.Option(help="File with the cells to predict, one column per axis.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Write every cell of the table, predicted if unobserved.")
    ] = False,
    limit: Annotated[int, typer.Option(help="Maximum number of cells for --all.")] = MAX_CELLS,
    report: Annotated[
        Path | None,
        typer.Option(help="Also write an HTML report: the data, accuracy and uncertainty."),
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
    """Fill in a table: predictions with 80 % intervals.

    Predicts the cells without a value, those of --queries, or --all. Other columns of the rows are
    written as they came, but not with --all. Under torchrun several processes share the work, and
    the first of them writes.
    """
    from exchangeable.cli.features import read_features
    from exchangeable.completion import fill
    from exchangeable.runtime.devices import parse_size
    from exchangeable.runtime.processes import join_processes

    if queries is not None and every:
        raise InputError("--queries and --all exclude each other, but both were given")
    if limit < 1:
        raise InputError(f"--limit must be 1 or more, but is {limit}")
    out = out or default_out(table, "completed")
    check_ending(out)
    check_writable(out, force)
    if report is not None:
        check_writable(report, force)
        check_plotting()
        if report.resolve() == out.resolve():
            raise InputError(f"--out and --report must be different files, but both are {report}")
    parse_size(memory)
    with join_processes() as processes:
        output = Output(as_json, processes)
        data, _ = open_table(table, options)
        # All input is checked before anything is fitted.
        frames = read_features(features, data)
        request = fill.FillRequest.of(data, queries=queries, every=every, limit=limit)
        if out.suffix.lower() != ".parquet":
            request.check_csv()
        data = data.in_label_order(in_place=True)
        completer = fit_completer(data, model, seed, device, frames, output, memory, processes)
        with progress_bar(processes) as progress:
            filled = fill.fill(completer.fitted_, request, progress)
        page = None
        if report is not None:
            from exchangeable.evaluation.report import page as render

            with progress_bar(processes) as progress:
                page = render(table, data, completer, progress, frames)
        if processes.first:
            write_frame(out, filled)
            if report is not None and page is not None:
                with whole_file(report) as target:
                    target.write_text(page, encoding="utf-8")
    output.fact(
        out=str(out),
        answered=request.missing,
        report=None if report is None else str(report),
    )
    and_report = "" if report is None else f", report written to {report}"
    predicted = format_count(request.missing, "cell")
    output.finish(f"predicted {predicted}, written to {out}{and_report}")


@report_errors
@with_table_options
def recommend(
    table: TableOrCompleter,
    member: Annotated[str, typer.Argument(help="Label of the member to recommend to.")],
    n: Annotated[int, typer.Option("-n", help="Number of recommendations.")] = 10,
    axis: Annotated[str, typer.Option(help="Axis of the member, by name or number from 0.")] = "0",
    rate: Annotated[
        list[str] | None,
        typer.Option(
            help="LABEL=VALUE: a rating by the member that is not in the table; repeatable."
        ),
    ] = None,
    given: Annotated[
        list[str] | None,
        typer.Option(
            help="AXIS=LABEL: a fixed member of another axis, with three axes or more; repeatable."
        ),
    ] = None,
    among: Annotated[
        list[str] | None, typer.Option(help="LABEL that may be listed; repeatable.")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(help="LABEL that may not be listed; repeatable.")
    ] = None,
    include_seen: Annotated[
        bool, typer.Option("--include-seen", help="List observed cells, too.")
    ] = False,
    exposure: Annotated[
        float,
        typer.Option(help="How far the chance to be observed counts beside values, such as 0.5."),
    ] = 0.0,
    model: Model = "auto",
    features: FeatureFiles = None,
    seed: Seed = 0,
    device: Device = "auto",
    options: TableOptions = DEFAULTS,
    as_json: AsJson = False,
) -> None:
    """Recommend the best unobserved cells of a member, known or new.

    Of positives (rows without a value) the likeliest further ones are listed, with their chances.
    """
    import polars as pl

    from exchangeable.arrays.cells import UNKNOWN
    from exchangeable.completion.inputs import find_axis
    from exchangeable.completion.recommend import RecommendQuery
    from exchangeable.completion.recommend import recommend as find_best
    from exchangeable.data.vocabulary import column_of

    output = Output(as_json)
    ratings = {label: _parse_rating(text, label) for label, text in _split_pairs("--rate", rate)}
    completer = open_completer(table, options, model, seed, device, output, features)
    at = find_axis(completer.table_, int(axis) if axis.isdecimal() else axis)
    others = [number for number in range(completer.table_.order) if number != at]
    vocabularies = completer.table_.vocabularies
    rated = {vocabularies[others[0]].parse_label(k): v for k, v in ratings.items()}
    fixed = {}
    for name, label in _split_pairs("--given", given, last=False):
        fixed[name] = vocabularies[find_axis(completer.table_, name)].parse_label(label)
    parsed = vocabularies[at].parse_label(member)
    listed, left_out = (
        labels and [vocabularies[others[0]].parse_label(label) for label in labels]
        for labels in (among, exclude)
    )
    query = RecommendQuery(
        parsed,
        n,
        at,
        rated or None,
        fixed,
        completer.duplicates,
        among=listed,
        exclude=left_out,
        include_seen=include_seen,
        exposure=exposure,
    )
    rows = pl.DataFrame(find_best(completer.fitted_, query).columns(completer.table_))
    axes = [
        axis
        for axis, vocabulary in zip(completer.table_.axes, vocabularies, strict=True)
        if vocabulary.encode(column_of(axis, [vocabulary.parse_label(member)]))[0] != UNKNOWN
    ]
    if not axes:
        output.line(f"{member} is not in the table")
    elif completer.table_.axes[at] not in axes:
        here, other = completer.table_.axes[at], axes[0]
        output.line(f"{member} is no {here} of the table, but a {other}: choose --axis {other}")
    output.fact(member=member, recommended=rows.to_dicts())
    for row in rows.iter_rows(named=True):
        labels = ", ".join(str(v) for k, v in row.items() if k in completer.table_.axes)
        mean, low, high = list(row.values())[-3:]
        # Of what either happens or not an interval says nothing beside the chance.
        interval = "" if completer.levels_ == (0.0, 1.0) else f"({low:.2f} to {high:.2f})  "
        output.line(f"{mean:8.3f}  {interval}{labels}")
    output.finish("" if len(rows) else f"{member} has no unobserved cell to recommend")


@report_errors
@with_table_options
def factorize(
    table: TableOrCompleter,
    out: Out = None,
    neighbours: Annotated[int, typer.Option(help="Number of nearest members to list.")] = 3,
    model: Model = "auto",
    features: FeatureFiles = None,
    seed: Seed = 0,
    device: Device = "auto",
    force: Force = False,
    options: TableOptions = DEFAULTS,
    as_json: AsJson = False,
) -> None:
    """Write a vector and the nearest members of every member.

    auto means vmf here, or pretrained with --features.
    """
    from exchangeable.completion.factors import factor_frame

    out = out or default_out(table, "factors")
    check_ending(out)
    check_writable(out, force)
    output = Output(as_json)
    auto = "pretrained" if features else "vmf"  # which reads no features
    completer = open_completer(table, options, model, seed, device, output, features, auto)
    frame = factor_frame(completer.fitted_, neighbours)
    write_frame(out, frame)
    for axis, size in zip(completer.table_.axes, completer.table_.shape, strict=True):
        example = frame.filter(frame["axis"] == axis).row(0, named=True)
        output.line(f"{size:,} {axis}: {example['member']} is nearest to {example['nearest']}")
    output.fact(out=str(out), members=len(frame))
    output.finish(f"computed vectors of {format_count(len(frame), 'member')}, written to {out}")


def open_completer(
    name: str,
    options: TableOptions,
    model: str,
    seed: int,
    device: str,
    output: Output,
    features: list[str] | None = None,
    auto: str = "auto",
    check: Callable[[Table], None] = lambda table: None,
) -> Completer:
    """Load a saved completer, or fit one to a table, with the model ``auto`` if none is chosen.

    ``check`` raises if the table is not one that the command takes, before anything is fitted.
    """
    from exchangeable.cli.features import read_features
    from exchangeable.completion.completer import Completer
    from exchangeable.runtime import checkpoint

    if not Path(name).is_dir() and not checkpoint.exists(name):
        model = auto if model == "auto" else model
        data, _ = open_table(name, options)
        check(data)
        frames = read_features(features, data)
        return fit_completer(data, model, seed, device, frames, output)
    if model != "auto" or options != DEFAULTS or features:
        raise InputError(
            f"{name} is a saved completer: it takes no options for table, features or model"
        )
    completer = Completer.load(name, device=device)
    check(completer.table_)
    output.line(f"loaded {name}", *completer.notes_)
    output.fact(notes=list(completer.notes_), model=completer.model_name_)
    return completer


def fit_completer(
    table: Table,
    model: str,
    seed: int,
    device: str,
    features: Frames,
    output: Output,
    memory: str | None = None,
    processes: Processes | None = None,
) -> Completer:
    """Fit a completer to a table; print what the table contains and what the fit found."""
    from exchangeable.completion.completer import Completer
    from exchangeable.runtime.processes import ALONE

    output.line(*table.found)
    with progress_bar(processes) as progress:
        completer = Completer(model, seed=seed, device=device, memory=memory)
        completer.fit_table(
            table, features=features, progress=progress, processes=processes or ALONE
        )
    output.line(*[note for note in completer.notes_ if note not in table.found])
    output.fact(notes=list(completer.notes_), model=completer.model_name_)
    return completer


def _split_pairs(
    option: str, arguments: list[str] | None, last: bool = True
) -> list[tuple[str, str]]:
    """Split NAME=VALUE at the last equals sign, or at the first."""
    pairs = []
    for text in arguments or []:
        name, equals, rest = text.rpartition("=") if last else text.partition("=")
        if not equals or not name:
            raise InputError(f"{option} must be NAME=VALUE, but is {text!r}")
        pairs.append((name, rest))
    return pairs


def _parse_rating(text: str, label: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"the rating of {label!r} must be a number, but is {text!r}") from None
