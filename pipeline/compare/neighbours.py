"""What separates models: the order of neighbours, posterior ranks, groups that are not apart.

All of it is made from the headline and its sigma, as the ranks of
:mod:`pipeline.compare.leaderboard` are.
"""

import itertools

import numpy as np
import numpy.typing as npt
import scipy

from bayes_at_n import scoring
from bayes_at_n.pipeline.compare.cohort import Cohort
from bayes_at_n.pipeline.compare.leaderboard import finished, inflation_columns, scores, title
from bayes_at_n.pipeline.config.analysis import AnalysisConfig
from bayes_at_n.pipeline.display.table import Column, Table, of_columns
from bayes_at_n.pipeline.score.shown import shared_luck

_ALL_RANKS = 48  # models, up to which the probability of every rank of each has a column
MOST_GROUPS = 100


def order_of_neighbours(cohort: Cohort, cfg: AnalysisConfig) -> Table:
    """Each two neighbours in order: is the upper one better, and how to settle it.

    The cohort has two models at least.
    """
    scored, matrix = scores(cohort, cfg), cohort.matrix()
    order = scored.order
    value, sigma = scored.headline.value[order], scored.headline.sigma[order]
    names, upper, lower = np.array(cohort.names)[order], matrix[order[:-1]], matrix[order[1:]]
    comparison = scoring.compare_scores(
        value[:-1], sigma[:-1], value[1:], sigma[1:], cfg.scoring.confidence
    )
    luck = scoring.inflation(upper, lower, confidence=cfg.scoring.confidence)
    asked = float(scipy.special.ndtr(cfg.scoring.z))
    plan = scoring.trials_to_separate(upper, lower, confidence=asked)
    other_questions = np.full(len(upper), np.nan)
    if matrix.shape[1] > 1:
        other_questions = scoring.paired_questions(upper, lower).probability
    ended, of_ended = (share[order] for share in finished(cohort))
    columns: dict[Column, npt.ArrayLike] = {
        Column("above", "above", align="left"): names[:-1],
        Column("below", "below", align="left"): names[1:],
        Column("difference", "difference", None, "{:+.3f}", short="diff."): comparison.difference,
        # Kitagawa (1955): what is left of the gap if both answered what they finish equally well.
        Column("truncation", "by truncation", None, "{:+.3f}", short="trunc."): (
            (ended[:-1] - ended[1:]) * (of_ended[:-1] + of_ended[1:]) / 2
        ),
        Column("low", "low", None, "{:+.4f}", wide=True): comparison.lo,
        Column("high", "high", None, "{:+.4f}", wide=True): comparison.hi,
        Column("z", "z", "$z$", "{:.2f}"): comparison.z,
        # Rounding may have carried a probability past 0 or 1.
        Column("probability", "P(above better)", None, "{:.3f}", short="P"): (
            np.clip(comparison.probability, 0, 1)
        ),
        Column(
            "probability_other_questions", "P, other questions", None, "{:.3f}", short="P other"
        ): np.clip(other_questions, 0, 1),
        Column("trials", "trials to settle", None, "{:.0f}", short="trials"): plan.trials,
        Column("trials_fewest", "fewest", None, "{:.0f}"): plan.fewest,
        Column("trials_most", "most", None, "{:.0f}"): plan.most,
        **inflation_columns(luck),
    }
    notes = [
        "by truncation: the part of the difference that is there because the lower model finishes"
        " fewer of its attempts (at the mean of both models' shares correct of finished ones)",
        "P: the upper model is better on these questions; P other: on a pool they are a sample of",
        f"trials of each model at which z is expected to reach {cfg.scoring.z:g}, with the range"
        " that this run leaves open",
        *shared_luck(
            [f"{a} minus {b}" for a, b in itertools.pairwise(names)],
            luck,
            comparison.sigma,
            cfg.scoring.confidence,
        ),
    ]
    return of_columns(title("order of neighbours", cohort), columns, notes)


def posterior_ranks(cohort: Cohort, cfg: AnalysisConfig) -> Table:
    """The posterior of each model's rank; the columns p1, p2, ... of few models are wide."""
    scored = scores(cohort, cfg)
    score = scored.headline.value[scored.order], scored.headline.sigma[scored.order]
    chance = scoring.rank_distribution(*score)  # (L, ranks)
    below, tail = np.cumsum(chance, axis=1), (1 - cfg.scoring.confidence) / 2
    losses = scipy.special.ndtr(-scoring.pairwise_z(*score)).sum(axis=1) - 0.5  # without its own
    columns: dict[Column, npt.ArrayLike] = {
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
        + f" (the best {MOST_GROUPS} groups)" * (len(together) == MOST_GROUPS),
    ]
    return of_columns(title("posterior ranks", cohort), columns, notes)


def groups(cohort: Cohort, cfg: AnalysisConfig) -> list[list[str]]:
    """The largest groups of models no two of which can be told apart; the best `MOST_GROUPS`."""
    first = scores(cohort, cfg).headline
    alike = scoring.indistinguishable_groups(first.value, first.sigma, cfg.scoring.z)
    return [[cohort.names[i] for i in group] for group in alike[:MOST_GROUPS]]
