"""What votes are counted from: the answers of a run's attempts, and scores of theirs."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.grade import classes
from bayes_at_n.pipeline.rubrics import signals
from bayes_at_n.pipeline.store import rowkeys
from bayes_at_n.pipeline.store.outcomes import PENDING
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.scoring.metrics.metric import ANSWERS, CONFIDENCE, VERIFIER, Metric

_SIGNALS = {CONFIDENCE: ("completion_bpt", "log-probs"), VERIFIER: ("a", "verdict")}


class Evidence(NamedTuple):
    """What votes of a run are made from: arrays (M, N), by the names that metrics have."""

    arrays: dict[str, Any]  # "answers", masked where pending, and scores
    lacking: dict[str, str]  # why others are not there


NOTHING = Evidence({}, {ANSWERS: "no run, so no answers"})


def read(run: Run, question_ids: Sequence[str]) -> Evidence:
    """Read the answers of these questions, and the scores that all attempts with an answer have.

    The confidence of an attempt is the geometric mean of the probabilities of its tokens, 2 to the
    power of minus its bits per token; the verifier's score is its calibrated P(A).
    """
    try:
        found = classes.classes_of(run)
    except UserError as error:
        return Evidence({}, {ANSWERS: str(error)})
    ids = pa.array(question_ids, pa.string())
    rows = pc.index_in(ids, rowkeys.question_ids(run)).to_numpy()
    answers: Any = np.ma.masked_equal(found[rows], PENDING)  # type: ignore[no-untyped-call]
    evidence = Evidence({ANSWERS: answers}, {})
    try:
        table = signals.read(run)
    except UserError as error:
        return evidence._replace(lacking=dict.fromkeys(_SIGNALS, str(error)))
    for name, (signal, noun) in _SIGNALS.items():
        values = table[signal].to_numpy().astype(np.float64)
        scores = rowkeys.placed(table, ids, values, answers.shape, np.nan)
        if lost := int((np.isnan(scores) & (answers.filled(PENDING) > classes.NONE)).sum()):
            evidence.lacking[name] = f"{run.path}: {lost} attempts with an answer have no {noun}"
        else:
            evidence.arrays[name] = np.exp2(-scores) if name == CONFIDENCE else scores
    return evidence


def left_out(metrics: Sequence[Metric], evidence: Evidence) -> dict[str, str]:
    """Say why metrics cannot be made of the evidence, by their names; nothing of the others."""
    whys = evidence.lacking
    return {m.name: whys[name] for m in metrics for name in m.of[::-1] if name in whys}
