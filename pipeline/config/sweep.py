"""One command over several models, data sets or settings: `run model=a,b dataset=x,y`.

Each combination is a run of its own, in a process of its own, one after the other: a model's memory
is free before the next one loads, and one that fails does not stop the others.
"""

import itertools
import subprocess
import sys

from pipeline.base.console import note, warn
from pipeline.base.errors import UserError
from pipeline.config import overrides
from pipeline.config.settings import RunConfig

MOST = 1000  # combinations; more is a slip of the finger
STOPPED = {130, 143, -2, -15}  # by Ctrl-C or by the system: nothing more is begun


def expand(settings: list[str]) -> list[list[str]]:
    """The settings of every combination, at most 1000, the last setting varying fastest.

    Args:
        settings: KEY=VALUE, where several values are separated by commas as in Hydra; the value of
            a list, lists in brackets and quoted text are one value.

    Raises:
        UserError: more combinations than anybody means.

    >>> expand(["model=a,b", "sampling.trials=8", "rubric=x,y", "scoring.metrics=[bayes,avg]"])
    [['model=a', 'sampling.trials=8', 'rubric=x,y', 'scoring.metrics=[bayes,avg]'], \
['model=b', 'sampling.trials=8', 'rubric=x,y', 'scoring.metrics=[bayes,avg]']]
    """
    choices = []
    for setting in settings:
        if "=" not in setting:  # a folder
            choices.append([setting])
            continue
        key, text = overrides.split(setting)
        parsed = None if overrides.is_list(RunConfig, key) else overrides.parse(key, text)
        if parsed and parsed.is_sweep_override():
            values = itertools.islice(parsed.sweep_string_iterator(), MOST + 1)
            choices.append([f"{key}={value}" for value in values])
        else:
            choices.append([setting])
    combinations = list(itertools.islice(itertools.product(*choices), MOST + 1))
    if len(combinations) > MOST:
        raise UserError(f"these settings make more than {MOST} runs; name fewer values")
    return [list(combination) for combination in combinations]


def run_all(verb: str, combinations: list[list[str]], flags: list[str]) -> int:
    """Run a verb for each combination; returns 0, or the last exit status that is not."""
    sets = [set(combination) for combination in combinations]
    varying = sets[0].union(*sets) - sets[0].intersection(*sets)
    failed: list[str] = []
    status = 0
    for i, settings in enumerate(combinations, 1):
        name = " ".join(s for s in settings if s in varying)
        note(f"{verb} {i} of {len(combinations)}: {name}")
        command = [sys.executable, "-m", "pipeline", verb, *settings, *flags]
        code = subprocess.run(command, check=False).returncode
        if code in STOPPED:
            return code if code > 0 else 128 - code
        if code:
            status = code
            failed.append(name)
    if failed:
        warn(f"{len(failed)} of {len(combinations)} failed: {'; '.join(failed)}")
    return status
