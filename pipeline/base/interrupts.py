"""The signals that ask a command to stop, and handlers that are in place for a while."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)  # the last: a scheduler's warning


@contextlib.contextmanager
def handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Inside, `handler` gets each of `SIGNALS`; then whoever had it before. Main thread only."""
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
    """Inside, `SIGNALS` only go into the list that is given; in other threads nothing changes."""
    signals: list[int] = []
    if threading.current_thread() is threading.main_thread():
        with handled_by(lambda number, _: signals.append(number)):
            yield signals
    else:
        yield signals
