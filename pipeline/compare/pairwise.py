"""What separates models: adjacent pairs in the order, posterior ranks, attempts that decide it.

All of it is made from avg@N and the paper's sigma, as the ranks of
:mod:`pipeline.compare.leaderboard` are.
"""

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import scipy

from bayes_at_n import scoring
from bayes_at_n.pipeline.compare.cohort import Cohort, Member
from bayes_at_n.pipeline.compare.leaderboard import (
    Columns,
    finished,
    inflation_columns,
    scores,
    title,
)
from bayes_at_n.pipeline.config.analysis import AnalysisConfig
from bayes_at_n.pipeline.display.table import Column, Table, of_columns
from bayes_at_n.pipeline.score.shown import correlation_warning
from bayes_at_n.pipeline.store import rowkeys
from bayes_at_n.pipeline.store.graded import read_verdicts
from bayes_at_n.pipeline.store.outcomes import CORRECT, OUTCOMES, PENDING, Codes
from bayes_at_n.scoring.numerics.inputs import Floats

_ALL_RANKS = 48  # models, up to which the probability of every rank of each has a column
_MOST_GROUPS, _MOST_ATTEMPTS = 100, 50


def adjacent_pairs(cohort: Cohort, cfg: AnalysisConfig) -> Table:
    """Tabulate each two neighbours in order: is the upper one better, and how to settle it.

    The cohort has two models at least.
    """
    scored, matrix = scores(cohort, cfg), cohort.matrix()
    order = scored.order
    value, sigma = scored.avg.value[order], scored.avg.sigma[order]
    names, upper, lower = np.array(cohort.names)[order], matrix[order[:-1]], matrix[order[1:]]
    comparison = scoring.compare_scores(
        value[:-1], sigma[:-1], value[1:], sigma[1:], cfg.scoring.confidence
    )
    luck = scoring.inflation(upper, lower, confidence=cfg.scoring.confidence)
    confidence = float(scipy.special.ndtr(cfg.scoring.z))
    plan = scoring.trials_to_separate(upper, lower, confidence=confidence)
    other_questions = np.full(len(upper), np.nan)
    if matrix.shape[1] > 1:
        other_questions = scoring.paired_questions(upper, lower).probability
    ended, of_ended = (share[order] for share in finished(cohort))
    # Kitagawa (1955): what is left of the gap if both answered what they finish equally well.
    by_truncation = (ended[:-1] - ended[1:]) * (of_ended[:-1] + of_ended[1:]) / 2
    other_head = Column(
        "probability_other_questions", "P, other questions", None, "{:.3f}", short="P other"
    )
    columns: Columns = {
        Column("above", "above", align="left"): names[:-1],
        Column("below", "below", align="left"): names[1:],
        Column("difference", "difference", None, "{:+.3f}", short="diff."): comparison.difference,
        Column("truncation", "by truncation", None, "{:+.3f}", short="trunc."): by_truncation,
        Column("low", "low", None, "{:+.4f}", wide=True): comparison.lo,
        Column("high", "high", None, "{:+.4f}", wide=True): comparison.hi,
        Column("z", "z", "$z$", "{:.2f}"): comparison.z,
        # Rounding may have carried a probability past 0 or 1.
        Column("probability", "P(above better)", None, "{:.3f}", short="P"): (
            np.clip(comparison.probability, 0, 1)
        ),
        other_head: np.clip(other_questions, 0, 1),
        Column("trials", "trials to settle", None, "{:.0f}", short="trials"): plan.trials,
        Column("trials_fewest", "fewest", None, "{:.0f}"): plan.fewest,
        Column("trials_most", "most", None, "{:.0f}"): plan.most,
        **inflation_columns(luck),
    }
    pairs = [f"{a} minus {b}" for a, b in itertools.pairwise(names)]
    notes = [
        "by truncation: the part of the difference that is there because the lower model finishes"
        " fewer of its attempts (at the mean of both models' shares correct of finished ones)",
        "P: the upper model is better on these questions; P other: on a pool they are a sample of",
        f"trials of each model at which z is expected to reach {cfg.scoring.z:g}, with the range"
        " that this run leaves open",
        *correlation_warning(pairs, luck, comparison.sigma, cfg.scoring.confidence),
    ]
    return of_columns(title("order of neighbours", cohort), columns, notes)


def posterior_ranks(cohort: Cohort, cfg: AnalysisConfig) -> Table:
    """Tabulate the posterior of each model's rank; p1, p2, ... of few models are wide columns."""
    scored = scores(cohort, cfg)
    score = scored.avg.value[scored.order], scored.avg.sigma[scored.order]
    chance = scoring.rank_distribution(*score)  # (L, ranks)
    below, tail = np.cumsum(chance, axis=1), (1 - cfg.scoring.confidence) / 2
    losses = scipy.special.ndtr(-scoring.pairwise_z(*score)).sum(axis=1) - 0.5  # without its own
    columns: Columns = {
        Column("model", "model", align="left"): np.array(cohort.names)[scored.order],
        Column("best", "P(best)", None, "{:.3f}"): scoring.probability_best(*score),
        Column("expected", "expected rank", None, "{:.2f}"): 1 + losses,
        Column("from", "from rank"): (below < tail).sum(axis=1) + 1,
        Column("to", "to rank"): (below < 1 - tail - 1e-12).sum(axis=1) + 1,
    }
    for r, share in enumerate(chance.T if len(chance) <= _ALL_RANKS else (), 1):
        columns[Column(f"p{r}", f"P(rank {r})", None, "{:.2f}", wide=True)] = share
    together = [", ".join(group) for group in groups(cohort, cfg) if len(group) > 1]
    notes = [
        f"from and to: the central {cfg.scoring.confidence:.0%} of the posterior of the rank",
        f"cannot be told apart, all pairs |z| < {cfg.scoring.z:g}: {'; '.join(together) or 'none'}"
        + f" (the best {_MOST_GROUPS} groups)" * (len(together) == _MOST_GROUPS),
    ]
    return of_columns(title("posterior ranks", cohort), columns, notes)


def groups(cohort: Cohort, cfg: AnalysisConfig) -> list[list[str]]:
    """Find the largest groups of models of which no two are separated; the best `_MOST_GROUPS`."""
    avg = scores(cohort, cfg).avg
    alike = scoring.indistinguishable_groups(avg.value, avg.sigma, cfg.scoring.z)
    return [[cohort.names[i] for i in group] for group in alike[:_MOST_GROUPS]]


def to_review(cohort: Cohort, cfg: AnalysisConfig) -> Table | None:
    """Tabulate the attempts whose outcome, if it is wrong, would change the order of models most.

    An attempt of model l at a question with N trials moves avg by 1/(M N), and so the probability
    that l is on the right side of each neighbour in rank by phi(z)/sigma of that. What counts is
    this times the verifier's probability that the grader is wrong. None without verdicts, or with
    one model. Raises UserError: as `leaderboard.scores`.
    """
    error = np.zeros(cohort.outcomes.shape)
    for i, member in enumerate(cohort.members if len(cohort.names) > 1 else []):
        error[i] = _error(member, cohort.outcomes[i])
    graded = cohort.outcomes != PENDING
    trials = np.maximum(graded.sum(axis=2, keepdims=True), 1)
    slopes: Any = _slopes(cohort, cfg)
    change = error * graded * slopes[:, None, None] / (trials * cohort.outcomes.shape[1])
    most = np.argsort(-change, axis=None, kind="stable")[:_MOST_ATTEMPTS]
    most = most[change.ravel()[most] > 0]
    if not most.size:
        return None
    models, questions, numbers = np.unravel_index(most, change.shape)
    pairs = zip(models.tolist(), questions.tolist(), strict=True)
    ids = [cohort.members[model].question_ids[question] for model, question in pairs]
    columns: Columns = {
        Column("model", "model", align="left"): [cohort.members[i].name for i in models],
        Column("question_id", "question", align="left"): ids,
        Column("trial", "trial"): numbers,
        Column("outcome", "outcome", align="left"): (
            np.array(OUTCOMES)[cohort.outcomes.ravel()[most]]
        ),
        Column("doubt", "P(it is wrong)", format="{:.4f}"): error.ravel()[most],
        Column("change", "change of P(order)", format="{:.5f}"): change.ravel()[most],
    }
    notes = [
        "P(it is wrong): by the verifier; change of P(order): what that attempt is expected to move"
        " the probabilities of the model's order to its neighbours",
        "chosen by what the verifier says: labels of these say nothing of all attempts",
    ]
    return of_columns(title("attempts to look at first", cohort), columns, notes)


def _error(member: Member, codes: Codes) -> Floats:
    """Read the verifier's probability that each outcome (M, N) is wrong; 0 without a verdict."""
    table = read_verdicts(member.run, ["a"], "warn").table
    ids = pa.array(member.question_ids, pa.string())
    values = table["a"].to_numpy().astype(np.float64)
    right = rowkeys.placed(table, ids, values, codes.shape, np.nan)
    wrong = np.where(codes == CORRECT, 1 - right, right)
    return np.asarray(np.nan_to_num(np.clip(wrong, 0, 1)))


def _slopes(cohort: Cohort, cfg: AnalysisConfig) -> Floats:
    """Return how fast each model's order to its neighbours in rank changes with its avg: (L,)."""
    scored = scores(cohort, cfg)
    avg, sigma = scored.avg.value[scored.order], scored.avg.sigma[scored.order]
    spread = np.maximum(np.hypot(sigma[1:], sigma[:-1]), 1e-12)
    steep = np.exp(-(((avg[:-1] - avg[1:]) / spread) ** 2) / 2) / spread / np.sqrt(2 * np.pi)
    slopes = np.zeros(len(avg))
    slopes[scored.order] = np.append(steep, 0) + np.append(0, steep)
    return slopes
