"""What the tests of checkpoints share."""

import os

import torch

from exchangeable.runtime.checkpoint import load, save


def put(path, number=1, **other):
    """A tiny checkpoint that tells its number in every file."""
    given = {
        "config": {"number": number},
        "tensors": {
            "model": {"weight": torch.full((2,), float(number))},
            "training": {"step": torch.tensor(number)},
        },
        "card": f"# Model {number}\n",
        "facts": {"number": number},
        "files": {"members-0.parquet": bytes([number])},
    } | other
    save(path, given.pop("config"), given.pop("tensors"), **given)


def number_at(path):
    """The number that all files of the checkpoint agree on."""
    loaded = load(path)
    numbers = {
        loaded.config["number"],
        *loaded.tensors["model"]["weight"].tolist(),
        loaded.tensors["training"]["step"].item(),
        loaded.facts["number"],
        *loaded.files["members-0.parquet"],
    }
    assert len(numbers) == 1
    return numbers.pop()


def hidden(folder):
    return sorted(name for name in os.listdir(folder) if name.startswith("."))
