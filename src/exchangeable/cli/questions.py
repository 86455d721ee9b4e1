"""``exchangeable recommend``, ``similar`` and ``explain``: questions about members."""

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
    import polars as pl

    from exchangeable.completion.candidates import Recommendations
    from exchangeable.completion.completer import Completer
    from exchangeable.data.table import Table

Axis = Annotated[str, typer.Option(help="Axis of the member, by name or number from 0.")]


@report_errors
@with_table_options
def recommend(
    table: TableOrCompleter,
    members: Annotated[
        list[str],
        typer.Argument(
            help="Label of the member to recommend to, or of several.", metavar="MEMBER..."
        ),
    ],
    n: Annotated[int, typer.Option("-n", help="Number of recommendations, for each.")] = 10,
    axis: Axis = "0",
    rate: Annotated[
        list[str] | None,
        typer.Option(
            help="LABEL=VALUE: a rating by the member that is not in the table, or of positives "
            "LABEL; repeatable."
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
    """Recommend the best unobserved cells of members, known or new.

    One member may be new, several must be known.
    Of positives (rows without a value) the likeliest further ones are listed, with their chances.
    """
    from exchangeable.cli.features import read_titles
    from exchangeable.completion.inputs import find_axis
    from exchangeable.completion.recommend import RecommendQuery, recommend_to_many
    from exchangeable.completion.recommend import recommend as find_best
    from exchangeable.data.vocabulary import column_of

    output = Output(as_json)
    called: dict[Hashable, str] = {}
    ratings: dict[str, float] = {}

    def check(data: Table) -> None:
        ratings.update(_parse_ratings(rate, data))
        other = 1 if _axis_number(data, axis) == 0 else 0
        name, vocabulary = data.axes[other], data.vocabularies[other]
        called.update(read_titles(titles, name, vocabulary, options.encoding))
        titled = sum(label in called for label in vocabulary.labels)
        if called and 2 * titled < len(vocabulary):
            output.line(
                f"only {titled:,} of {len(vocabulary):,} labels of {name!r} have a title in "
                f"{titles}; check labels"
            )

    completer = open_completer(table, options, model, seed, device, output, features, check=check)
    data = completer.table_
    at = _axis_number(data, axis)
    other = 1 if at == 0 else 0
    parse = data.vocabularies[other].parse_label
    fixed = {}
    for name, label in _split_pairs("--given", given, last=False):
        fixed[name] = data.vocabularies[find_axis(data, name)].parse_label(label)
    labels = [data.vocabularies[at].parse_label(member) for member in members]
    query = RecommendQuery(
        labels[0],
        n,
        at,
        {parse(label): value for label, value in ratings.items()} or None,
        fixed,
        completer.duplicates,
        among=among and [parse(label) for label in among],
        exclude=exclude and [parse(label) for label in exclude],
        include_seen=include_seen,
        exposure=exposure,
    )
    if len(members) == 1:
        found = find_best(completer.fitted_, query)
        output.line(*_describe_stranger(data, at, members[0]))
    else:
        found = recommend_to_many(completer.fitted_, column_of("member", labels), query)
    limited = " among those that may be listed" if among or exclude or given else ""
    lists = []
    for place, member in enumerate(members):
        rows = _with_titles(found.of_member(place), data, called, data.axes[other])
        lists.append({"member": member, "recommended": rows.to_dicts()})
        if len(members) > 1:
            output.line(f"{member}:")
        for row in rows.iter_rows(named=True):
            written = [str(v) for k, v in row.items() if k in (*data.axes, "title") and v != ""]
            prediction = _format_prediction(completer, *list(row.values())[-3:])
            output.line(f"{prediction}  {', '.join(written)}")
        if not len(rows):
            output.line(f"{member} has no unobserved cell to recommend{limited}")
    output.fact(**lists[0] if len(lists) == 1 else {"members": lists})
    output.finish()


def _describe_stranger(table: Table, axis: int, member: str) -> list[str]:
    """Say that a member is not on its axis, and who may have been meant; nothing if it is."""
    from exchangeable.arrays.cells import UNKNOWN
    from exchangeable.completion.inputs import suggest_label
    from exchangeable.data.vocabulary import column_of

    pairs = zip(table.axes, table.vocabularies, strict=True)
    axes = [
        name
        for name, vocabulary in pairs
        if vocabulary.encode(column_of(name, [vocabulary.parse_label(member)]))[0] != UNKNOWN
    ]
    here = table.axes[axis]
    if here in axes:
        return []
    if axes:
        return [f"{member} is no {here} of the table, but a {axes[0]}: choose --axis {axes[0]}"]
    vocabulary = table.vocabularies[axis]
    hint = suggest_label(vocabulary, vocabulary.parse_label(member))
    return [f"{member} is not in the table{hint}"]


def _with_titles(
    found: Recommendations, table: Table, called: dict[Hashable, str], axis: str
) -> pl.DataFrame:
    """Return recommendations as a frame, with titles beside the labels of an axis if there are."""
    import polars as pl

    rows = pl.DataFrame(found.columns(table))
    if called:
        column = rows[axis]
        title = pl.Series("title", [called.get(label, "") for label in column], dtype=pl.String)
        rows.insert_column(rows.columns.index(axis) + 1, title)
    return rows


@report_errors
@with_table_options
def similar(
    table: TableOrCompleter,
    member: Annotated[str, typer.Argument(help="Label of the member to compare with others.")],
    n: Annotated[int, typer.Option("-n", help="Number of members to list.")] = 10,
    axis: Axis = "0",
    model: Model = "auto",
    features: FeatureFiles = None,
    seed: Seed = 0,
    device: Device = "auto",
    options: TableOptions = DEFAULTS,
    as_json: AsJson = False,
) -> None:
    """List the members that are most like one.

    They are compared by their vectors, of which the cosines are printed. auto means pretrained
    here, since simpler models may have no vectors.
    """
    import polars as pl

    from exchangeable.completion.factors import similar_members
    from exchangeable.completion.inputs import check_number, encode_members

    check_number(n)
    output = Output(as_json)

    def check(data: Table) -> None:
        at = _axis_number(data, axis)
        encode_members(data, at, data.vocabularies[at].parse_label(member))

    completer = open_completer(
        table, options, model, seed, device, output, features, "pretrained", check
    )
    at = _axis_number(completer.table_, axis)
    label = completer.table_.vocabularies[at].parse_label(member)
    rows = pl.DataFrame(similar_members(completer.fitted_, label, n, at))
    output.fact(member=member, similar=rows.to_dicts())
    output.line(*(f"{cosine:8.3f}  {label}" for label, cosine in rows.iter_rows()))
    output.finish("" if len(rows) else f"no other {completer.table_.axes[at]} has a vector")


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


def _parse_ratings(arguments: list[str] | None, table: Table) -> dict[str, float]:
    """Read LABEL=VALUE; a positive is 1 without a value."""
    positives = table.scale.kind == "positives"
    texts = [f"{text}=1" if positives and "=" not in text else text for text in arguments or []]
    return {label: _parse_rating(text, label) for label, text in _split_pairs("--rate", texts)}


def _parse_rating(text: str, label: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"the rating of {label!r} must be a number, but is {text!r}") from None
