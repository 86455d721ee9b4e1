"""``exchangeable recommend`` and ``explain``: questions about one member."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Annotated

import typer

from exchangeable.cli.completion import open_completer
from exchangeable.cli.options import (
    DEFAULTS,
    AsJson,
    Device,
    FeatureFiles,
    Model,
    Seed,
    TableOrCompleter,
    with_table_options,
)
from exchangeable.cli.output import Output, progress_bar, report_errors
from exchangeable.data.options import TableOptions
from exchangeable.errors import InputError
from exchangeable.runtime.phrases import format_count

if TYPE_CHECKING:
    from exchangeable.completion.completer import Completer
    from exchangeable.data.table import Table

Axis = Annotated[str, typer.Option(help="Axis of the member, by name or number from 0.")]


@report_errors
@with_table_options
def recommend(
    table: TableOrCompleter,
    member: Annotated[str, typer.Argument(help="Label of the member to recommend to.")],
    n: Annotated[int, typer.Option("-n", help="Number of recommendations.")] = 10,
    axis: Axis = "0",
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
    titles: Annotated[
        str | None,
        typer.Option(help="File with what listed members are called, their labels first."),
    ] = None,
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
    from exchangeable.cli.features import read_titles
    from exchangeable.completion.inputs import find_axis, suggest_label
    from exchangeable.completion.recommend import RecommendQuery
    from exchangeable.completion.recommend import recommend as find_best
    from exchangeable.data.vocabulary import column_of

    output = Output(as_json)
    ratings = {label: _parse_rating(text, label) for label, text in _split_pairs("--rate", rate)}
    called: dict[Hashable, str] = {}

    def check(data: Table) -> None:
        other = 1 if _axis_number(data, axis) == 0 else 0
        called.update(
            read_titles(titles, data.axes[other], data.vocabularies[other], options.encoding)
        )

    completer = open_completer(table, options, model, seed, device, output, features, check=check)
    at = _axis_number(completer.table_, axis)
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
        output.line(f"{member} is not in the table{suggest_label(vocabularies[at], parsed)}")
    elif completer.table_.axes[at] not in axes:
        here, there = completer.table_.axes[at], axes[0]
        output.line(f"{member} is no {here} of the table, but a {there}: choose --axis {there}")
    if called:
        column = rows[completer.table_.axes[others[0]]]
        title = pl.Series("title", [called.get(label, "") for label in column], dtype=pl.String)
        rows.insert_column(rows.columns.index(column.name) + 1, title)
    output.fact(member=member, recommended=rows.to_dicts())
    for row in rows.iter_rows(named=True):
        labelled = (*completer.table_.axes, "title") if called else completer.table_.axes
        labels = ", ".join(str(v) for k, v in row.items() if k in labelled and v != "")
        output.line(f"{_format_prediction(completer, *list(row.values())[-3:])}  {labels}")
    output.finish("" if len(rows) else f"{member} has no unobserved cell to recommend")


@report_errors
@with_table_options
def explain(
    table: TableOrCompleter,
    labels: Annotated[
        list[str], typer.Argument(help="Labels of the cell, one for each axis.", metavar="LABEL...")
    ],
    n: Annotated[int, typer.Option("-n", help="Number of cells to list.")] = 10,
    axis: Axis = "0",
    model: Model = "auto",
    features: FeatureFiles = None,
    seed: Seed = 0,
    device: Device = "auto",
    options: TableOptions = DEFAULTS,
    as_json: AsJson = False,
) -> None:
    """Explain a prediction: which cells of the member moved it, and how far.

    LABEL... are the member, the film and so on, in the order of the axes. The effect of a cell is
    the prediction less the one of the same model after it has read the table without that cell. If
    that takes too long, the member alone is read again, as a new one, and a line says so. If the
    predicted cell is observed, it is left out of both.
    """
    import polars as pl

    from exchangeable.completion.explain import explain as explain_cell
    from exchangeable.completion.inputs import check_number, encode_cell

    check_number(n)
    output = Output(as_json)
    completer = open_completer(table, options, model, seed, device, output, features)
    data = completer.table_
    at = _axis_number(data, axis)
    if len(labels) != data.order:
        raise InputError(
            f"a label is needed for each of {', '.join(data.axes)}, but {len(labels)} came: "
            f"{', '.join(labels)}"
        )
    pairs = zip(data.vocabularies, labels, strict=True)
    cell = tuple(vocabulary.parse_label(label) for vocabulary, label in pairs)
    with output.warnings():
        index = encode_cell(data, cell, at)
    with progress_bar() as progress:
        explanation = explain_cell(completer.fitted_, index, at, progress)
    mean, low, high = explanation.mean, explanation.low, explanation.high
    rows = pl.DataFrame(explanation.columns(data, n))
    output.fact(cell=labels, mean=mean, low=low, high=high, exact=not explanation.note)
    if explanation.note:
        output.line(explanation.note)
        output.fact(note=explanation.note)
    output.fact(cells=len(explanation.cells), effects=rows.to_dicts())
    output.line(f"{_format_prediction(completer, mean, low, high)}  {', '.join(labels)}")
    total = format_count(len(explanation.cells), "cell")
    output.line(f"moved by {total} of {labels[at]}:")
    for *others, value, effect in rows.iter_rows():
        output.line(f"{effect:+8.3f}  {', '.join(map(str, others))}  {value:g}")
    output.finish()


def _axis_number(table: Table, axis: str) -> int:
    from exchangeable.completion.inputs import find_axis

    return find_axis(table, int(axis) if axis.isdecimal() else axis)


def _format_prediction(completer: Completer, mean: float, low: float, high: float) -> str:
    """Write a prediction with its interval, which says nothing beside a chance."""
    interval = "" if completer.levels_ == (0.0, 1.0) else f"  ({low:.2f} to {high:.2f})"
    return f"{mean:8.3f}{interval}"


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
