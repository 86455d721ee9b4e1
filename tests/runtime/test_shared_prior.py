"""Several processes predict with the shipped model what one predicts."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests.runtime.test_processes import environment
from tests.support.shared_prior import as_if_large, computed, predicted

from exchangeable.models import memory_plan, prior_channels, stream
from exchangeable.runtime.processes import ALONE

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def expected():
    return computed(ALONE)


def test_fits_predictions_and_comparisons_of_two_processes_are_those_of_one(expected, tmp_path):
    command = [sys.executable, "-m", "tests.support.shared_prior", str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-4000:]
    for rank in range(2):
        found = load_file(tmp_path / f"2.{rank}.safetensors")
        assert set(found) == set(expected)
        for name, tensor in found.items():
            torch.testing.assert_close(tensor, expected[name], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("storage", ["scratch", "recompute"])
def test_predictions_do_not_depend_on_where_activations_and_the_prior_wait(
    storage, expected, monkeypatch
):
    monkeypatch.setattr(memory_plan, "choose_storage", lambda needed, room: storage)
    monkeypatch.setattr(prior_channels, "MAX_PRIOR_CELLS", 0)
    monkeypatch.setattr(stream, "MIN_CHUNK_CELLS", 50)
    with as_if_large():
        found = predicted(ALONE, 2)
    for name, tensor in found.items():
        torch.testing.assert_close(tensor, expected[f"large.{name}"], atol=1e-5, rtol=1e-5)


def test_a_limit_that_is_too_small_is_a_note_and_members_are_not_compared(expected):
    notes = []
    found = predicted(ALONE, 2, memory=2**20, note=notes.append)
    assert any(note.startswith("the prior takes about") for note in notes)
    assert any(note.startswith("similar members are not compared") for note in notes)
    assert 1e-3 < (found["mean"] - expected["2.mean"]).abs().max() < 1
