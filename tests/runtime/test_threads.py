"""Threads of ours have the settings of the thread that started them."""

import pytest
import torch

from exchangeable.runtime import threads

CPU = torch.device("cpu")


def settings():
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled()


@pytest.mark.parametrize(
    "context",
    [torch.enable_grad, torch.no_grad, torch.inference_mode],
    ids=["gradients", "no gradients", "inference"],
)
def test_tasks_in_threads_keep_gradients_only_where_their_caller_does(context, monkeypatch):
    monkeypatch.setattr(threads, "_cores", lambda: 2)
    with context():
        expected = settings()
        found = threads.run_all([settings] * 3, threads.MIN_PARALLEL_CELLS, CPU)

    assert found == [expected] * 3
