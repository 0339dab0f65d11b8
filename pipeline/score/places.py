"""Position bias of multiple choice: the accuracy by where the gold answer stood in the prompt."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from bayes_at_n import scoring
from bayes_at_n.pipeline.store import options
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.verifiers import LETTERS


def accuracy(run: Run, matrix: Any, level: float) -> dict[str, dict[str, float]]:
    """The average of the (M, N) outcomes where the gold answer stood at A, at B, ...

    Empty without options. Intervals take questions as a sample (`scoring.clustered_ci`): without
    `prompt.shuffle=trial` each place has questions of its own. Places of fewer than two are left
    out.
    """
    if not all(row["choices"] for row in run.questions):
        return {}
    golds = [
        [LETTERS.index(options.as_shown(run.cfg, row, t)["gold"]) for t in range(matrix.shape[1])]
        for row in run.questions
    ]
    found = {}
    for place in range(np.max(golds) + 1):
        mask = np.ma.getmaskarray(matrix) | (np.array(golds) != place)  # type: ignore[no-untyped-call]
        here: Any = np.ma.masked_where(mask, matrix)  # type: ignore[no-untyped-call]
        here = here[~mask.all(axis=1)]
        if len(here) >= 2:
            mean, sigma, low, high = scoring.clustered_ci(here, confidence=level)
            parts = {"mean": mean, "sigma": sigma, "low": max(0.0, low), "high": min(1.0, high)}
            found[LETTERS[place]] = parts | {"questions": len(here), "attempts": int((~mask).sum())}
    return found


def told(places: Mapping[str, Mapping[str, float]]) -> str:
    """The same in a line.

    >>> told({"A": {"mean": 0.5, "low": 0.4, "high": 0.6}})
    "accuracy by the gold answer's place: A 0.500 (0.400 to 0.600)"
    """
    parts = (f"{k} {v['mean']:.3f} ({v['low']:.3f} to {v['high']:.3f})" for k, v in places.items())
    return f"accuracy by the gold answer's place: {', '.join(parts)}"
