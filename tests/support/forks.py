"""Several processes of one job, as forks of one process: torch is imported once for all of them.

    python tests/support/forks.py 2 '[["train", "film-club", "--out", "out/{rank}"]]'

runs commands, one after the other, each by two processes with the environment that ``torchrun``
would give them. ``{rank}`` is the number of the process. The last line is JSON: for each command,
the exit codes of its processes. As under ``torchrun``, processes end when one of them has failed.
"""

import json
import os
import signal
import socket
import sys
import time
import traceback

GRACE = 10
"""Seconds that processes have to end by themselves after one failed."""


def fork(size, act):
    """Call ``act(rank)`` in ``size`` processes at once; their exit codes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    job = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    children = []
    for rank in range(size):
        child = os.fork()
        if not child:
            os.environ |= job | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            os._exit(_exit_code(act, rank))
        children.append(child)
    return _waited(children)


def _waited(children):
    codes, end = {}, None
    while len(codes) < len(children):
        for child in [one for one in children if one not in codes]:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                codes[child] = os.waitstatus_to_exitcode(status)
            elif end is not None and time.monotonic() > end:
                os.kill(child, signal.SIGKILL)
        if end is None and any(codes.values()):
            end = time.monotonic() + GRACE
        time.sleep(0.05)
    return [codes[child] for child in children]


def _exit_code(act, rank):
    try:
        act(rank)
    except SystemExit as ended:
        return ended.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def _run(words, rank):
    from exchangeable.cli import run

    sys.argv = ["exchangeable", *[word.replace("{rank}", str(rank)) for word in words]]
    run()


if __name__ == "__main__":
    import torch  # noqa: F401  (here, and not in each of them)

    size, commands = int(sys.argv[1]), json.loads(sys.argv[2])
    print(json.dumps([fork(size, lambda rank, c=words: _run(c, rank)) for words in commands]))
