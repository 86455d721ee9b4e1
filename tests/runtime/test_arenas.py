"""Threads have arenas of their own, unless they are told to share one."""

import subprocess
import sys

import pytest

ALLOCATE = """
import ctypes, threading
from exchangeable.runtime.arenas import share_one_arena
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.fdopen.restype = ctypes.c_void_p
if {one}:
    share_one_arena()
barrier = threading.Barrier(4)
def allocate():
    barrier.wait()
    libc.malloc(5000)
    barrier.wait()
threads = [threading.Thread(target=allocate) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
out = ctypes.c_void_p(libc.fdopen(1, b"w"))
libc.malloc_info(0, out)
libc.fflush(out)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="arenas are glibc's")
@pytest.mark.parametrize("one", [True, False])
def test_threads_share_one_arena_on_request(one):
    code = ALLOCATE.format(one=one)
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (told.stdout.count("<heap nr=") == 1) == one
