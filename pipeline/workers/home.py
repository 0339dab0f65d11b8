"""A run folder stays where it is while a command works in it, or the command stops.

Files that are open, or are made by path, do not notice: a folder that was renamed would be made
again in its old place, one that was replaced would get the rows of another run.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bayes_at_n.pipeline.base.atomic import GONE
from bayes_at_n.pipeline.base.errors import UserError

Check = Callable[[], None]  # raises Moved


class Moved(UserError):
    """A run folder was deleted, renamed or replaced while it was at work."""


@contextmanager
def staying(folder: Path, work: str) -> Iterator[Check]:
    """Gives a check that the folder is still the one that it was at the beginning.

    `work` is what is done there, for the message. Raises Moved: by the check, and in place of
    whatever goes wrong because the folder is gone. OSError: there is no such folder.
    """
    handle = os.open(folder, os.O_RDONLY)  # as long as it is open no other gets the same number

    def check() -> None:
        try:
            if os.path.samestat(here, folder.stat()):
                return
        except OSError as error:
            if error.errno not in GONE:
                raise
        raise Moved(
            f"{folder}: was deleted, renamed or replaced while {work} here; stopped, and nothing is"
            " made again in its place. If it was renamed, give the command the new name: what was"
            " finished is kept there; if it was deleted, the same command begins anew"
        )

    try:
        here = os.fstat(handle)
        yield check
    except Exception:
        check()
        raise
    finally:
        os.close(handle)
