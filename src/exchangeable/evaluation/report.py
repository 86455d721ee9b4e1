"""One HTML page about a completion: what was read, the completed table, and its accuracy.

The page holds its pictures, so it can be sent around; it loads nothing from elsewhere.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from exchangeable import metrics
from exchangeable.arrays.cells import UNKNOWN
from exchangeable.completion.completer import Completer
from exchangeable.data.splits import by_share, share_of_each
from exchangeable.data.summary import busiest_members, mean_table
from exchangeable.data.table import Table
from exchangeable.evaluation import plots, ranking
from exchangeable.evaluation.comparison import YARDSTICKS, Outcome, judge
from exchangeable.predictors.base import MEAN, interval_ends, read_predictions
from exchangeable.predictors.ranking import RankingPredictor
from exchangeable.runtime.progress import Progress

HIDDEN_SHARE = 0.1
"""Share of the observed cells that are hidden and predicted from the others."""
MAX_MEMBERS_DRAWN = 150
"""Members of an axis in the picture; of larger tables those with the most cells."""
COVERAGES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
HIDDEN_ITEMS = 0.2
"""Share of each user's positives that are hidden."""
_PARTNERS = 64  # random cells over which a member's interval widths are averaged
_MAX_MEMBERS_RANKED = 2000


@dataclass(frozen=True, eq=False)
class CalibrationCheck:
    """Coverage that intervals promise, and their coverage of the hidden values."""

    promised: tuple[float, ...]
    held: tuple[float, ...]
    outcomes: tuple[Outcome, ...]
    """Outcomes of the model and of the yardsticks, on the same hidden cells."""


def page(
    name: str,
    table: Table,
    completer: Completer,
    progress: Progress,
    features: Mapping[str, Any] | None = None,
) -> str:
    """Return the page as HTML. ``features`` are those that the completer was fitted with."""
    table = table.in_label_order()  # which cells are hidden does not depend on their sequence
    parts = [
        _section("What was read", _listed(completer.notes_)),
        _section("The table, observed and completed", *_table_picture(completer)),
    ]
    if isinstance(completer.predictor_, RankingPredictor):
        parts.append(_section("Lists of all unseen items", *_lists(table, completer, progress)))
    else:
        accuracy = _calibration(table, completer, progress, features)
        parts.append(_section("Accuracy on cells that were hidden", *accuracy))
        certainty = _certainty(completer)
        parts.append(_section("Members with the narrowest and widest intervals", *certainty))
    title = f"{escape(name)} completed"
    return _PAGE.format(title=title, model=escape(completer.model_name_), body="\n".join(parts))


def calibrate(
    table: Table,
    completer: Completer,
    progress: Progress,
    features: Mapping[str, Any] | None = None,
) -> CalibrationCheck:
    """Hide some cells, fit to the others, and compare intervals with the hidden values."""
    split = by_share(table, test=HIDDEN_SHARE, validation=0.0, seed=completer.seed)
    twin = type(completer)(**{**completer.get_params(), "model": completer.model_name_})
    outcome = judge(twin, table, split, progress, features)
    ends = [end for coverage in COVERAGES for end in interval_ends(coverage)]
    quantiles = read_predictions(twin.predictor_, outcome.queries, *ends)
    pairs = zip(quantiles[::2], quantiles[1::2], strict=True)
    held = [metrics.coverage(outcome.truth, np.stack(pair, axis=1)) for pair in pairs]
    others = [
        judge(Completer(model, seed=completer.seed), table, split, progress)
        for model in YARDSTICKS
        if model != completer.model_name_
    ]
    return CalibrationCheck(COVERAGES, tuple(held), (outcome, *others))


def _lists(table: Table, completer: Completer, progress: Progress) -> tuple[str, ...]:
    """Hide a share of each user's items, and compare the lists of others with them."""
    split = share_of_each(table, test=HIDDEN_ITEMS, seed=completer.seed)
    if not len(split.test):
        return (_paragraph("No user has enough items to hide some of them."),)
    names = dict.fromkeys([completer.model_name_, *ranking.YARDSTICKS])
    rows = []
    for name in names:
        outcome = ranking.judge_ranking(
            Completer(name, seed=completer.seed), table, split, progress=progress
        )
        rows.append((name, *(f"{own.mean():.4f}" for own in outcome.figures.values())))
    sentence = (
        f"{len(split.test):,} positives, a fifth of each user's, were hidden, and all items that a "
        f"user does not have were ranked. popularity, ease and ials are the yardsticks."
    )
    headings = ("model", *map(str, ranking.METRICS))
    return _paragraph(sentence), _rows(headings, rows)


def _calibration(
    table: Table, completer: Completer, progress: Progress, features: Mapping[str, Any] | None
) -> tuple[str, ...]:
    if len(table) < 20:
        return (_paragraph(f"{len(table)} cells are too few to hide some of them."),)
    check = calibrate(table, completer, progress, features)
    rows = [
        (
            o.model,
            f"{o.metrics['rmse']:.4f}",
            f"{o.metrics['mae']:.4f}",
            f"{o.metrics['coverage']:.0%}",
        )
        for o in check.outcomes
    ]
    hidden = len(check.outcomes[0].truth)
    sentence = (
        f"{hidden:,} cells, a tenth, were hidden, and predicted from the others. "
        f"bias and bmf are the yardsticks: a bias per member, and Bayesian matrix factorization."
    )
    image = plots.calibration(check.promised, check.held)
    return (
        _paragraph(sentence),
        _rows(("model", "RMSE", "MAE", "truth within the 80 % interval"), rows),
        _image(image, "Promised and held shares of intervals"),
    )


def _table_picture(completer: Completer) -> tuple[str, ...]:
    """Draw the first two axes; on others the predictions are for an unknown member."""
    table = completer.table_
    if table.order == 1:
        return (_paragraph("A table of one axis has no picture."),)
    chosen = (
        busiest_members(table, 0, MAX_MEMBERS_DRAWN),
        busiest_members(table, 1, MAX_MEMBERS_DRAWN),
    )
    cells = np.full((len(chosen[0]), len(chosen[1]), table.order), UNKNOWN, dtype=np.int64)
    cells[..., 0], cells[..., 1] = chosen[0][:, None], chosen[1][None, :]
    (means,) = read_predictions(completer.predictor_, cells.reshape(-1, table.order), MEAN)
    completed = means.reshape(cells.shape[:2])
    observed = mean_table(table, chosen)
    rows, columns = np.argsort(completed.mean(axis=1)), np.argsort(completed.mean(axis=0))
    sentence = (
        f"{len(rows):,} {table.axes[0]} and {len(columns):,} {table.axes[1]}"
        + (", those with the most cells," if len(rows) < table.shape[0] else "")
        + " sorted by their mean predictions."
    )
    image = plots.side_by_side(
        {
            "observed": observed[np.ix_(rows, columns)],
            "completed": completed[np.ix_(rows, columns)],
        },
        across=table.axes[1],
        down=table.axes[0],
    )
    return _paragraph(sentence), _image(image, "The table, observed beside completed")


def _certainty(completer: Completer, shown: int = 5) -> tuple[str, ...]:
    """Rank members by the mean width of the 80 % intervals of cells with random partners."""
    table, generator = completer.table_, np.random.default_rng(completer.seed)
    blocks = []
    for axis, name in enumerate(table.axes):
        members = np.arange(table.shape[axis])
        if len(members) > _MAX_MEMBERS_RANKED:
            members = np.sort(generator.choice(members, _MAX_MEMBERS_RANKED, replace=False))
        partners = np.stack(
            [generator.integers(0, size, _PARTNERS) for size in table.shape], axis=1
        )
        cells = np.tile(partners, (len(members), 1))
        cells[:, axis] = np.repeat(members, _PARTNERS)
        low, high = read_predictions(completer.predictor_, cells, *interval_ends(0.8))
        widths = high - low
        width = widths.reshape(len(members), _PARTNERS).mean(axis=1)
        ranking = np.argsort(width, kind="stable")
        labels = table.vocabularies[axis].decode(members)
        counts = table.cells_per_member(axis)
        few = min(shown, len(ranking) // 2)
        picked = [("surest", n) for n in ranking[:few]]
        picked += [("least sure", n) for n in ranking[len(ranking) - few :]]
        rows = [
            (kind, str(labels[int(n)]), f"{counts[members[n]]:,}", f"{width[n]:.2f}")
            for kind, n in picked
        ]
        blocks.append(_rows(("", name, "cells", "width of the 80 % interval"), rows))
    return tuple(blocks)


def _section(title: str, *content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{''.join(content)}</section>"


def _paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def _listed(sentences: tuple[str, ...]) -> str:
    return "<ul>" + "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences) + "</ul>"


def _rows(headings: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(field)}</td>" for field in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _image(content: Any, description: str) -> str:
    encoded = base64.b64encode(content).decode("ascii")
    return f'<img alt="{escape(description)}" src="data:image/png;base64,{encoded}">'


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light; }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #222; background: #fff; }}
h1 {{ font-size: 1.6rem; margin-bottom: 0; }}
h2 {{ font-size: 1.15rem; margin-top: 2.2rem; }}
table {{ border-collapse: collapse; margin: 0.8rem 0; }}
th, td {{ text-align: left; padding: 0.25rem 1rem 0.25rem 0; border-bottom: 1px solid #ddd;
  font-variant-numeric: tabular-nums; }}
img {{ max-width: 100%; height: auto; }}
.soft {{ color: #666; margin-top: 0.2rem; }}
</style>
</head>
<body>
<h1>{title}</h1>
<p class="soft">by the model {model}, with exchangeable</p>
{body}
</body>
</html>
"""
