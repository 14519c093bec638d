"""A limit for calls that wait for processes of the engine.

vLLM's client waits without one, and for ever when the engine's process is killed meanwhile.
"""

import contextlib
import faulthandler
import os
import select
import signal
from collections.abc import Iterator
from typing import Any

import psutil

STDERR = 2  # the descriptor: pytest shows with a failed test what came there, of all processes
GONE_S = 10


class Hung(Exception):
    """The engine gave no answer; its processes are gone."""


def _end(child: psutil.Process) -> None:
    """Ends it; it writes the stacks of its threads (PYTHONFAULTHANDLER)."""
    os.write(STDERR, f"\nprocess {child.pid}, {child.name()}:\n".encode())
    child.rlimit(psutil.RLIMIT_CORE, (0, 0))
    handle = os.pidfd_open(child.pid)
    try:
        child.send_signal(signal.SIGABRT)
        if not select.select([handle], [], [], GONE_S)[0]:
            child.kill()
    finally:
        os.close(handle)


def _end_children() -> None:
    """Parents first: the engine's core must not look elsewhere because its worker is gone."""
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            if "resource_tracker" not in " ".join(child.cmdline()):
                _end(child)


@contextlib.contextmanager
def limit(seconds: float, what: str) -> Iterator[None]:
    """Raises Hung in the main thread when the body takes longer. Does not nest."""

    def expired(_number: int, _frame: Any) -> None:
        os.write(STDERR, f"\n{what}: nothing within {seconds:g} s; this process:\n".encode())
        faulthandler.dump_traceback(STDERR)
        _end_children()
        raise Hung(f"{what}: nothing within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, expired)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
