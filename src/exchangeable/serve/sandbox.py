"""Processes for uploads: one for each file, with limits of memory, time and output.

A file may need any memory, any time, or break the library that reads it; only a process can be
ended whatever it does. On Linux it is forked, in milliseconds, from one that has imported
everything; elsewhere it is started anew, which takes seconds, and its memory is not limited.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import signal
import sys
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pkgutil import walk_packages
from typing import Any

from exchangeable.errors import Failed, InputError
from exchangeable.serve import upload_process
from exchangeable.serve.call import Call
from exchangeable.serve.limits import Limits
from exchangeable.serve.upload_process import MAX_MESSAGE, Task
from exchangeable.serve.uploads import NAME, TooLarge

log = logging.getLogger("exchangeable.serve")

_FORKS = sys.platform == "linux"
_UNUSED_ROOMS = ("__main__", "cli", "evaluation", "kernels", "serve", "testing")
"""Rooms that files need nothing of, but for what ``upload_process`` imports itself."""
_KILLED_FOR_TIME = ("SIGXCPU",)
_starting = threading.Lock()
"""Held while a process starts: multiprocessing keeps a list of them all."""


class Broken(Failed):
    """The process of an upload failed for a reason that is in the log."""


def start() -> None:
    """Start the process that those of uploads are forked from, where they are; return at once."""
    if _FORKS:
        from multiprocessing import forkserver

        _context()
        forkserver.ensure_running()


def respond(task: Task, content: bytes, limits: Limits, call: Call) -> Iterator[bytes]:
    """Yield the response to a file from a process of its own, which ends with the call."""
    here, there = multiprocessing.Pipe()
    with _starting:
        process = _context().Process(
            target=upload_process.run, args=(there, task, limits), daemon=True
        )
        process.start()
    there.close()
    overdue = threading.Event()

    def stop_overdue() -> None:
        overdue.set()
        process.kill()

    timer = threading.Timer(limits.upload_seconds, stop_overdue)
    timer.daemon = True
    timer.start()
    call.on_end(process.kill)
    try:
        yield from _receive(here, content, limits, call)
    except (EOFError, OSError):
        process.join()
        call.check()
        raise _explain_end(process.exitcode, overdue.is_set(), limits, call) from None
    finally:
        timer.cancel()
        here.close()
        process.kill()
        process.join()


def _receive(connection: Connection, content: bytes, limits: Limits, call: Call) -> Iterator[bytes]:
    connection.send_bytes(content)
    _check(json.loads(connection.recv_bytes(MAX_MESSAGE)), limits, call)
    size = 0
    while part := connection.recv_bytes(MAX_MESSAGE):
        size += len(part)
        if size > limits.upload_output:
            raise TooLarge(f"the response to {NAME} has more than {limits.upload_output:,} bytes")
        yield part


def _check(message: dict[str, Any], limits: Limits, call: Call) -> None:
    """Raise what the process says went wrong."""
    outcome = message["outcome"]
    if outcome == "invalid":
        raise InputError(message["reason"])
    if outcome == "too large":
        raise TooLarge(message["reason"])
    if outcome == "memory":
        raise _memory_exceeded(limits)
    if outcome == "failed":
        fields = {"id": call.identity, "error": message["error"], "where": message["where"]}
        log.error("upload failed", extra={"fields": fields})
        if message["error"] == "PanicException":  # of polars, which this file has broken
            raise InputError(f"{NAME} cannot be read: it is damaged")
        raise Broken("the file could not be completed")


def _explain_end(code: int | None, overdue: bool, limits: Limits, call: Call) -> Exception:
    """Why a process ended before its response did."""
    names = {number.value: number.name for number in signal.Signals}
    name = names.get(-(code or 0), str(code))
    fields = {"id": call.identity, "signal": name, "overdue": overdue}
    log.error("upload ended", extra={"fields": fields})
    if overdue or name in _KILLED_FOR_TIME:
        return TooLarge(
            f"{NAME} may take at most {limits.upload_seconds:g} seconds, but took more: send fewer "
            f"rows, or start the service with more --upload-seconds"
        )
    if name in ("SIGABRT", "SIGKILL"):  # polars aborts for want of memory; the kernel kills
        return _memory_exceeded(limits)
    return InputError(f"{NAME} cannot be read: it is damaged")


def _memory_exceeded(limits: Limits) -> TooLarge:
    return TooLarge(
        f"{NAME} may take at most {limits.upload_memory >> 20:,} MB of memory, but takes more: "
        f"send fewer rows, or start the service with more --upload-memory"
    )


def _context() -> Any:
    if not _FORKS:
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", *modules()])  # once, not in each
    return context


def modules() -> list[str]:
    """Modules that the processes of files may need.

    All are imported before the first file: what is imported late may be of another release, if the
    package is replaced under a running service.
    """
    package = sys.modules[__name__.partition(".")[0]]
    walked = walk_packages(package.__path__, f"{package.__name__}.")
    needed = (one.name for one in walked if one.name.split(".")[1] not in _UNUSED_ROOMS)
    return [*needed, upload_process.__name__]
