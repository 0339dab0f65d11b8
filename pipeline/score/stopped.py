"""What to say, and what may be read, where outcomes decided how many trials there are."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from bayes_at_n.pipeline.base.console import percent
from bayes_at_n.pipeline.store import runfolder
from bayes_at_n.pipeline.store.runfolder import Run

KEY = "stopped"  # in the manifest, as `settle` left it


def of(run: Run) -> dict[str, Any] | None:
    """How a run's sampling was stopped; None where it was not, or with other trials than now."""
    how = runfolder.read_json(run.manifest).get(KEY)
    same = isinstance(how, dict) and how.get("trials") == run.cfg.sampling.trials
    return how if same else None


def estimate(how: Mapping[str, Any], matrix: Any, confidence: float) -> dict[str, Any]:
    """How it was stopped, with the mean of rounds and an interval that holds whenever it was.

    `matrix` holds outcomes of M questions, (M, N), masked where owed: the first trials without a
    gap are rounds.
    """
    from bayes_at_n.scoring.sequential import MeanSequence  # Numba takes a third of a second

    codes = np.ma.filled(matrix, -1)
    rounds = int((codes >= 0).all(axis=0).cumprod().sum())
    sequence = MeanSequence(len(codes), confidence)
    for trial in range(rounds):
        sequence.add(codes[:, trial].astype(np.int64), np.ones(len(codes), np.int64))
    low, high = sequence.interval()
    return {**how, "rounds": rounds, "mean": sequence.mean, "low": low, "high": high}


def lines(found: Mapping[str, Mapping[str, Any]], confidence: float) -> list[str]:
    """What to say of runs that were stopped, by name; nothing where none was."""
    if not found:
        return []
    kinds = ", ".join(dict.fromkeys(f"until={how.get('until')}" for how in found.values()))
    read = ", ".join(
        f"{how['mean']:.4f} ({how['low']:.4f} to {how['high']:.4f})"
        + f" of {name}" * (len(found) > 1)
        for name, how in found.items()
    )
    its = "its" if len(found) == 1 else "their"
    return [
        f"trials of {', '.join(found)} depend on {its} outcomes ({kinds}): read the mean of rounds,"
        f" {read}, whose {percent(confidence)} sequence holds whenever one stops. Bayes@N is a"
        " posterior that does not know why sampling stopped; every other interval, z and rank is"
        " for a number of trials that was fixed before, and nothing may be pooled over trials"
    ]
