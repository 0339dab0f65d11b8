"""Signals that ask a worker to stop: it keeps what is finished and ends."""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

from pipeline.base import interrupts
from pipeline.base.console import note


class StopFlag:
    """Set by the first of `interrupts.SIGNALS`."""

    signal_number: int = 0
    loading: bool = False  # there is nothing to save yet


class StopNow(BaseException):
    """A signal came while an engine was loading, which takes minutes and has nothing to save."""


@contextlib.contextmanager
def requests() -> Iterator[StopFlag]:
    """Inside, a signal sets the flag; a second Ctrl-C or SIGTERM ends the process at once."""
    flag = StopFlag()

    def stop(number: int, frame: FrameType | None) -> None:
        warned = flag.signal_number == signal.SIGUSR1  # and the real signal follows
        if flag.signal_number and number != signal.SIGUSR1 and not warned:
            raise KeyboardInterrupt
        if not flag.signal_number or warned:
            flag.signal_number = number
            if flag.loading:
                raise StopNow
            note("stopping: writing what is finished (once more to quit at once) ...")

    with interrupts.handled_by(stop):
        yield flag


@contextlib.contextmanager
def at_once(flag: StopFlag) -> Iterator[None]:
    """Inside, the first signal raises StopNow."""
    flag.loading = True
    try:
        if flag.signal_number:
            raise StopNow
        yield
    finally:
        flag.loading = False
