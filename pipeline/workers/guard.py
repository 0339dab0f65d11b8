"""A guard that stops a command when its run folder is deleted, renamed or replaced.

Without it, writing by path would recreate a renamed folder at its old path, and add rows to
another run in a replaced one.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bayes_at_n.pipeline.base.atomic import GONE
from bayes_at_n.pipeline.base.errors import UserError

Check = Callable[[], None]  # raises Moved


class Moved(UserError):
    """A run folder was deleted, renamed or replaced while a command worked in it."""


@contextmanager
def unmoved(folder: Path, work: str) -> Iterator[Check]:
    """Yield a check that the folder is still the one that it was on entry.

    `work`: what the command does, for the message. Raises Moved: from the check, and instead of any
    error inside that comes of the folder being gone. OSError: there is no such folder.
    """
    handle = os.open(folder, os.O_RDONLY)  # while it is open no other folder gets the same inode

    def check() -> None:
        try:
            if os.path.samestat(original, folder.stat()):
                return
        except OSError as error:
            if error.errno not in GONE:
                raise
        raise Moved(
            f"{folder}: was deleted, renamed or replaced while {work} in it; stopped, nothing more"
            " is written. If it was renamed, give the command the new name: what was finished is"
            " kept there. If it was deleted, the same command starts over"
        )

    try:
        original = os.fstat(handle)
        yield check
    except Exception:
        check()
        raise
    finally:
        os.close(handle)
