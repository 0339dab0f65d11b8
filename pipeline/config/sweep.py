"""Many runs by one command, `run model=a,b dataset=x,y`: a process for each, one after the other.

A model's memory is free before the next one loads, and a run that fails does not stop the others.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from bayes_at_n.pipeline.base import children
from bayes_at_n.pipeline.base.console import SAYS, note, warn
from bayes_at_n.pipeline.base.engines import kind
from bayes_at_n.pipeline.base.errors import AGAIN, UserError
from bayes_at_n.pipeline.config.settings import RunConfig

PROGRAM = [sys.executable, "-m", "bayes_at_n"]
STOPPED = {130, 143, AGAIN}  # by Ctrl-C or by the system: nothing more is begun


class Unfinished(UserError):
    """Runs failed or were stopped; the command exits as the last of them did."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.exit_code = status


def by_engine(configs: Sequence[RunConfig]) -> list[list[RunConfig]]:
    """Group runs by the engine that can sample them; those of a server and tracked ones alone."""
    groups: dict[str, list[RunConfig]] = {}
    for cfg in configs:
        alone = kind(cfg.engine.name).served or cfg.track.to
        key = cfg.run_dir if alone else repr((cfg.model, cfg.engine, cfg.cluster.address))
        groups.setdefault(key, []).append(cfg)
    return [*groups.values()]


def run_all(verb: str, combinations: list[list[str]], flags: Sequence[str] = ()) -> int:
    """Run a verb for each combination; return the worst exit status, or at once that of a stop."""
    common = set.intersection(*map(set, combinations))
    failed: dict[str, int] = {}
    for i, settings in enumerate(combinations, 1):
        name = " ".join(setting for setting in settings if setting not in common)
        note(f"{verb} {i} of {len(combinations)}: {name}")
        env = os.environ | {SAYS: f"{os.environ.get(SAYS, '')} several"}
        status = child([*PROGRAM, verb, *settings, *flags], stdout=None, env=env)
        if status in STOPPED:
            return status
        if status:
            failed[name] = status
    if failed:
        warn(f"{len(failed)} of {len(combinations)} failed: {'; '.join(failed)}")
    return max(failed.values(), default=0)


def child(command: Sequence[str], stdout: int | None = subprocess.DEVNULL, **options: Any) -> int:
    """Run a command to its end; return its exit status, 128 + n of signal n.

    A terminal's Ctrl-C reaches the child, too; what is sent to this process alone is passed on.
    The status is that of a stop where one was asked for, even if the child was just done.
    """
    with subprocess.Popen(command, stdout=stdout, **options) as child:
        [status] = watched([child], (child.wait() for _ in range(1)))
    return status


def watched(processes: "Sequence[subprocess.Popen[Any]]", ends: Iterable[int]) -> list[int]:
    """Wait for the exit statuses of what children do; signals are treated as by `child`."""
    asked: list[int] = []

    def heard(number: int, _: Any) -> None:
        asked.append(number)
        for process in {*processes} if number != signal.SIGINT else ():
            process.send_signal(number)

    with children.handled_by(heard):
        statuses = [status if status >= 0 else 128 - status for status in ends]
    if asked:
        stop = AGAIN if asked[-1] == signal.SIGUSR1 else 128 + asked[-1]
        return [status if status in STOPPED else stop for status in statuses]
    return statuses
