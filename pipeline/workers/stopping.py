"""How a worker ends early: asked by a signal, or stopped by an engine or a disk that fails.

What is finished is kept, and a person gets one readable line.
"""

import contextlib
import errno
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType

from bayes_at_n.pipeline.base import children
from bayes_at_n.pipeline.base.console import note
from bayes_at_n.pipeline.base.errors import Interrupted, TryAgain, UserError, one_line
from bayes_at_n.pipeline.store.runfolder import Run

PROBE_S = 20.0  # the longest that a probe of a server may hold up all else
# What a disk says that waiting does not mend.
_FOR_A_PERSON = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)


class StopFlag:
    """Set by the first of `children.SIGNALS`."""

    signal_number: int = 0
    loading: bool = False  # there is nothing to save yet


class StopNow(BaseException):
    """A signal came while an engine was loading, which takes minutes and has nothing to save."""


@contextlib.contextmanager
def requests(patient: bool = False) -> Iterator[StopFlag]:
    """Inside, a signal sets the flag; a second Ctrl-C or SIGTERM ends the process at once.

    With `patient` any number of signals are one: Slurm sends its own to everyone, and a parent
    hands them on.
    """
    flag = StopFlag()

    def stop(number: int, frame: FrameType | None) -> None:
        warned = flag.signal_number == signal.SIGUSR1  # and the real signal follows
        if flag.signal_number and number != signal.SIGUSR1 and not (warned or patient):
            raise KeyboardInterrupt
        if not flag.signal_number or warned:
            flag.signal_number = number
            if flag.loading:
                raise StopNow
            note("stopping: saving finished attempts (again to quit immediately) ...")

    with children.handled_by(stop):
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


@contextlib.contextmanager
def engine_errors(
    engine: str, excused: Callable[[Exception], bool] = lambda error: False
) -> Iterator[None]:
    """Turn what an engine raises into one readable line.

    `excused`: whether an error is none, because the worker is being stopped.
    """
    try:
        yield
    except Exception as error:  # engines raise whatever their parts raise
        if isinstance(error, OSError) and error.errno in _FOR_A_PERSON:
            raise  # of the folder of claims, say
        if isinstance(error, UserError) and not excused(error):
            raise
        if not excused(error):
            raise TryAgain(
                f"engine={engine} failed while generating: {one_line(error)}."
                " Finished attempts are kept; the same command continues"
            ) from error


@contextlib.contextmanager
def writable(folder: Path) -> Iterator[None]:
    """Turn what the disk refuses into one readable line."""
    try:
        yield
    except OSError as error:
        kind = UserError if error.errno in _FOR_A_PERSON else TryAgain
        raise kind(
            f"{folder}: {error.strerror or error}. Finished attempts that were written are kept;"
            " mend the disk (free space, permissions), then the same command continues"
        ) from error


def interrupted(runs: Sequence[Run], left: int, signal_number: int) -> Interrupted:
    """What ends a command that was asked to stop while so many attempts are pending."""
    total = sum(len(run.keys) for run in runs)
    places = str(runs[0].path) if len(runs) == 1 else f"{len(runs)} run folders"
    return Interrupted(
        f"stopped: {total - left} of {total} attempts are kept in {places}; the same command"
        f" samples the other {left}",
        signal_number,
    )
