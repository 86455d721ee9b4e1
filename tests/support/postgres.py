"""A PostgreSQL server of one's own, for as long as tests take."""

import getpass
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path

WHERE = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)


def programs():
    """The folder with initdb and postgres, or None."""
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else WHERE
    return next((f for f in folders if (f / "postgres").exists()), None)


def missing():
    """Why there can be no server here; empty where there can."""
    if programs() is None:
        return "PostgreSQL is not installed here"
    if os.geteuid() == 0 and subprocess.run(["id", "postgres"], capture_output=True).returncode:
        return "PostgreSQL does not run as root, and there is no user postgres"
    return ""


@contextmanager
def server():
    """Its address, as an URL without the database's name."""
    root = os.geteuid() == 0
    user = "postgres" if root else getpass.getuser()
    folder = Path(tempfile.mkdtemp(prefix="exchangeable-pg-"))
    if root:
        shutil.chown(folder, user)
    as_user = {"user": user, "cwd": folder} if root else {"cwd": folder}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    place, port = folder / "data", _free_port()
    command = [programs() / "initdb", "-D", place, "-A", "trust", "-U", "postgres", "--no-sync"]
    subprocess.run(command, check=True, **as_user, **quiet)
    started = subprocess.Popen(
        [programs() / "postgres", "-D", place, "-p", str(port), "-k", folder, "-h", "127.0.0.1"],
        **as_user,
        **quiet,
    )
    try:
        _wait(port, started)
        yield f"postgresql+psycopg://postgres@127.0.0.1:{port}"
    finally:
        started.send_signal(signal.SIGINT)  # SIGTERM would wait for its clients
        try:
            started.wait(10)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()
        shutil.rmtree(folder, ignore_errors=True)


def processes(port):
    """Processes of the server at a port, its own first."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = place.read_bytes().split(b"\0")
            if b"postgres" in words[0] and str(port).encode() in words:
                found.append(int(place.parent.name))
    return found


def _wait(port, started):
    import psycopg

    for _ in range(300):
        if started.poll() is not None:
            raise RuntimeError(f"postgres ended with {started.returncode}")
        try:
            psycopg.connect(f"host=127.0.0.1 port={port} user=postgres dbname=postgres").close()
            return
        except psycopg.OperationalError:
            time.sleep(0.1)
    raise RuntimeError("postgres did not start within 30 seconds")


def _free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]
