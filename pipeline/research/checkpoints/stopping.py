"""Stopping a merge by one signal: with nothing left behind, and never while it cleans up."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from pipeline.base import interrupts
from pipeline.base.errors import Interrupted


@contextlib.contextmanager
def stoppable(out: Path) -> Iterator[Callable[[bool], None]]:
    """Inside, the first signal that asks to stop does so, through all `finally`; others do nothing.

    Signals are held back at first, and whenever the function that is yielded was last called with
    True; with False they stop at once. One that is still held at the end comes when all is done.

    Args:
        out: what is being made, for the message.

    Raises:
        Interrupted: a signal came; the message says whether `out` was made.
    """
    held, asked = True, list[int]()

    def stop(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        if not held and len(asked) == 1:
            raise Interrupted(gone, number)

    def hold(now: bool) -> None:
        nonlocal held
        held = now
        if asked and not held:
            raise Interrupted(gone, asked[0])

    gone = f"merging stopped; {out} was not made, and nothing is left of it"
    if threading.current_thread() is not threading.main_thread():
        yield hold
        return
    with interrupts.handled_by(stop):
        yield hold
    if asked:
        raise Interrupted(f"stopped after merging; {out} is complete", asked[0])
