"""What each of several processes computes; ``test_processes`` compares it with one process."""

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tests.support.forks import fork

from exchangeable.models.configs import ResidualConfig
from exchangeable.models.residual import ResidualModel
from exchangeable.models.stream import Plan
from exchangeable.runtime.processes import join_processes
from exchangeable.testing import random_array

CASES = [
    (order, pooling)
    for order in (2, 3)
    for pooling in (
        ("mean",),
        ("sum",),
        ("max",),
        ("attention",),
        ("least_squares",),
        ("mean", "attention"),
    )
]


def computed(processes):
    """Answers and gradients of every case, of all processes together."""
    found = {}
    for number, (order, pooling) in enumerate(CASES):
        config = ResidualConfig(
            2, 3, order, width=8, depth=3, pooling=pooling, heads=2, rank=2, dropout=0.2
        )
        model = ResidualModel(config, seed=1).double()
        x = random_array((6, 5, 4)[:order], density=0.7, channels=2, seed=number)
        hide = torch.rand(len(x), generator=torch.Generator().manual_seed(number)) < 0.4
        generator = torch.Generator().manual_seed(number)
        plan = Plan(chunk_cells=7, activations="scratch")
        outputs = model.predict_hidden(x, hide, None, generator, plan=plan, processes=processes)
        first, _ = processes.share(len(x))
        mine = torch.zeros(int(hide.sum()), 3, dtype=torch.float64)
        before = int(hide[:first].sum())
        mine[before : before + len(outputs)] = outputs.detach()
        (whole,) = processes.all_sum([mine])
        outputs.square().sum().backward()
        weights = [weight.grad for weight in model.parameters() if weight.grad is not None]
        found[f"{number}.outputs"] = whole
        for place, gradient in enumerate(processes.all_sum(weights)):
            found[f"{number}.gradient.{place}"] = gradient
        with torch.no_grad():
            memory = model.eval().condition(x, processes=processes)
            queries = random_array(x.shape, density=1.0).support
            start, stop = processes.share(len(queries))
            own = model.read(memory, queries.take(torch.arange(start, stop)))
            found[f"{number}.answers"] = processes.all_gather(own, len(queries))
    return {name: tensor.contiguous() for name, tensor in found.items()}


def job(folder, size):
    """What each process of a job writes to the folder."""
    torch.set_num_threads(1)
    with join_processes() as processes:
        assert processes.size == size, processes
        save_file(computed(processes), folder / f"{size}.{processes.rank}.safetensors")


if __name__ == "__main__":
    for size in (2, 3):
        codes = fork(size, lambda _, size=size: job(Path(sys.argv[1]), size))
        assert not any(codes), codes
