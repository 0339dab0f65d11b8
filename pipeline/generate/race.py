"""How many trials of each question a race allows a run, as `settle` raises it while it samples.

The file of a race holds for each run how many trials it needs, and how many an idle worker may
begin; 0: the model has left. Of a bank it also lists the questions, of judgements their trials.
"""

from pathlib import Path

from bayes_at_n.pipeline.store import runfolder
from bayes_at_n.pipeline.store.runfolder import Run


def trials(run: Run, idle: bool = False, before: int = 0) -> int:
    """Return how many trials of each question may begin now; `before` if the file is missing."""
    if run.cfg.race is None:
        return run.cfg.sampling.trials
    if (limits := runfolder.read_json(Path(run.cfg.race)).get(str(run.path))) is None:
        return before  # a file server may not show a file while it is being replaced
    return min(run.cfg.sampling.trials, int(limits[idle]))


def allowed(run: Run, keys: list[tuple[str, int]], most: int) -> list[tuple[str, int]]:
    """Keep the keys of the first trials, at most so many, and of the questions that are listed."""
    limits = runfolder.read_json(Path(run.cfg.race)).get(str(run.path)) if run.cfg.race else None
    if not limits or len(limits) < 3:
        return [key for key in keys if key[1] < most]
    each = limits[2] if isinstance(limits[2], dict) else dict.fromkeys(limits[2], most)
    return [key for key in keys if key[1] < min(most, each.get(key[0], 0))]


def pending(run: Run) -> list[tuple[str, int]]:
    """Return the keys that may be sampled now and have no finished attempt."""
    return allowed(run, runfolder.pending(run), trials(run))
