"""Work in a process of its own in which there is no torch.

transformers imports torch wherever it is installed, also for a tokenizer or a configuration that
need nothing of it: two seconds, and 440 MB that a process never gives back.
"""

import contextlib
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, BinaryIO, TypeVar

from pipeline.base.children import die_with
from pipeline.base.errors import UserError
from pipeline.base.interrupts import SIGNALS

Result = TypeVar("Result")


def without_torch(work: Callable[[], Result]) -> Result:
    """What `work` returns, which can be pickled, from a forked process that cannot import torch.

    Work that fails there for any reason but a UserError is done again here: it may need torch. And
    it is done here at once where torch is there already, or threads that a fork would cut off.
    Raises UserError: as `work`.
    """
    if "torch" in sys.modules or threading.active_count() > 1:
        return work()
    ours, theirs = os.pipe()
    for printed in (sys.stdout, sys.stderr):
        printed.flush()
    parent = os.getpid()
    if not (pid := os.fork()):
        try:
            os.close(ours)
            with os.fdopen(theirs, "wb") as pipe:
                _tell(pipe, work, parent)
        finally:
            os._exit(0)
    os.close(theirs)
    try:
        with os.fdopen(ours, "rb") as pipe:
            told: tuple[bool, Any] = pickle.load(pipe)
    except EOFError:
        return work()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    done, result = told
    if not done:
        raise result
    made: Result = result
    return made


def _tell(pipe: BinaryIO, work: Callable[[], object], parent: int) -> None:
    """Write whether it was done, and what came of it; nothing where it is to be done again."""
    die_with(parent)
    for number in SIGNALS:  # the parent's business, which then kills this process
        signal.signal(number, signal.SIG_IGN)
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
