"""The errors a user can cause or mend; the command line prints them as one line."""

import difflib
import os
import signal
from collections.abc import Collection

install = 'pip install "bayes-at-n[{}]"'.format  # an optional part, by the name of its extra


class UserError(Exception):
    """Something the user can put right: printed as one line without a traceback."""

    exit_code = 2


class TryAgain(UserError):
    """An engine or a disk that fails: it may work elsewhere, or the next time."""

    exit_code = 1


class Replaced(UserError):
    """A server answers as another model than the one of this run."""


AGAIN = 85  # exit status: saved; start the same command again


class Interrupted(Exception):
    """A stage was asked to stop and did: finished work is kept, and a scheduler starts it again."""

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        in_job = "SLURM_JOB_ID" in os.environ
        by_scheduler = (signal.SIGUSR1, signal.SIGTERM) if in_job else (signal.SIGUSR1,)
        self.exit_code = AGAIN if signal_number in by_scheduler else 128 + signal_number


class DamagedData(Exception):
    """A stage met damaged stored rows and set them aside; they are pending again."""

    exit_code = 1


def one_line(error: BaseException) -> str:
    """Return what an error of a library says, in one line of bounded length.

    >>> one_line(ValueError("no such\\n  key")), one_line(EOFError()), one_line(KeyError("a"))
    ('no such key', 'EOFError', "no 'a'")
    """
    text = " ".join(str(error).split())[:400] or type(error).__name__
    return f"no {text}" if type(error) is KeyError and " " not in text else text


def did_you_mean(name: str, known: Collection[str], most: int = 1, all_are: str = "known:") -> str:
    """Return "did you mean vllm?" for the name vlm; where nothing is near, all that are known."""
    near = difflib.get_close_matches(name, known, n=most)
    return f"did you mean {' or '.join(near)}?" if near else f"{all_are} {', '.join(known)}"
