"""The attempts to look at first: where grader and verifier part, and ranks are close."""

from typing import Any

import numpy as np
import pyarrow as pa

from bayes_at_n.pipeline.compare.cohort import Cohort, Member
from bayes_at_n.pipeline.compare.leaderboard import scores, title
from bayes_at_n.pipeline.config.analysis import AnalysisConfig
from bayes_at_n.pipeline.display.table import Column, Table
from bayes_at_n.pipeline.store import rowkeys
from bayes_at_n.pipeline.store.graded import read_verdicts
from bayes_at_n.pipeline.store.outcomes import CORRECT, OUTCOMES, OWED, Codes
from bayes_at_n.scoring.numerics.inputs import Floats

MOST = 50


def doubts(cohort: Cohort, cfg: AnalysisConfig) -> Table | None:
    """The attempts whose outcome, if it is wrong, would change the order of models most.

    An attempt of model l at a question with N trials moves avg by 1/(M N), and so the probability
    that l is on the right side of each neighbour in rank by phi(z)/sigma of that. What counts is
    this times the verifier's probability that the grader is wrong. None without verdicts, or with
    one model. Raises UserError: as `leaderboard.scores`.
    """
    doubt = np.zeros(cohort.outcomes.shape)
    for i, member in enumerate(cohort.members if len(cohort.names) > 1 else []):
        doubt[i] = _wrong(member, cohort.outcomes[i])
    graded = cohort.outcomes != OWED
    trials = np.maximum(graded.sum(axis=2, keepdims=True), 1)
    slopes: Any = _slopes(cohort, cfg)
    worth = doubt * graded * slopes[:, None, None] / (trials * cohort.outcomes.shape[1])
    if not worth.any():
        return None
    rows: list[dict[str, Any]] = []
    for at in np.argsort(-worth, axis=None, kind="stable")[:MOST].tolist():
        of = tuple(map(int, np.unravel_index(at, worth.shape)))
        if not worth[of]:
            break
        member = cohort.members[of[0]]
        row = {"model": member.name, "question_id": member.question_ids[of[1]], "trial": of[2]}
        row |= {"outcome": OUTCOMES[cohort.outcomes[of]], "doubt": float(doubt[of])}
        rows.append(row | {"change": float(worth[of])})
    columns = [
        Column("model", "model", align="left"),
        Column("question_id", "question", align="left"),
        Column("trial", "trial"),
        Column("outcome", "outcome", align="left"),
        Column("doubt", "P(it is wrong)", format="{:.4f}"),
        Column("change", "change of P(order)", format="{:.5f}"),
    ]
    notes = [
        "P(it is wrong): by the verifier; change of P(order): what that attempt is expected to move"
        " the probabilities of the model's order to its neighbours",
        "chosen by what the verifier says: labels of these say nothing of all attempts",
    ]
    return Table(title("attempts to look at first", cohort), columns, rows, notes)


def _wrong(member: Member, codes: Codes) -> Floats:
    """The verifier's probability that each outcome (M, N) is wrong; 0 without a verdict."""
    table = read_verdicts(member.run, ["a"], "warn").table
    ids = pa.array(member.question_ids, pa.string())
    values = table["a"].to_numpy().astype(np.float64)
    right = rowkeys.placed(table, ids, values, codes.shape, np.nan)
    wrong = np.where(codes == CORRECT, 1 - right, right)
    return np.asarray(np.nan_to_num(np.clip(wrong, 0, 1)))


def _slopes(cohort: Cohort, cfg: AnalysisConfig) -> Floats:
    """How fast the order of each model to its neighbours in rank changes with its avg: (L,)."""
    scored = scores(cohort, cfg)
    avg, sigma = scored.avg.value[scored.order], scored.avg.sigma[scored.order]
    spread = np.maximum(np.hypot(sigma[1:], sigma[:-1]), 1e-12)
    steep = np.exp(-(((avg[:-1] - avg[1:]) / spread) ** 2) / 2) / spread / np.sqrt(2 * np.pi)
    slopes = np.zeros(len(avg))
    slopes[scored.order] = np.append(steep, 0) + np.append(0, steep)
    return slopes
