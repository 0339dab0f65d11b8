"""One command over several models, data sets or settings: `run model=a,b dataset=x,y`.

Each combination is a run of its own, in a process of its own, one after the other: a model's memory
is free before the next one loads, and one that fails does not stop the others.
"""

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bayes_at_n.pipeline.base import children
from bayes_at_n.pipeline.base.console import SAYS, note, warn
from bayes_at_n.pipeline.base.errors import AGAIN, UserError
from bayes_at_n.pipeline.config import compose, overrides
from bayes_at_n.pipeline.config.settings import RunConfig

MOST = 1000  # combinations; more is a slip of the finger
STOPPED = {130, 143, -2, -15}  # by Ctrl-C or by the system: nothing more is begun


class Unfinished(UserError):
    """Runs failed or were stopped; the command exits as the last of them did."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.exit_code = status if status > 0 else 128 - status


def expand(settings: Sequence[str], kind: Any = RunConfig) -> list[list[str]]:
    """The settings of every combination, at most 1000, the last setting varying fastest.

    Raises UserError: more combinations than anybody means, or what cannot be enumerated.

    >>> expand(["model=demo,limo-v2", "sampling.trials=8", "scoring.metrics=[avg,bayes]"])
    [['model=demo', 'sampling.trials=8', 'scoring.metrics=[avg,bayes]'], \
['model=limo-v2', 'sampling.trials=8', 'scoring.metrics=[avg,bayes]']]
    """
    lists = []
    for setting in settings:
        override = None if overrides.is_folder(setting) else overrides.parse(setting)
        if override is None or not override.is_sweep_override():
            lists.append([setting])
            continue
        if not override.is_discrete_sweep():
            raise UserError(
                f"{setting}: cannot be counted out; write range(FIRST,END,STEP), or values"
            )
        if "glob(" in setting:
            override.config_loader = compose.repository_of(kind, compose.searchpath_of(settings))  # type: ignore[assignment]
        try:
            values = [*itertools.islice(override.sweep_string_iterator(), MOST + 1)]
        except ValueError as error:
            raise UserError(f"{setting}: {error}") from error
        if not values:
            raise UserError(f"{setting}: matches nothing")
        lists.append([f"{override.get_key_element()}={value}" for value in values])
    combinations = list(itertools.islice(itertools.product(*lists), MOST + 1))
    if len(combinations) > MOST:
        raise UserError(f"these settings make more than {MOST} runs; name fewer values")
    return [list(combination) for combination in combinations]


def run_all(verb: str, combinations: list[list[str]], flags: list[str]) -> int:
    """Run a verb for each combination; returns the worst exit status, or at once that of a stop."""
    sets = [set(combination) for combination in combinations]
    varying = sets[0].union(*sets) - sets[0].intersection(*sets)
    failed: dict[str, int] = {}
    for i, settings in enumerate(combinations, 1):
        name = " ".join(s for s in settings if s in varying)
        note(f"{verb} {i} of {len(combinations)}: {name}")
        command = [sys.executable, "-m", "bayes_at_n", verb, *settings, *flags]
        env = os.environ | {SAYS: f"{os.environ.get(SAYS, '')} several"}
        code = child(command, stdout=None, env=env)
        if code in STOPPED or code == AGAIN:
            return code if code > 0 else 128 - code
        if code:
            failed[name] = code if code > 0 else 128 - code
    if failed:
        warn(f"{len(failed)} of {len(combinations)} failed: {'; '.join(failed)}")
    return max(failed.values(), default=0)


def run(folder: Path, settings: Sequence[str]) -> int:
    """Run the stages that settings say, in a process of its own; its exit status.

    Raises Unfinished: it was stopped.
    """
    status = child([sys.executable, "-m", "bayes_at_n", "run", *settings])
    if status in STOPPED or status == AGAIN:
        raise Unfinished(
            f"stopped at {folder}; what is finished is kept, the same command continues", status
        )
    return status


def child(command: Sequence[str], stdout: int | None = subprocess.DEVNULL, **options: Any) -> int:
    """Run a command to its end; its tables are not printed, what it tells is.

    A terminal's Ctrl-C reaches the child, too, which ends in good order: this process waits for it.
    What is sent to this process alone is passed on. Returns its exit status; that of a stop where
    one was asked for, even if the child was just done.
    """
    asked: list[int] = []
    with subprocess.Popen(command, stdout=stdout, **options) as child:

        def heard(number: int, _: Any) -> None:
            asked.append(number)
            if number != signal.SIGINT:
                child.send_signal(number)

        with children.handled_by(heard):
            status = child.wait()
    if asked and status not in STOPPED and status != AGAIN:
        return AGAIN if asked[-1] == signal.SIGUSR1 else 128 + asked[-1]
    return status
