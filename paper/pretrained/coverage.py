"""Whether the pretrained model is as sure as it says: intervals, and probabilities of levels.

    python -m paper.pretrained.coverage             # development tables
    python -m paper.pretrained.coverage --test      # test cells

It writes docs/pictures/calibration.png.

On the left, of intervals that should hold a share of the hidden values, the share that they held;
on the right, of all levels that were given about the same chance, how often they came.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch

from exchangeable.runtime.files import whole_file
from exchangeable.values.calibration import Calibrated
from exchangeable.values.distributions import Distribution, OnLevels, interval
from paper.lib.canvas import INK, SOFT
from paper.lib.command import run_command
from paper.lib.problems import Floats
from paper.pretrained.development import Asked, development, predictions_of, tests

PROMISED = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95])
FEWEST = 100
"""Hidden cells with a chance, to say how often it came."""
MOST_LEVELS = 20


def held(answers: Distribution, truth: torch.Tensor) -> Floats:
    """Shares of the values that lie within intervals of the promised ones."""
    shares = []
    for promised in PROMISED:
        low, high = interval(answers, float(promised))
        shares.append(float(((truth >= low) & (truth <= high)).double().mean()))
    return np.array(shares)


def came(answers: OnLevels, truth: torch.Tensor) -> tuple[Floats, Floats]:
    """Chances that were given to levels, in twenty bins, and how often those levels came."""
    chances = answers.probabilities().flatten().numpy()
    hits = (answers.levels == truth[:, None]).flatten().numpy()
    bins = np.minimum((20 * chances).astype(int), 19)
    counts = np.bincount(bins, minlength=20)
    full = counts >= FEWEST
    means, shares = (
        np.bincount(bins, weights=w, minlength=20)[full] / counts[full] for w in (chances, hits)
    )
    return means, shares


def draw(panels: Any, number: int, asked: Asked) -> float:
    """One table's lines; gives the share that its 80 % intervals held."""
    answers = predictions_of("pretrained", asked)
    truth = torch.from_numpy(asked.problem.values[asked.hidden])
    shares, colour = held(answers, truth), f"C{number}"
    panels[0].plot(PROMISED, shares, ".-", lw=1, color=colour, label=asked.name)
    plain = answers.predictions if isinstance(answers, Calibrated) else answers
    if isinstance(plain, OnLevels) and len(plain.levels) <= MOST_LEVELS:
        panels[1].plot(*came(plain, truth), ".-", lw=1, color=colour, label=asked.name)
    return float(shares[list(PROMISED).index(0.8)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--test", action="store_true", help="test cells")
    parser.add_argument("--only", nargs="*", help="tables, by name")
    parser.add_argument("--out", type=Path, default=Path("docs/pictures/calibration.png"))
    given = parser.parse_args()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.5, 4.4), layout="constrained", facecolor="white")
    panels = figure.subplots(1, 2)
    for panel in panels:
        panel.plot([0, 1], [0, 1], color=SOFT, lw=0.8)
    number = 0
    for asked in (tests if given.test else development)():
        if not given.only or asked.name in given.only:
            share = draw(panels, number, asked)
            print(f"{asked.name}: 80 % intervals hold {share:.1%}", flush=True)
            number += 1
    panels[0].set(xlabel="share promised", ylabel="share held", title="intervals")
    panels[1].set(xlabel="chance given to a level", ylabel="how often it came", title="levels")
    for panel in panels:
        panel.title.set(fontsize=10, color=INK)
        if len(panel.lines) > 1:
            panel.legend(fontsize=7, loc="upper left")
    given.out.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(given.out) as target:
        figure.savefig(target, dpi=120, format="png")
    print(f"wrote {given.out}")


if __name__ == "__main__":
    run_command(main)
