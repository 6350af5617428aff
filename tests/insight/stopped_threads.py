"""Stops single threads of another process, which signals cannot: SIGSTOP stops all of them. Needs root, or the right to trace."""

import ctypes
import os
import time
from contextlib import contextmanager
from pathlib import Path

from process import Failed, TIMEOUT_S

PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH = 0x4206, 0x4207, 17
#: For threads that are not this process's children.
WALL = 0x40000000

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


def ptrace(request, thread):
    if libc.ptrace(request, thread, None, None) < 0:
        raise OSError(ctypes.get_errno(), f"ptrace {request} of thread {thread}: {os.strerror(ctypes.get_errno())}")


def threads_of(process, name):
    """The threads of a process with this name."""
    tasks = Path(f"/proc/{process}/task").iterdir()
    return [int(task.name) for task in tasks if (task / "comm").read_text().strip() == name]


@contextmanager
def stopped(process, *names):
    """Stops the threads with these names, and lets them go on at the end."""
    threads = [thread for name in names for thread in threads_of(process, name)]
    if len(threads) != len(names):
        raise Failed(f"there are {len(threads)} threads with the names {names}")
    held = []
    try:
        for thread in threads:
            ptrace(PTRACE_SEIZE, thread)
            held.append(thread)
            ptrace(PTRACE_INTERRUPT, thread)
            wait_until_stopped(thread)
        yield
    finally:
        for thread in held:
            ptrace(PTRACE_DETACH, thread)


def wait_until_stopped(thread):
    deadline = time.monotonic() + TIMEOUT_S
    while os.waitpid(thread, WALL | os.WNOHANG)[0] != thread:
        if time.monotonic() > deadline:
            raise Failed(f"thread {thread} does not stop")
        time.sleep(0.001)  # between two checks
