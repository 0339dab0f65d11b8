"""What separates models: the order of neighbours, posterior ranks, groups that are not apart.

All of it is made from avg and its sigma, as the ranks of :mod:`pipeline.cohorts.leaderboard` are.
"""

from typing import Any

import numpy as np
from scipy.special import ndtr

import scoring
from pipeline.cohorts.cohort import Cohort
from pipeline.cohorts.leaderboard import scores, share, title
from pipeline.config.analysis import AnalysisConfig
from pipeline.display.table import Column, Table


def order_of_neighbours(cohort: Cohort, cfg: AnalysisConfig) -> Table:
    """Each two neighbours in the order of avg: is the upper one better, and how to settle it."""
    order, matrix, rows = scores(cohort, cfg).order, cohort.matrix(), list[dict[str, Any]]()
    if len(order) > 1:
        upper, lower = matrix[order[:-1]], matrix[order[1:]]
        level = float(ndtr(cfg.scoring.z))
        here = scoring.compare(upper, lower, confidence=cfg.scoring.confidence)
        plan = scoring.trials_to_separate(upper, lower, confidence=level)
        several = matrix.shape[1] > 1
        elsewhere = scoring.paired_questions(upper, lower).probability if several else None
        for i, (a, b) in enumerate(zip(order[:-1].tolist(), order[1:].tolist(), strict=True)):
            rows.append(
                {
                    "above": cohort.names[a],
                    "below": cohort.names[b],
                    "difference": float(here.difference[i]),
                    "low": float(here.lo[i]),
                    "high": float(here.hi[i]),
                    "z": float(here.z[i]),
                    "probability": share(here.probability[i]),
                    "probability_other_questions": (
                        None if elsewhere is None else share(elsewhere[i])
                    ),
                    "trials": float(plan.trials[i]),
                    "trials_fewest": float(plan.fewest[i]),
                    "trials_most": float(plan.most[i]),
                }
            )
    columns = [
        Column("above", "above", align="left"),
        Column("below", "below", align="left"),
        Column("difference", "difference", None, "{:+.4f}", short="diff."),
        Column("low", "low", None, "{:+.4f}", wide=True),
        Column("high", "high", None, "{:+.4f}", wide=True),
        Column("z", "z", "$z$", "{:.2f}"),
        Column("probability", "P(above better)", None, "{:.3f}", short="P"),
        Column(
            "probability_other_questions", "P, other questions", None, "{:.3f}", short="P other"
        ),
        Column("trials", "trials to settle", None, "{:.0f}", short="trials"),
        Column("trials_fewest", "fewest", None, "{:.0f}"),
        Column("trials_most", "most", None, "{:.0f}"),
    ]
    notes = [
        "P: the upper model is better on these questions; P other: on a pool they are a sample of",
        f"trials of each model at which z is expected to reach {cfg.scoring.z:g}, with the range"
        " that this run leaves open",
    ]
    return Table(title("order of neighbours", cohort), columns, rows, notes)


def posterior_ranks(cohort: Cohort, cfg: AnalysisConfig) -> Table:
    """The posterior distribution of each model's rank; the columns p1, p2, ... are wide."""
    of = scores(cohort, cfg)
    chance = scoring.rank_distribution(of.avg.value, of.avg.sigma)  # (L, ranks)
    tail = (1 - cfg.scoring.confidence) / 2
    rows = []
    for i in of.order.tolist():
        below = np.cumsum(chance[i])
        rows.append(
            {
                "model": cohort.names[i],
                "best": share(chance[i, 0]),
                "expected": float(chance[i] @ np.arange(1, len(below) + 1)),
                "from": int((below < tail).sum()) + 1,
                "to": int((below < 1 - tail - 1e-12).sum()) + 1,
                **{f"p{r + 1}": share(p) for r, p in enumerate(chance[i])},
            }
        )
    columns = [
        Column("model", "model", align="left"),
        Column("best", "P(best)", None, "{:.3f}"),
        Column("expected", "expected rank", None, "{:.2f}"),
        Column("from", "from rank"),
        Column("to", "to rank"),
        *(
            Column(f"p{r}", f"P(rank {r})", None, "{:.4f}", wide=True)
            for r in range(1, len(rows) + 1)
        ),
    ]
    together = [", ".join(group) for group in groups(cohort, cfg) if len(group) > 1]
    notes = [
        f"from and to: the central {cfg.scoring.confidence:.0%} of the posterior of the rank",
        f"cannot be told apart, all pairs |z| < {cfg.scoring.z:g}: {'; '.join(together) or 'none'}",
    ]
    return Table(title("posterior ranks", cohort), columns, rows, notes)


def groups(cohort: Cohort, cfg: AnalysisConfig) -> list[list[str]]:
    """The largest groups of models no two of which can be told apart (|z| under `scoring.z`)."""
    avg = scores(cohort, cfg).avg
    alike = scoring.indistinguishable_groups(avg.value, avg.sigma, cfg.scoring.z)
    return [[cohort.names[i] for i in group] for group in alike]
