"""The errors that a user can cause or fix; the command line prints them on one line."""

import difflib
import os
import signal
from collections.abc import Collection

install = 'pip install "bayes-at-n[{}]"'.format  # command for an extra, by its name


class UserError(Exception):
    """An error that the user can fix, printed on one line without a traceback."""

    exit_code = 2


class TryAgain(UserError):
    """A failure, of an engine or a disk, that may pass or not occur elsewhere."""

    exit_code = 1


class Replaced(UserError):
    """A server has another model than this run's."""


AGAIN = 85  # exit status: work is saved, start the same command again


class Interrupted(Exception):
    """A stage stopped on a signal; finished work is kept, and a scheduler may start it again."""

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        in_job = "SLURM_JOB_ID" in os.environ
        by_scheduler = (signal.SIGUSR1, signal.SIGTERM) if in_job else (signal.SIGUSR1,)
        self.exit_code = AGAIN if signal_number in by_scheduler else 128 + signal_number


class DamagedData(Exception):
    """A stage found damaged rows and set them aside; they are pending again."""

    exit_code = 1


def one_line(error: BaseException) -> str:
    """Return an error's message on one line of bounded length.

    >>> one_line(ValueError("no such\\n  key")), one_line(EOFError()), one_line(KeyError("a"))
    ('no such key', 'EOFError', "no 'a'")
    >>> one_line(FileNotFoundError(2, "No such file or directory", "a.json"))
    "No such file or directory: 'a.json'"
    """
    text = " ".join(str(error).split())[:400] or type(error).__name__
    text = text.removeprefix(f"[Errno {getattr(error, 'errno', None)}] ")
    if mark := getattr(error, "problem_mark", None):  # of YAML
        where = f"{mark.name}, line" if mark.name[0] != "<" else "line"
        return f"{where} {mark.line + 1}: not valid YAML ({getattr(error, 'problem', '')})"
    return f"no {text}" if type(error) is KeyError and " " not in text else text


def did_you_mean(name: str, known: Collection[str], most: int = 1, all_are: str = "known:") -> str:
    """Return a hint such as "did you mean vllm?"; if nothing is similar, all `known` names."""
    similar = difflib.get_close_matches(name, known, n=most)
    return f"did you mean {' or '.join(similar)}?" if similar else f"{all_are} {', '.join(known)}"
