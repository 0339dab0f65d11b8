"""Work in a forked process: without torch, or within so much processor time and memory.

transformers imports torch wherever it is installed, also for a tokenizer or a configuration that
need nothing of it: two seconds, and 440 MB that a process never gives back.
"""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

from bayes_at_n.pipeline.base.children import SIGNALS, die_with
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.foreign import room

Result = TypeVar("Result")


def without_torch(work: Callable[[], Result]) -> Result:
    """Return what `work` does, which can be pickled, from a process that cannot import torch.

    It is done here where it fails there but for a UserError, where torch is there already, or
    threads that a fork would cut off. Raises UserError: as `work`.
    """

    def hidden() -> Iterator[tuple[bool, Any]]:
        sys.modules["torch"] = None  # type: ignore[assignment]  # so looks what is not installed
        os.environ["TRANSFORMERS_NO_ADVISORY_WARNINGS"] = "1"  # of models that are not available
        try:
            yield True, work()
        except UserError as error:
            if not isinstance(error.__cause__, ImportError):
                yield False, error

    if "torch" in sys.modules or threading.active_count() > 1:
        return work()
    try:
        done, result = next(forked(hidden, 0, 1 << 40))
    except (StopIteration, ChildProcessError):
        return work()
    if not done:
        raise result
    return cast(Result, result)


def forked(work: Callable[[], Iterator[Result]], seconds: float, size: int) -> Iterator[Result]:
    """Yield what `work` does, as it comes, from a forked process, killed if no more is asked.

    It has so many seconds of processor time (0: no limit), and memory as `foreign.room` gives for
    `size` bytes. Raises TimeoutError: the time was up. ChildProcessError: it ended otherwise.
    """
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    parent = os.getpid()

    def child() -> None:
        try:
            ours.close()
            die_with(parent)
            for number in SIGNALS:  # the parent's business, which then kills this process
                signal.signal(number, signal.SIG_IGN)
            signal.setitimer(signal.ITIMER_PROF, seconds)
            with room(size):
                for item in work():
                    sys.stdout.flush()
                    theirs.send((item,))
                theirs.send(())
        finally:
            os._exit(sys.exc_info()[0] is not None)

    sys.stdout.flush()
    process = context.Process(target=child, daemon=True)
    process.start()
    theirs.close()
    try:
        while item := ours.recv():
            yield item[0]
    except (EOFError, OSError) as error:  # the end, perhaps amid an item
        process.join()
        if process.exitcode == -signal.SIGPROF:
            raise TimeoutError(f"more than {seconds:g} s of processor time") from error
        raise ChildProcessError(f"its process ended with status {process.exitcode}") from error
    finally:
        process.kill()
        process.join()
        ours.close()
