"""Progress and notes are printed where asked for, and logged elsewhere."""

import logging

import pytest
from tests.support.film_club import LABELS, RATINGS, SHORT

from exchangeable.completion.completer import Completer
from exchangeable.runtime.progress import SILENT, progress_lines


@pytest.fixture
def log(caplog):
    caplog.set_level(logging.DEBUG, logger="exchangeable")
    return caplog


def texts(log, level):
    return [r.getMessage() for r in log.records if r.levelno == level]


def test_notes_and_progress_are_logged_and_nothing_is_printed(log, capfd):
    completer = Completer("vmf").fit(LABELS, RATINGS)
    assert texts(log, logging.INFO) == list(completer.notes_)
    assert any("vmf: " in text for text in texts(log, logging.DEBUG))
    assert {record.name for record in log.records} == {"exchangeable"}
    assert capfd.readouterr() == ("", "")


def test_with_verbose_they_are_printed_on_standard_error(log, capfd):
    completer = Completer("vmf", verbose=True).fit(LABELS, RATINGS)
    printed = capfd.readouterr()
    assert printed.out == ""
    assert printed.err.endswith("".join(f"  {note}\n" for note in completer.notes_))
    assert "%  vmf: " in printed.err
    assert not log.records


def test_finetuning_shows_only_what_is_new(log, capfd):
    completer = Completer("residual", training=SHORT, verbose=True).fit(LABELS, RATINGS)
    capfd.readouterr()
    completer.finetune(training=SHORT)
    lines = capfd.readouterr().err.splitlines()
    assert f"  {completer.notes_[-1]}" in lines
    assert f"  {completer.notes_[0]}" not in lines


def test_who_passes_a_progress_gets_all_of_it(log, capfd):
    Completer("vmf", verbose=True).fit(LABELS, RATINGS, progress=SILENT)
    assert not log.records
    assert capfd.readouterr() == ("", "")


def test_it_is_saved_and_loaded_as_other_parameters_are(tmp_path):
    Completer("bias", verbose=True).fit(LABELS, RATINGS).save(tmp_path / "kept")
    assert Completer.load(tmp_path / "kept").verbose is True


def test_lines_come_after_a_delay_and_then_now_and_then(capfd, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("exchangeable.runtime.progress.time.monotonic", lambda: now[0])
    show = progress_lines(delay=2, every=10)
    for second in range(14):
        now[0] = 100.0 + second
        show(second / 14, f"second {second}")
    assert capfd.readouterr().err == "   14%  second 2\n   86%  second 12\n"
