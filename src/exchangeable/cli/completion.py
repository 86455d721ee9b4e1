"""``exchangeable complete`` and ``factorize``; completers for these and other commands."""

from __future__ import annotations

import math
import shlex
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
    SampleCells,
    Seed,
    TableArgument,
    TableOrCompleter,
    open_table,
    with_table_options,
    write_table_options,
)
from exchangeable.cli.output import (
    Output,
    check_ending,
    check_plotting,
    check_writable,
    default_out,
    is_printed,
    name_output,
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

Out = Annotated[
    Path | None,
    typer.Option(
        help="Output file: .csv, .tsv, .parquet or .jsonl; by default of the kind of the table's "
        "file; - for CSV on standard output."
    ),
]


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
    sample_cells: SampleCells = None,
    force: Force = False,
    options: TableOptions = DEFAULTS,
    as_json: AsJson = False,
) -> None:
    """Fill in a table: predictions with 80 % intervals.

    Predicts the cells without a value, those of --queries, or --all. Other columns of the rows are
    written as they came, but not with --all. A table from standard input (-) is written to standard
    output, and notes to standard error. Under torchrun several processes share the work, and
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
    printed = is_printed(out, as_json)
    check_ending(out)
    check_writable(out, force)
    if report is not None:
        check_writable(report, force)
        check_plotting()
        if report.resolve() == out.resolve():
            raise InputError(f"--out and --report must be different files, but both are {report}")
    parse_size(memory)
    with join_processes() as processes:
        output = Output(as_json, processes, to_stderr=printed)
        data, _ = open_table(table, options)
        if queries is None and not every and data.is_observed.all():
            _say_what_to_ask(output, table, data, _write_options(model, features, seed, options))
            return
        # All input is checked before anything is fitted.
        frames = read_features(features, data, options.encoding)
        with output.warnings():
            request = fill.FillRequest.of(
                data, queries=queries, every=every, limit=limit, encoding=options.encoding
            )
        if out.suffix.lower() not in (".parquet", ".jsonl", ".ndjson"):
            request.check_csv()
        data = data.in_label_order(in_place=True)
        completer = fit_completer(
            data, model, seed, device, frames, output, memory, processes, sample_cells
        )
        with progress_bar(processes) as progress, output.warnings():
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
    output.finish(f"predicted {predicted}, written to {name_output(out)}{and_report}")


def _write_options(model: str, features: list[str] | None, seed: int, options: TableOptions) -> str:
    """Write the options that were given, as they follow a command that asks the same table."""
    words = write_table_options(options)
    for file in features or ():
        words += ["--features", file]
    if model != "auto":
        words += ["--model", model]
    if seed:
        words += ["--seed", str(seed)]
    return "".join(f" {shlex.quote(word)}" for word in words)


def _say_what_to_ask(output: Output, name: str, table: Table, given: str) -> None:
    """Say what can be asked about a table whose rows all have a value, since none is missing.

    ``given`` are the options that the table was read with.
    """
    unobserved = math.prod(table.shape) - len(table)
    member = shlex.quote(str(table.vocabularies[0].labels[int(table.index[0, 0])]))
    name = shlex.quote(name)
    pairs = "pair" if table.order == 2 else "combination"
    output.line(*table.found)
    output.fact(unobserved=unobserved, notes=list(table.found))
    if unobserved:
        output.line(
            f"every row has a value, and {format_count(unobserved, pairs)} of "
            f"{' and '.join(table.axes)} have no row. To ask about them:",
            f"  exchangeable recommend {name} {member}{given}",
            f"  exchangeable complete {name} --all{given}",
            f"  exchangeable complete {name} --queries FILE{given}",
        )
    output.finish("nothing was written: no row lacks a value" if unobserved else
                  "nothing to fill in: every cell of the table has a value")  # fmt: skip


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
    printed = is_printed(out, as_json)
    check_ending(out)
    check_writable(out, force)
    output = Output(as_json, to_stderr=printed)
    auto = "pretrained" if features else "vmf"  # which reads no features
    completer = open_completer(table, options, model, seed, device, output, features, auto)
    frame = factor_frame(completer.fitted_, neighbours)
    write_frame(out, frame)
    for axis, size in zip(completer.table_.axes, completer.table_.shape, strict=True):
        example = frame.filter(frame["axis"] == axis).row(0, named=True)
        output.line(f"{size:,} {axis}: {example['member']} is nearest to {example['nearest']}")
    output.fact(out=str(out), members=len(frame))
    members = format_count(len(frame), "member")
    output.finish(f"computed vectors of {members}, written to {name_output(out)}")


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
        frames = read_features(features, data, options.encoding)
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
    sample_cells: int | None = None,
) -> Completer:
    """Fit a completer to a table; print what the table contains and what the fit found."""
    from exchangeable.completion.completer import Completer
    from exchangeable.runtime.processes import ALONE

    output.line(*table.found)
    with progress_bar(processes) as progress:
        completer = Completer(
            model,
            seed=seed,
            device=device,
            memory=memory,
            sample_cells=sample_cells,
            joint=table.joint,
        )
        completer.fit_table(
            table, features=features, progress=progress, processes=processes or ALONE
        )
    output.line(*[note for note in completer.notes_ if note not in table.found])
    output.fact(notes=list(completer.notes_), model=completer.model_name_)
    return completer
