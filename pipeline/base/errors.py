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
    """A stage was asked to stop and did: finished work is kept.

    The exit status is 128 plus the signal's number, or `AGAIN` where a scheduler asks.
    """

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        by_scheduler = signal_number == signal.SIGUSR1 or (
            signal_number == signal.SIGTERM and "SLURM_JOB_ID" in os.environ
        )
        self.exit_code = AGAIN if by_scheduler else 128 + signal_number


class DamagedData(Exception):
    """A stage met damaged stored rows and set them aside; they are owed again."""

    exit_code = 1


def one_line(error: BaseException) -> str:
    """Return what an error of a library says, in one line of bounded length.

    >>> one_line(ValueError("no such\\n  key")), one_line(KeyboardInterrupt())
    ('no such key', 'KeyboardInterrupt')
    >>> one_line(KeyError("score"))
    "no 'score'"
    """
    text = " ".join(str(error).split())[:400] or type(error).__name__
    return f"no {text}" if type(error) is KeyError and " " not in text else text


def did_you_mean(name: str, known: Collection[str], most: int = 1, all_are: str = "known:") -> str:
    """Say what a name that there is not may have meant; where nothing is near, all there are.

    >>> did_you_mean("vlm", ["vllm", "transformers"]), did_you_mean("x", ["a", "b"])
    ('did you mean vllm?', 'known: a, b')
    """
    near = difflib.get_close_matches(name, known, n=most)
    return f"did you mean {' or '.join(near)}?" if near else f"{all_are} {', '.join(known)}"
