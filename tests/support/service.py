"""A service in a process of its own, for tests and measurements."""

from __future__ import annotations

import http.client
import json
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


def find_port() -> int:
    """Find a port that is free, none of those that outgoing connections take in the meantime."""
    while True:
        port = random.SystemRandom().randrange(15_000, 32_000)
        with socket.socket() as free, suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port


class Service:
    """A service started by the command ``exchangeable serve``."""

    def __init__(self, folder: Path, *arguments: str, **environment: str) -> None:
        self.port = find_port()
        command = [sys.executable, "-m", "exchangeable", "serve", *arguments]
        self.log = (folder / "serve.log").open("a")
        self.process = subprocess.Popen(
            [*command, "--port", str(self.port)],
            cwd=folder,
            stdout=self.log,
            stderr=self.log,
            env={**os.environ, **environment},
        )

    def wait(self, seconds: float = 120) -> None:
        """Wait until the service responds."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.process.poll() is not None:
                last = Path(self.log.name).read_text()[-2000:]
                raise RuntimeError(f"the service ended with {self.process.returncode}: {last}")
            try:
                if self.call("GET", "/ready")[0] == 200:
                    return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError("the service did not start in time")

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Send a request; return the status and the body, decoded if it is JSON."""
        connection = self.connection()
        try:
            return ask(connection, method, path, body)
        finally:
            connection.close()

    def memory(self) -> int:
        """Resident memory of the process in bytes."""
        text = Path(f"/proc/{self.process.pid}/statm").read_text()
        return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def children(self) -> set[int]:
        """Processes that the service started, and those that these started."""
        parents = {}
        for status in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # it has ended in the meantime
                fields = status.read_text().rpartition(")")[2].split()
                if fields[0] != "Z":
                    parents[int(status.parent.name)] = int(fields[1])
        found = {self.process.pid}
        while more := {pid for pid, parent in parents.items() if parent in found} - found:
            found |= more
        return found - {self.process.pid}

    def memory_of_all(self) -> int:
        """Memory of the process and of its children in bytes; what they share counts once."""
        total = 0
        for pid in (self.process.pid, *self.children()):
            with suppress(OSError):
                text = Path(f"/proc/{pid}/smaps_rollup").read_text()
                total += int(text.split("\nPss:")[1].split()[0]) * 1024
        return total

    def kill(self) -> None:
        """Kill the process at once, as a loss of power does."""
        self.process.kill()
        self.process.wait()
        self.log.close()

    def stop(self, seconds: float = 30) -> int:
        """Stop the process as a supervisor does, and return its exit code."""
        self.process.terminate()
        code = self.process.wait(seconds)
        self.log.close()
        return code


def ask(
    connection: http.client.HTTPConnection, method: str, path: str, body: Any = None
) -> tuple[int, Any]:
    content = None if body is None else json.dumps(body)
    headers = {} if body is None else {"content-type": "application/json"}
    connection.request(method, path, content, headers)
    answer = connection.getresponse()
    text = answer.read()
    kind = answer.getheader("content-type") or ""
    return answer.status, json.loads(text) if kind.startswith("application/json") else text


@contextmanager
def served(folder: Path, *arguments: str, **environment: str) -> Iterator[Service]:
    service = Service(folder, *arguments, **environment)
    try:
        service.wait()
        yield service
    finally:
        if service.process.poll() is None:
            service.kill()
