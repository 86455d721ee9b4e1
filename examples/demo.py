"""Train on one simulated table of ratings, then complete that table and one never seen.

The two tables share no user and no film. Ratings are low-rank: a film's quality, times how
much a user cares for it (some care for the opposite), plus how generous the user is. A model
that gives each user and film one number, a bias, cannot express that; one that learned *how
tables work* can, and needs no training for the second table.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from torch import Generator, Tensor

from exchangeable import ExchangeableArray, ResidualConfig, ResidualModel, Support


@dataclass(frozen=True)
class Ratings:
    """A simulated table: what is shown to the model, what is hidden, and the truth."""

    seen: ExchangeableArray
    hidden: ExchangeableArray
    truth: Tensor  # (users, films), sorted so that its structure shows


def simulate(users: int, films: int, *, share: float, seed: int) -> Ratings:
    """Ratings 1-5 in about ``share`` of the cells; a fifth of them are hidden."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator)

    care = (0.5 + 0.7 * normal(users, 1)).sort(dim=0).values
    quality = normal(1, films).sort(dim=1).values
    truth = 3.2 + care * quality + 0.4 * normal(users, 1)
    ratings = (truth + 0.4 * normal(users, films)).round().clamp(1, 5)
    # Some users rate more than others, and some films are rated more.
    activity = (0.5 * normal(users, 1) + 0.5 * normal(1, films)).exp()
    observed = torch.rand(users, films, generator=generator) < share * activity / activity.mean()
    table = ExchangeableArray.from_dense(ratings.unsqueeze(-1), observed)
    hide = torch.rand(len(table), generator=generator) < 0.2
    return Ratings(table.take(~hide), table.take(hide), truth.clamp(1, 5))


def shrunken_bias(seen: ExchangeableArray, asked: Support, strength: float = 5.0) -> Tensor:
    """Mean + user bias + film bias, each pulled to 0 as by ``strength`` cells that say so."""
    values, (user, film) = seen.values.squeeze(1), seen.support.index.T
    mean = values.mean()
    biases = [torch.zeros(size) for size in seen.shape]
    for _ in range(10):
        for axis, (mine, other) in enumerate([(user, film), (film, user)]):
            rest = values - mean - biases[1 - axis][other]
            size = mine.bincount(minlength=seen.shape[axis])
            biases[axis] = torch.zeros(len(size)).index_add(0, mine, rest) / (size + strength)
    return mean + biases[0][asked.index[:, 0]] + biases[1][asked.index[:, 1]]


def standardised(table: ExchangeableArray) -> tuple[ExchangeableArray, float, float]:
    """The values with mean 0 and deviation 1, so that the model fits tables of any scale."""
    mean, deviation = table.values.mean().item(), table.values.std().item()
    return table.with_values((table.values - mean) / deviation), mean, deviation


def complete(model: ResidualModel, seen: ExchangeableArray, asked: Support) -> Tensor:
    """One forward pass: condition on the seen cells, read the asked ones."""
    scaled, mean, deviation = standardised(seen)
    with torch.no_grad():
        return model(scaled, asked).squeeze(1) * deviation + mean


def train(table: ExchangeableArray, steps: int, generator: Generator) -> ResidualModel:
    """Hide some of the table's cells, predict them from the rest, step; again and again."""
    scaled, _, _ = standardised(table)
    config = ResidualConfig(1, 1, width=32, depth=3, heads=4, activation="gated", dropout=0.05)
    model = ResidualModel(config, seed=0)
    optimiser = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=1e-3)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.fields[loss]}"), transient=True) as progress:
        task = progress.add_task("Training on the first table", total=steps, loss="")
        for step in range(steps):
            warm, cool = min(1.0, (step + 1) / 20), 0.5 + 0.5 * math.cos(math.pi * step / steps)
            optimiser.param_groups[0]["lr"] = 5e-3 * warm * cool
            share = 0.1 + 0.5 * torch.rand(1, generator=generator)
            hide = torch.rand(len(scaled), generator=generator) < share
            answers = model(scaled.take(~hide), scaled.support.take(hide), generator=generator)
            loss = (answers - scaled.values[hide]).square().mean()
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            progress.update(task, advance=1, loss=f"loss {loss.item():.3f}")
    return model.eval()


def rmse(answers: Tensor, table: ExchangeableArray) -> float:
    return (answers - table.values.squeeze(1)).square().mean().sqrt().item()


def picture(tables: dict[str, Ratings], model: ResidualModel, path: Path) -> None:
    """Observed, true and completed, a row for each table."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(
        len(tables), 3, figsize=(11, 7.2), layout="constrained", squeeze=False
    )
    colours = matplotlib.colormaps["RdYlBu_r"].with_extremes(bad="#ececec")
    for row, (name, ratings) in zip(panels, tables.items(), strict=True):
        shape = ratings.seen.shape
        cells = torch.cartesian_prod(*map(torch.arange, shape))
        completed = complete(model, ratings.seen, Support(cells, shape)).reshape(shape)
        error = rmse(completed[tuple(ratings.hidden.support.index.T)], ratings.hidden)
        observed = ratings.seen.to_dense(fill=math.nan).squeeze(-1)
        shown = {
            f"{name}: observed ({len(ratings.seen):,} cells)": observed,
            "true": ratings.truth,
            f"completed (RMSE {error:.2f} on hidden ratings)": completed,
        }
        for panel, (title, values) in zip(row, shown.items(), strict=True):
            image = panel.imshow(
                values.numpy(), cmap=colours, vmin=1, vmax=5, aspect="auto", interpolation="nearest"
            )
            panel.set(title=title, xticks=[], yticks=[], xlabel=f"{shape[1]} films")
            panel.title.set_fontsize(10)
        row[0].set_ylabel(f"{shape[0]} users")
    figure.colorbar(image, ax=panels, shrink=0.5, label="rating")
    figure.suptitle(
        "Rows and columns are in the order of the simulation's hidden factors,\n"
        "which the model does not know",
        fontsize=10,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on one table, complete two.")
    parser.add_argument("--steps", type=int, default=300, help="training steps")
    parser.add_argument("--out", type=Path, default=Path("out/demo.png"), help="the picture")
    options = parser.parse_args()

    console = Console()
    tables = {
        "trained on": simulate(300, 200, share=0.15, seed=1),
        "never seen": simulate(250, 180, share=0.15, seed=2),
    }
    console.print("Two simulated tables of ratings 1-5, with no user and no film in common.")
    started = time.perf_counter()
    model = train(tables["trained on"].seen, options.steps, torch.Generator().manual_seed(0))
    weights = sum(weight.numel() for weight in model.parameters())
    seconds = time.perf_counter() - started
    console.print(f"Trained {weights:,} weights on the first table in {seconds:.1f} s.")

    report = Table(title="RMSE on hidden ratings")
    for heading in ("table", "users x films", "shown", "hidden", "mean", "shrunken bias", "model"):
        report.add_column(heading, justify="left" if heading == "table" else "right")
    for name, ratings in tables.items():
        seen, hidden = ratings.seen, ratings.hidden
        answers = [
            seen.values.mean().expand(len(hidden)),
            shrunken_bias(seen, hidden.support),
            complete(model, seen, hidden.support),
        ]
        counts = (" x ".join(map(str, seen.shape)), f"{len(seen):,}", f"{len(hidden):,}")
        report.add_row(name, *counts, *(f"{rmse(answer, hidden):.3f}" for answer in answers))
    console.print(report)
    picture(tables, model, options.out)
    console.print(f"Wrote {options.out}: observed, true and completed, for both tables.")


if __name__ == "__main__":
    main()
