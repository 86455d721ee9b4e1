"""``exchangeable doctor``: versions, devices, and a self-test of this installation."""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from exchangeable._version import __version__
from exchangeable.cli.options import AsJson, Device
from exchangeable.cli.output import Output, report_errors
from exchangeable.errors import Failed

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


@report_errors
def doctor(device: Device = "auto", as_json: AsJson = False) -> None:
    """Print versions and devices, and run a short self-test."""
    output = Output(as_json)
    facts = describe_installation()
    output.line(*[f"{name}: {fact}" for name, fact in facts.items()])
    checks = run_checks(device)
    output.line(*[f"{'ok  ' if passed else 'FAIL'} {name}" for name, passed in checks.items()])
    output.fact(**facts, checks=checks)
    failed = [name for name, passed in checks.items() if not passed]
    output.finish("" if failed else "all checks passed")
    if failed:
        raise Failed(f"the self-test failed: {', '.join(failed)}")


def describe_installation() -> dict[str, Any]:
    """Versions, devices, memory, and the folders that are searched for data."""
    import torch

    from exchangeable.datasets.source import roots
    from exchangeable.runtime.devices import free_memory

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


def run_checks(device: str = "auto") -> dict[str, bool]:
    """Whether each check of predictions, gradients and saving passes here, by its name."""
    from exchangeable.runtime.devices import find_device

    target = find_device(device)
    checks: dict[str, Callable[[], None]] = {
        "predictions do not depend on row sequence, labels or other queries": _check_equivariance,
        f"a gradient step on {target}": lambda: _check_gradient(target),
        "a table is completed, saved and loaded again": _check_completer,
    }
    return {name: _passes(check) for name, check in checks.items()}


def _check_equivariance() -> None:
    from exchangeable.models.configs import ResidualConfig
    from exchangeable.models.residual import ResidualModel
    from exchangeable.testing import assert_queries_independent, random_array

    model = ResidualModel(ResidualConfig.small(1, 1)).double().eval()
    observed = random_array((6, 5), density=0.6)
    assert_queries_independent(model, observed, random_array((6, 5), seed=1).support)


def _check_gradient(device: Any) -> None:
    import torch

    from exchangeable.models.configs import ResidualConfig
    from exchangeable.models.residual import ResidualModel
    from exchangeable.testing import random_array

    model = ResidualModel(ResidualConfig.small(1, 1)).to(device)
    observed = random_array((6, 5), dtype=torch.float32).to(device)
    model(observed, observed.support).square().mean().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())


def _check_completer() -> None:
    import numpy as np

    from exchangeable.completion.completer import Completer
    from exchangeable.datasets import load

    table = load("film-club").table
    completer = Completer().fit_table(table)
    cells = table.frame(table.index[:50])
    with tempfile.TemporaryDirectory() as folder:
        completer.save(Path(folder) / "completer")
        loaded = Completer.load(Path(folder) / "completer")
    assert np.array_equal(completer.predict(cells), loaded.predict(cells))
    assert float(np.std(completer.predict(cells))) > 0


def _passes(check: Callable[[], None]) -> bool:
    try:
        check()
    except Exception:  # whatever fails, the check is reported by its name
        return False
    return True


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
