"""A signal stops a run once, and errors of memory are one line."""

import os
import signal

import pytest
import torch

from exchangeable.errors import Failed
from exchangeable.runtime.interruption import Interrupted, explain_out_of_memory, stoppable


def test_handlers_are_put_back_and_a_second_signal_stops_at_once():
    before = signal.getsignal(signal.SIGINT)
    asked_after_one = []

    def two_signals():
        with stoppable() as asked:
            os.kill(os.getpid(), signal.SIGINT)
            asked_after_one.append(asked())
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        two_signals()
    assert asked_after_one == [True]
    assert signal.getsignal(signal.SIGINT) is before


def test_out_of_memory_is_one_line_with_the_setting_that_helps():
    with pytest.raises(Failed, match=r"out of memory.*batch_cells"), explain_out_of_memory():
        torch.empty(2**60)
    with pytest.raises(ValueError, match="other"), explain_out_of_memory():
        raise ValueError("other")
    with pytest.raises(RuntimeError, match="unrelated"), explain_out_of_memory():
        raise RuntimeError("unrelated")


def test_whoever_goes_on_after_errors_does_not_after_an_interruption():
    assert not issubclass(Interrupted, Exception)
