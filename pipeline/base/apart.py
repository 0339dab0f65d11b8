"""Work in a forked process: without torch, or within so much processor time and memory.

transformers imports torch wherever it is installed, also for a tokenizer or a configuration that
need nothing of it: two seconds, and 440 MB that a process never gives back.
"""

import contextlib
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, TypeVar

from pipeline.base.children import die_with
from pipeline.base.errors import UserError
from pipeline.base.interrupts import SIGNALS
from pipeline.base.limits import room

Result = TypeVar("Result")


def without_torch(work: Callable[[], Result]) -> Result:
    """What `work` returns, which can be pickled, from a forked process that cannot import torch.

    Work that fails there for any reason but a UserError is done again here: it may need torch. And
    it is done here at once where torch is there already, or threads that a fork would cut off.
    Raises UserError: as `work`.
    """
    if "torch" in sys.modules or threading.active_count() > 1:
        return work()
    with _forked(lambda pipe: _tell(pipe, work)) as (source, _):
        try:
            told: tuple[bool, Any] = pickle.load(source)
        except EOFError:
            return work()
    done, result = told
    if not done:
        raise result
    made: Result = result
    return made


def bounded(work: Callable[[], Iterator[Result]], seconds: float, size: int) -> Iterator[Result]:
    """What `work` yields, as it comes, from a forked process with so much processor time.

    The kernel ends it then, whatever it does; its memory is `limits.room` of `size` bytes. Raises
    TimeoutError: the time was up. ChildProcessError: it ended in another way.
    """

    def tell(pipe: BinaryIO) -> None:
        signal.setitimer(signal.ITIMER_PROF, seconds)  # whose signal kills a process
        with room(size):
            for item in work():
                pickle.dump((item,), pipe)
                pipe.flush()
        pickle.dump((), pipe)

    with _forked(tell) as (source, child):
        try:
            while item := pickle.load(source):
                yield item[0]
        except (EOFError, pickle.UnpicklingError) as error:  # the end, perhaps amid an item
            if (status := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])) == -signal.SIGPROF:
                raise TimeoutError(f"more than {seconds:g} s of processor time") from error
            raise ChildProcessError(f"its process ended with status {status}") from error


@contextlib.contextmanager
def _forked(tell: Callable[[BinaryIO], None]) -> Iterator[tuple[BinaryIO, int]]:
    """What a process, forked and killed at the end, writes with `tell`; and its number."""
    ours, theirs = os.pipe()
    for printed in (sys.stdout, sys.stderr):
        printed.flush()
    parent = os.getpid()
    if not (pid := os.fork()):
        try:
            os.close(ours)
            die_with(parent)
            for number in SIGNALS:  # the parent's business, which then kills this process
                signal.signal(number, signal.SIG_IGN)
            with os.fdopen(theirs, "wb") as pipe:
                tell(pipe)
        finally:
            os._exit(0)
    os.close(theirs)
    try:
        with os.fdopen(ours, "rb") as pipe:
            yield pipe, pid
    finally:
        with contextlib.suppress(ChildProcessError):  # whoever was told of its end has waited
            if not os.waitpid(pid, os.WNOHANG)[0]:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def _tell(pipe: BinaryIO, work: Callable[[], object]) -> None:
    """Write whether it was done, and what came of it; nothing where it is to be done again."""
    sys.modules["torch"] = None  # type: ignore[assignment]  # so looks what is not installed
    os.environ["TRANSFORMERS_NO_ADVISORY_WARNINGS"] = "1"  # of models that are not available
    try:
        told: tuple[bool, object] = True, work()
    except UserError as error:
        if isinstance(error.__cause__, ImportError):
            return
        told = False, error
    for printed in (sys.stdout, sys.stderr):
        printed.flush()
    pickle.dump(told, pipe)
