"""What runs in the process of an upload: limits first, then the file is read and completed.

The process writes messages of bytes: a line of JSON about the outcome, then the parts of the
response, and an empty message at the end. Nothing that it writes is executed by the service.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Literal

from exchangeable.data.options import TableOptions
from exchangeable.errors import InputError, Wording, word
from exchangeable.serve import uploads
from exchangeable.serve.answers.wording import Words, make_wording
from exchangeable.serve.call import describe_failure
from exchangeable.serve.limits import Limits
from exchangeable.storage import interchange
from exchangeable.storage.facts import Facts

MAX_MESSAGE = 2**20
"""Bytes of a message to the service."""
_NO_MEMORY = ("allocate memory", "memory allocation", "not enough memory", "out of memory")
"""Parts of the errors of torch and polars for a lack of memory."""


@dataclass(frozen=True)
class Task:
    """What to do with a file."""

    kind: Literal["complete", "look", "columns", "import"]
    options: TableOptions
    words: Words = "parameters"
    """What errors and notes name options by."""
    parameters: tuple[str, ...] = ()
    """Parameters of the call."""
    every: bool = False
    """Whether to predict every cell."""
    facts: Facts | None = None
    """The table that takes in the cells of the file."""

    @property
    def wording(self) -> Wording:
        return make_wording(self.words, self.parameters)


def run(connection: Connection, task: Task, limits: Limits) -> None:
    """Read a file from a connection, and write the response to it."""
    _leave_terminal()
    _limit(limits)
    content = connection.recv_bytes()
    threading.Thread(target=_end_with, args=(connection,), daemon=True).start()
    try:
        upload = uploads.Upload(content, task.options, task.wording)
        parts = _respond(upload, task, limits)
        first = next(parts, b"")
        _send(connection, {"outcome": "ok"})
        if first:
            connection.send_bytes(first)
        for part in parts:
            connection.send_bytes(part)
        connection.send_bytes(b"")
    except BaseException as error:  # polars' panics are no Exception
        with suppress(OSError):
            _send(connection, _describe(error, task.wording))


def _respond(upload: uploads.Upload, task: Task, limits: Limits) -> Iterator[bytes]:
    """Yield the response, part by part."""
    if task.facts is not None:
        table = upload.read_table(limits.rows)
        yield from interchange.encode_rows(interchange.table_rows(task.facts, table))
        return
    if task.kind != "complete":
        read = uploads.preview if task.kind == "look" else uploads.read_columns
        response = json.dumps(read(upload, limits.rows)).encode()
        for start in range(0, len(response), MAX_MESSAGE):
            yield response[start : start + MAX_MESSAGE]
        return
    filled = uploads.complete(upload, every=task.every, max_rows=limits.rows)
    uploads.check_output(filled, limits.upload_output)
    for chunk in uploads.csv_chunks(filled):
        for start in range(0, len(chunk), MAX_MESSAGE):
            yield chunk[start : start + MAX_MESSAGE]


def _describe(error: BaseException, wording: Wording) -> dict[str, Any]:
    """Describe an error to the service: a reason, or where it happened."""
    if isinstance(error, InputError):
        outcome = "too large" if isinstance(error, uploads.TooLarge) else "invalid"
        return {"outcome": outcome, "reason": word(error, wording)}
    if isinstance(error, MemoryError) or any(part in str(error).lower() for part in _NO_MEMORY):
        return {"outcome": "memory"}
    return {"outcome": "failed", **describe_failure(error)}


def _send(connection: Connection, message: dict[str, Any]) -> None:
    connection.send_bytes(json.dumps(message).encode()[:MAX_MESSAGE])


def _leave_terminal() -> None:
    """Ignore the signals that stop the service, and keep what libraries print out of its log."""
    for name in ("SIGINT", "SIGTERM"):
        with suppress(AttributeError, ValueError):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)


def _end_with(connection: Connection) -> None:
    """End this process once the service has closed the connection, or has ended itself."""
    with suppress(OSError):
        wait([connection])  # the service sends nothing after the file
    os._exit(1)


def _limit(limits: Limits) -> None:
    """Limit memory, time and files of this process, as far as the system can."""
    if sys.platform == "win32":
        return
    import resource

    with suppress(OSError):
        os.nice(5)  # calls of others come first
    seconds = int(limits.upload_seconds * (os.cpu_count() or 1)) + 1
    _lower(resource.RLIMIT_CPU, seconds)
    _lower(resource.RLIMIT_FSIZE, 0)
    _lower(resource.RLIMIT_CORE, 0)
    with suppress(OSError):  # rather this process than the service, if memory runs out
        Path("/proc/self/oom_score_adj").write_text("1000")
    if sys.platform == "linux":
        # Memory that can be written to. Addresses (RLIMIT_AS) would count 1 GB of libraries.
        _lower(resource.RLIMIT_DATA, _data_bytes() + limits.upload_memory)


def _lower(kind: int, value: int) -> None:
    import resource

    hard = resource.getrlimit(kind)[1]
    most = value if hard == resource.RLIM_INFINITY else min(value, hard)
    with suppress(OSError, ValueError):
        resource.setrlimit(kind, (most, most))


def _data_bytes() -> int:
    """Memory that this process can write to, as RLIMIT_DATA counts it."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmData"].split()[0]) * 1024
