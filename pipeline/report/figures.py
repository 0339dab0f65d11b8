"""The figures of one data set, as inline SVG with their captions."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy
from markupsafe import Markup

from pipeline.cohorts import rubrics as cohort_rubrics
from pipeline.cohorts.cohort import Cohort
from pipeline.display import style
from pipeline.display.table import Table
from pipeline.plots import bars, calibration, caps, leaderboard
from pipeline.plots import convergence as convergence_plots
from pipeline.report.attempts import Categories
from pipeline.report.data import Lengths
from pipeline.research.studies import shared
from pipeline.store.outcomes import OWED
from pipeline.verify import quality
from scoring.studies import convergence

REPLICATES = 2_000  # of the bootstrap: to look at, not to publish; `study` takes more
MOST_TRIALS = (
    500  # with more of them the bootstrap, whose time grows with their square, is left out
)
POINTS = 1_000  # of a line of ranks

Figures = Iterator[dict[str, Any]]


def figures(
    cohort: Cohort,
    tables: Mapping[str, Table],
    lengths: Sequence[Lengths],
    labelled: list[str],
    rubrics: Categories,
) -> Figures:
    """All figures that the data set has the data for, each with `svg`, `caption` and `group`.

    `tables` are those of the page, `lengths` one pair a model, and `rubrics` what
    :func:`pipeline.cohorts.rubrics.categories` returned for the `labelled` models, in their order.
    """
    rows = [row for row in tables["leaderboard"].rows if row.get("mu") is not None]
    names, mu, low, high = ([row[key] for row in rows] for key in ("model", "mu", "low", "high"))
    yield figure(leaderboard.forest(names, mu, low, high), "Bayes@N with its interval.")
    if "caps" in tables:
        drawn = caps.by_cap(tables["caps"].rows)
        yield figure(drawn, "The same attempts under smaller limits, and what they cost then.")
    matrix = cohort.matrix()
    complete = (cohort.outcomes != OWED).all() and matrix.shape[2] > 1
    if len(cohort.names) > 1 and complete:
        yield from _settling(cohort.names, matrix.filled(0))
    correct, wrong = np.array(lengths).reshape(-1, 2).T
    if np.isfinite([*correct, *wrong]).any():
        share = matrix.mean(axis=(1, 2))
        drawn = leaderboard.tokens_against_correctness(cohort.names, correct, wrong, share)
        yield figure(drawn, "Mean completion tokens of correct and of wrong attempts.")
    calibrated = quality.pooled([member.run for member in cohort.members])
    if calibrated is not None:
        drawn = calibration.reliability("", calibrated)
        many = f"{calibrated['attempts']:,} graded attempts"
        yield figure(drawn, f"The verifier's P(A) against the grader, {many} of all models.")
    yield from _rubrics(labelled, rubrics)


def _settling(names: list[str], outcomes: npt.NDArray[np.int8]) -> Figures:
    """Does the ranking settle, and how many trials does it need?"""
    n, ranks, settled = trajectories(outcomes)
    end = f" They do not change from n = {settled} on." if settled else ""
    some = np.arange(len(n))[:: -max(1, len(n) // POINTS)][::-1]  # with the last
    drawn = leaderboard.rank_trajectories(names, [n[i] for i in some], ranks[:, some], settled)
    if len(n) > MOST_TRIALS:
        end += f" No bootstrap was made of more than {MOST_TRIALS} trials."
    yield figure(drawn, f"Ranks by Bayes@n after the first n trials.{end}")
    if len(n) > MOST_TRIALS:
        return
    metrics = shared.showcase(len(n))
    stack = outcomes.astype(np.uint8)
    curves = convergence.tau_curve(stack, metrics, REPLICATES)
    drawn = convergence_plots.tau_curves(n, {c.label: c.tau for c in curves})
    many = f"{REPLICATES:,} bootstrap replicates"
    gold = "the ranking by Bayes@N of all trials"
    yield figure(drawn, f"Kendall's tau of rankings by n trials with {gold}; {many}.")
    at = convergence.convergence_at(stack, metrics, REPLICATES)
    masses = {c.label: c.pmf for c in at}
    drawn = convergence_plots.pmf(n, masses)
    yield figure(drawn, f"Trials from which on the ranking is {gold}; {many}.")
    yield figure(convergence_plots.cdf(n, masses), "The same, cumulated.")


def _rubrics(models: list[str], rubrics: Categories) -> Figures:
    counted = [(rubric, cohort_rubrics.counts(rubric, codes)) for rubric, codes in rubrics.values()]
    ranks = {rubric.name: cohort_rubrics.ranks(rubric, counts) for rubric, counts in counted}
    known = {name: places for name, places in ranks.items() if places is not None}
    if len(models) > 1 and len(known) > 1:
        drawn = leaderboard.rank_lines([*known], models, np.stack([*known.values()], axis=1))
        yield figure(drawn, "Ranks by the mean weight under each rubric.")
    for rubric, counts in counted:
        names = [f"{c.index} {c.name.replace('_', ' ')}" for c in rubric.categories]
        drawn = bars.category_shares(
            rubric.name, names, counts.sum(axis=1), rubric.weights, models, "model, from best"
        )
        yield figure(drawn, rubric.description, "Categories of every rubric")


def trajectories(outcomes: npt.NDArray[np.int8]) -> tuple[list[int], npt.NDArray[Any], int | None]:
    """Competition ranks by Bayes@n as trials are added, all of them graded.

    `outcomes`: 1 correct, 0 not; shape (L, M, N). Returns n (N), ranks (L, N), and the first n from
    which on ranks stay as they are at N; None when that is N itself.

    >>> trajectories(np.array([[[1, 1, 1]], [[1, 0, 0]]]))[1:]
    (array([[1, 1, 1],
           [1, 2, 2]]), 2)
    """
    # With equal n for all questions the order by Bayes@n is the order by the number of correct.
    correct = outcomes.sum(axis=1, dtype=np.int64).cumsum(axis=1)
    ranks = scipy.stats.rankdata(-correct, method="min", axis=0).astype(int)
    trials = ranks.shape[1]
    other = np.flatnonzero((ranks != ranks[:, -1:]).any(axis=0))
    settled = 1 if not other.size else int(other[-1]) + 2
    return list(range(1, trials + 1)), ranks, settled if settled < trials else None


def figure(drawn: Any, caption: str, group: str = "") -> dict[str, Any]:
    """A figure as the page takes it."""
    return {"svg": Markup(style.svg(drawn)), "caption": caption, "group": group}
