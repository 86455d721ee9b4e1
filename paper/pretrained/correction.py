"""What the network adds to the closed-form prior, and what its correction adds to that.

    python -m paper.pretrained.correction             # development tables
    python -m paper.pretrained.correction --test      # test cells, to be looked at once
    python -m paper.pretrained.correction --print     # stored runs

The rows of a table are predictions of the same fit: the prior alone; a linear stack of the prior's
channels, without the network, whose coefficients are fitted to the table's own held-out cells as
those of the correction are; the network; and the network with its correction.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from exchangeable import Completer
from exchangeable.completion.inputs import encode_queries
from exchangeable.predictors.correction import (
    HeldOutTerms,
    correct,
    describe_cells,
    fit_correction,
)
from exchangeable.predictors.model import ModelPredictor
from exchangeable.predictors.units import UnitsPredictor, unwrapped
from exchangeable.prior.presence import count_cells, find_unseen
from exchangeable.prior.prior import Prior
from exchangeable.prior.trust import FOLDS
from exchangeable.runtime.files import whole_file
from exchangeable.values.codecs import ValueStats
from exchangeable.values.distributions import Distribution, Normal, OnLevels
from paper.lib import runs
from paper.lib.command import run_command
from paper.lib.problems import Index
from paper.pretrained.development import RESULTS, TITLES, Asked, development, place_in_print, tests

ROWS = {
    "prior": "prior alone",
    "stack": "linear stack",
    "network": "network",
    "corrected": "**network with the correction**",
}


def by_prior(channels: Tensor, stats: ValueStats) -> Distribution:
    """Predict cells from the prior's channels (Q, K) alone."""
    location, deviation = channels[:, :2].double().unbind(dim=1)
    levels = stats.levels(location) if stats.scale.levels else None
    centre, spread = location * stats.deviation + stats.mean, deviation * stats.deviation
    predictions = Normal(centre, spread, levels)
    return predictions.on_levels() if stats.scale.levels else predictions


def by_stack(model: ModelPredictor, prior: Prior, index: Index, channels: Tensor) -> Distribution:
    """Predict cells by a stack of the prior's channels, fitted to the cells that it held out."""
    stats, terms, left = model.stats, list[Tensor](), list[Tensor]()
    folds, scarcity = list[Tensor](), list[Tensor]()
    for holdout in prior.holdouts:
        cells = prior.fitted.index[holdout.cells]
        for fold in range(FOLDS):
            mask, without = holdout.fold == fold, prior.without(holdout, fold)
            mask = mask & ~find_unseen(holdout.fitted.presence, cells).any(dim=1)
            held = without.channels_of(holdout.estimates.take(mask), cells[mask])
            alone = by_prior(held, stats)
            terms.append(describe_cells(alone, held, stats))
            mean = (alone.mean() - stats.mean) / stats.deviation
            left.append(prior.fitted.values[holdout.cells[mask]].double() - mean)
            folds.append(holdout.fold[mask])
            scarcity.append(without.trust.scarcity(holdout.estimates.counts[mask]))
    alone = by_prior(channels, stats)
    parts = [HeldOutTerms(*each) for each in zip(terms, left, folds, scarcity, strict=True)]
    correction = fit_correction(HeldOutTerms.joined(parts))[0] if parts else None
    if correction is None:
        return alone
    counts = count_cells(prior.fitted.presence, torch.from_numpy(index))
    own = describe_cells(alone, channels, stats)
    changes = correction.changes(own, prior.trust.scarcity(counts))
    unseen = find_unseen(prior.fitted.presence, torch.from_numpy(index)).any(dim=1)
    changes = changes.masked_fill(unseen, 0.0)
    if isinstance(alone, OnLevels):
        return correct(alone, changes, stats)
    assert isinstance(alone, Normal)
    low, high = stats.knots[0], stats.knots[-1]
    moved = alone.location + changes * stats.deviation
    inside = torch.minimum(moved, alone.location.clamp(min=high))
    return replace(alone, location=torch.maximum(inside, alone.location.clamp(max=low)))


def judge(asked: Asked) -> dict[str, Any]:
    """Return the scores of all rows on one table."""
    problem = asked.problem
    completer = Completer("pretrained", device="cpu", scale=problem.scale.kind)
    completer.fit(problem.index[asked.seen], problem.values[asked.seen])
    index = encode_queries(completer.table_, problem.index[asked.hidden])
    outer = completer.predictor_
    model = unwrapped(outer)
    assert isinstance(model, ModelPredictor)
    assert model.prior is not None
    with torch.inference_mode():
        cells = torch.from_numpy(index)
        channels = model.prior(torch.where(cells < 0, torch.tensor(model.memory.shape) - 1, cells))
        found = {
            "prior": by_prior(channels, model.stats),
            "stack": by_stack(model, model.prior, index, channels),
            "network": replace(model, correction=None).predict(index),
            "corrected": model.predict(index),
        }
    if isinstance(outer, UnitsPredictor):
        found = {name: outer.units.apply(each, index) for name, each in found.items()}
    truth = torch.from_numpy(problem.values[asked.hidden])
    return {
        "table": asked.name,
        "seen": len(asked.seen),
        "hidden": len(truth),
        **{name: runs.scores(each, truth) for name, each in found.items()},
        **runs.environment_facts("cpu"),
    }


def line(found: dict[str, Any]) -> str:
    name, comma, shown = found["table"].partition(",")
    errors = [found[row]["rmse"] for row in ROWS]
    digits = 2 if errors[0] > 10 else 4
    cells = [
        TITLES.get(name, name) + comma + shown,
        *(f"{error:.{digits}f}" for error in errors),
        *(f"{errors[3] / errors[other] - 1:+.2%}" for other in (1, 2)),
        f"{found['corrected']['coverage']:.1%}",
    ]
    return "| " + " | ".join(cells) + " |"


HEAD = (
    "| | " + " | ".join(ROWS.values()) + " | against the stack | against the network | "
    "within 80 % intervals |\n" + "|---" * 8 + "|"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--test", action="store_true", help="test cells, once")
    parser.add_argument("--only", nargs="*", help="tables, by name")
    parser.add_argument("--print", action="store_true", help="run nothing")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    kind = "correction-test" if given.test else "correction"
    print(HEAD, flush=True)
    if given.print:
        kept = [json.loads(place.read_text()) for place in given.out.glob(f"{kind}.*.json")]
        print("\n".join(map(line, sorted(kept, key=place_in_print))))
        return
    for asked in (tests if given.test else development)():
        if given.only and asked.name not in given.only:
            continue
        found = judge(asked)
        name = asked.name.replace(", ", ".").replace(" ", "-")
        given.out.mkdir(parents=True, exist_ok=True)
        with whole_file(given.out / f"{kind}.{name}.json") as target:
            target.write_text(runs.to_json_lines(found))
        print(line(found), flush=True)


if __name__ == "__main__":
    run_command(main)
