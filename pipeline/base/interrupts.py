"""The signals that ask a command to stop, and handlers that are in place for a while."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)  # the last: a scheduler's warning


@contextlib.contextmanager
def handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Inside, `handler` gets each of `SIGNALS`; then whoever had it before.

    In other threads than the main one, which gets all signals, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        for number in SIGNALS:
            signal.signal(number, handler)
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@contextlib.contextmanager
def remembered() -> Iterator[list[int]]:
    """Inside, `SIGNALS` only go into the list that is given."""
    signals: list[int] = []
    with handled_by(lambda number, _: signals.append(number)):
        yield signals
