"""Pretraining of the ranker on synthetic tables of positives.

    python -m exchangeable.pretraining.ranking --out WEIGHTS --device cuda

Tables are drawn and read first, each as it is in ``fit``: positives are hidden, the stack is fitted
to them, and candidates of some users are found with their channels. The network is trained on
these: a step takes users of one table. Its loss is a softmax over a user's candidates and, more of
it, an approximate NDCG of the list.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from exchangeable.pretraining.positive_draws import LARGE, SMALL, DrawSizes, draw_positives
from exchangeable.ranking.channels import Channels
from exchangeable.ranking.network import RankingNetwork, TableFacts, save_network
from exchangeable.ranking.positives import Positives
from exchangeable.ranking.ranker import NETWORK_CANDIDATES
from exchangeable.ranking.stack import (
    Examples,
    choose_usual,
    find_examples,
    fit_stack,
    gains_of,
    hide,
    ranker_gains,
    usual_weights,
)

MIN_USERS = 20
"""Tables with fewer users to learn from are left out."""


@dataclass(frozen=True)
class RankingCurriculum:
    """Numbers of tables and steps, and the settings of the optimiser."""

    small: int = 400
    large: int = 80
    users: int = 400
    """Users of a table to learn from, at most."""
    steps: int = 12_000
    batch: int = 64
    rate: float = 2e-3
    decay: float = 0.05
    average: float = 0.002
    """Part of each step in the moving average of the weights, which is kept."""
    softmax: float = 0.3
    gain: float = 3.0
    """Weights of both parts of the loss."""
    slope: float = 2.0
    positives: int = 6
    """Positives of a user that count for the approximate NDCG, drawn in each step."""
    validation: int = 24
    """Tables that are not trained on."""
    seed: int = 0


@dataclass(frozen=True, eq=False)
class RankingLesson:
    """Candidates of users of one table, and what the network knows beside."""

    examples: Examples
    facts: TableFacts
    users: Tensor  # (Q, USER_FACTS)


@torch.no_grad()
def read_lesson(
    seed: int, sizes: DrawSizes, users: int, device: torch.device
) -> RankingLesson | None:
    """Draw a table and read it as ``fit`` does; None if it has too little to learn from."""
    draw = draw_positives(seed, sizes, device)
    positives, held_out = (Positives.of(part, draw.shape) for part in (draw.train, draw.test))
    kept, hidden, chosen = hide(positives)
    tested = draw.test[:, 0].unique()
    if len(chosen) < MIN_USERS or len(tested) < MIN_USERS:
        return None
    inner = Channels.fit(kept)
    usual = usual_weights(inner)
    pool = find_examples(inner, kept, hidden, chosen, usual)
    weights, gains = fit_stack(pool, choose_usual(inner, pool)), ranker_gains(pool).mean(dim=1)
    channels = Channels.fit(positives, inner)
    generator = torch.Generator(device=device).manual_seed(seed)
    tested = tested[torch.randperm(len(tested), device=device, generator=generator)[:users]]
    examples = find_examples(channels, positives, held_out, tested, usual)
    examples = examples.leading(weights, NETWORK_CANDIDATES)
    examples = examples.of_users(examples.hidden.sum(dim=1) > 0)
    if len(examples.users) < MIN_USERS:
        return None
    facts = TableFacts.of(positives, weights, gains)
    return RankingLesson(examples, facts, facts.of_users(positives.rows(examples.users)))


def loss_of(
    scores: Tensor, hidden: Tensor, curriculum: RankingCurriculum, generator: torch.Generator
) -> Tensor:
    """Loss of scores (B, K) of candidates, of which some were hidden (B, K)."""
    likely = (scores.log_softmax(dim=1) * hidden).sum(dim=1) / hidden.sum(dim=1)
    drawn = torch.rand(scores.shape, device=scores.device, generator=generator) * hidden
    pick = drawn.topk(min(curriculum.positives, scores.shape[1]), dim=1)
    counted = (pick.values > 0).to(scores)
    ahead = scores.masked_fill(hidden > 0, -torch.inf)[:, None, :]
    own = scores.gather(1, pick.indices)[:, :, None]
    place = 1 + torch.sigmoid(curriculum.slope * (ahead - own)).sum(dim=2)
    gain = (counted / torch.log2(1 + place)).sum() / counted.sum()
    return -curriculum.softmax * likely.mean() + curriculum.gain * (1 - gain)


def train_network(
    lessons: Sequence[RankingLesson], curriculum: RankingCurriculum, device: torch.device
) -> RankingNetwork:
    """Train a network on lessons, one in each step."""
    torch.manual_seed(curriculum.seed)  # the initial weights
    rng = np.random.default_rng(curriculum.seed)
    generator = torch.Generator(device=device).manual_seed(curriculum.seed)
    network = RankingNetwork().to(device)
    optimiser = torch.optim.AdamW(
        network.parameters(), curriculum.rate, weight_decay=curriculum.decay
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, curriculum.rate, total_steps=curriculum.steps
    )
    average = {name: own.detach().clone() for name, own in network.state_dict().items()}
    for step in range(curriculum.steps):
        lesson = lessons[int(rng.integers(len(lessons)))]
        some = torch.from_numpy(rng.integers(len(lesson.users), size=curriculum.batch)).to(device)
        part = lesson.examples.of_users(some)
        stack = part.z @ lesson.facts.weights
        added = network(part.z, part.items, lesson.users[some], lesson.facts)
        loss = loss_of(stack + added, part.hidden, curriculum, generator)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        for name, own in network.state_dict().items():
            average[name].lerp_(own.detach(), curriculum.average)
        if step % 1000 == 0:
            print(f"step {step:,}: loss {loss.item():.3f}", flush=True)
    network.load_state_dict(average)
    return network.eval()


@torch.no_grad()
def validate(network: RankingNetwork, lessons: Sequence[RankingLesson]) -> dict[str, float]:
    """Mean gains of the network, of the stack and of the best ranker alone."""
    rows = []
    for lesson in lessons:
        own = lesson.examples
        stack = own.z @ lesson.facts.weights
        added = network(own.z, own.items, lesson.users, lesson.facts)
        best = ranker_gains(own)[int(lesson.facts.gains.argmax())]
        rows.append(
            [float(g.mean()) for g in (gains_of(stack + added, own), gains_of(stack, own), best)]
        )
    means = np.mean(rows, axis=0)
    behind = sum(network_gain < stack_gain for network_gain, stack_gain, _ in rows)
    names = ("network", "stack", "best ranker on hidden positives")
    return {**dict(zip(names, means.tolist(), strict=True)), "tables behind the stack": behind}


def read_lessons(
    curriculum: RankingCurriculum, device: torch.device, seconds: float
) -> tuple[list[RankingLesson], list[RankingLesson]]:
    """Draw and read tables, large ones among small ones; return those to train and validate on."""
    start, lessons = time.perf_counter(), []
    total = curriculum.small + curriculum.large
    large = np.linspace(0, total - 1, curriculum.large).astype(int).tolist()
    for number in range(total):
        sizes = LARGE if number in large else SMALL
        lesson = read_lesson(curriculum.seed + number, sizes, curriculum.users, device)
        if lesson is not None:
            lessons.append(lesson)
        spent = time.perf_counter() - start
        if number % 20 == 0:
            print(f"{number} tables drawn, {spent:.0f} s", flush=True)
        if spent > seconds:
            print(f"stopped after {number} tables", flush=True)
            break
    count = min(curriculum.validation, len(lessons) // 4)
    return lessons[: len(lessons) - count], lessons[len(lessons) - count :]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the weights")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=300.0, help="for drawing tables, at most")
    for name, value in asdict(RankingCurriculum()).items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    arguments = vars(parser.parse_args())
    out, device, seconds = (arguments.pop(name) for name in ("out", "device", "seconds"))
    curriculum, device = RankingCurriculum(**arguments), torch.device(device)
    train, held_out = read_lessons(curriculum, device, seconds)
    network = train_network(train, curriculum, device)
    facts = {"tables": len(train), **asdict(curriculum), **validate(network, held_out)}
    print(json.dumps(facts), flush=True)
    save_network(out, network.cpu(), facts)


if __name__ == "__main__":
    main()
