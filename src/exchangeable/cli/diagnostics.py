"""What there is to know of this machine, and whether the package works on it."""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from exchangeable._version import __version__
from exchangeable.completion.completer import Completer
from exchangeable.datasets import load
from exchangeable.datasets.source import roots
from exchangeable.models.configs import ResidualConfig
from exchangeable.models.residual import ResidualModel
from exchangeable.runtime.devices import find_device, free_memory
from exchangeable.testing import assert_queries_independent, random_array

_PACKAGES = (
    "torch",
    "numpy",
    "scipy",
    "scikit-learn",
    "polars",
    "safetensors",
    "matplotlib",
    "h5py",
)


def facts() -> dict[str, Any]:
    """Versions, devices, memory, and where data is looked for."""
    gpus = [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]
    return {
        "exchangeable": __version__,
        "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        **{name: _version(name) for name in _PACKAGES},
        "threads": torch.get_num_threads(),
        "gpus": ", ".join(gpus) or "none",
        "free memory": f"{free_memory(torch.device('cpu')) / 2**30:.1f} GB",
        "data folders": ", ".join(str(root) for root in roots()),
    }


def self_test(device: str = "auto") -> dict[str, bool]:
    """Whether answers, equivariance, gradients and saving work here, by name."""
    home = find_device(device)
    checks: dict[str, Callable[[], None]] = {
        "answers do not depend on order, labels or other queries": _check_equivariance,
        f"a gradient step on {home}": lambda: _check_gradient(home),
        "a table is completed, saved and loaded again": _check_completer,
    }
    return {name: _passes(check) for name, check in checks.items()}


def _check_equivariance() -> None:
    model = ResidualModel(ResidualConfig.small(1, 1)).double().eval()
    observed = random_array((6, 5), density=0.6)
    assert_queries_independent(model, observed, random_array((6, 5), seed=1).support)


def _check_gradient(home: torch.device) -> None:
    model = ResidualModel(ResidualConfig.small(1, 1)).to(home)
    observed = random_array((6, 5), dtype=torch.float32).to(home)
    model(observed, observed.support).square().mean().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())


def _check_completer() -> None:
    club = load("film-club").table
    completer = Completer().fit_table(club)
    cells = club.frame(club.index[:50])
    with tempfile.TemporaryDirectory() as folder:
        completer.save(Path(folder) / "completer")
        again = Completer.load(Path(folder) / "completer")
    assert np.array_equal(completer.predict(cells), again.predict(cells))
    assert float(np.std(completer.predict(cells))) > 0


def _passes(check: Callable[[], None]) -> bool:
    try:
        check()
    except Exception:  # whatever is wrong here, it is to be told by name
        return False
    return True


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
