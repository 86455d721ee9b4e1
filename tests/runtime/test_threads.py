"""Threads of ours have the settings of the thread that started them."""

import threading
from contextlib import suppress
from functools import partial

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


@pytest.fixture
def three_threads():
    """Let the user have asked for three threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    "context",
    [
        partial(threads.torch_threads, 2),
        partial(threads.one_thread, CPU),
        partial(threads.threads_for_training, 1, CPU),
        partial(threads.threads_for_products, threads.MIN_PRODUCTS),
    ],
)
@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_threads_are_those_of_the_user_again_whatever_happens(three_threads, context, error):
    with suppress(ValueError, KeyboardInterrupt), context():
        if error is not None:
            raise error
    assert torch.get_num_threads() == 3


def test_an_error_of_a_task_is_raised_and_threads_are_those_of_the_user_again(
    three_threads, monkeypatch
):
    monkeypatch.setattr(threads, "_cores", lambda: 2)

    def fail():
        raise ValueError("of a task")

    with pytest.raises(ValueError, match="of a task"):
        threads.run_all([settings, fail, settings], threads.MIN_PARALLEL_CELLS, CPU)
    assert torch.get_num_threads() == 3
    assert not threads.is_worker()


def test_tasks_of_tasks_run_in_the_same_thread_and_torch_has_one(three_threads, monkeypatch):
    monkeypatch.setattr(threads, "_cores", lambda: 2)

    def place():
        with threads.threads_for_products(threads.MIN_PRODUCTS):
            return threading.get_ident(), torch.get_num_threads(), threads.is_worker()

    def nested():
        inside = threads.run_all([place] * 3, threads.MIN_PARALLEL_CELLS, CPU)
        return {place(), *inside}

    for found in threads.run_all([nested] * 4, threads.MIN_PARALLEL_CELLS, CPU):
        ((thread, count, is_worker),) = found
        assert thread != threading.get_ident()
        assert (count, is_worker) == (1, True)
    assert torch.get_num_threads() == 3
