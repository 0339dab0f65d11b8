"""The figures of one data set, as inline SVG with their captions."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy
from markupsafe import Markup

from bayes_at_n.pipeline.compare.cohort import Cohort
from bayes_at_n.pipeline.compare.leaderboard import HEADLINE
from bayes_at_n.pipeline.display import style
from bayes_at_n.pipeline.display.table import Table
from bayes_at_n.pipeline.plots import calibration, caps, leaderboard
from bayes_at_n.pipeline.store.outcomes import CORRECT, OWED
from bayes_at_n.pipeline.verify import calibrate
from bayes_at_n.scoring.metrics.table import parse

POINTS = 1_000  # of a line of ranks

Figures = Iterator[dict[str, Any]]


def of_dataset(cohort: Cohort, tables: Mapping[str, Table], headline: str) -> Figures:
    """Draw all figures that there is the data for, each with `title`, `svg` and `caption`.

    They are a column wide, so that a phone shows all of them. `tables` are those of the page. Those
    of cost and length have the group `cost`.
    """
    with style.narrow():
        yield from _costs(cohort, tables, headline)
        matrix = cohort.matrix()
        complete = (cohort.outcomes != OWED).all() and matrix.shape[2] > 1
        if len(cohort.names) > 1 and complete:
            told = tables["posterior_ranks"].notes[-1] if "posterior_ranks" in tables else ""
            order = [cohort.names.index(row["model"]) for row in tables["leaderboard"].rows]
            names = [cohort.names[i] for i in order]
            yield settling(names, matrix.filled(0)[order], told)
        calibrated = calibrate.pooled([member.run for member in cohort.members])
        if calibrated is not None:
            drawn = calibration.reliability("", calibrated)
            many = f"{calibrated['attempts']:,} graded attempts"
            yield figure(drawn, f"The verifier's P(A) against the grader, {many} of all models.")


def _costs(cohort: Cohort, tables: Mapping[str, Table], headline: str) -> Figures:
    """Draw scores by tokens and by price, lengths of correct and wrong attempts, smaller limits."""
    rows = tables["leaderboard"].rows
    value, _, *ends = HEADLINE[headline]
    names, score, low, high = ([row[key] for row in rows] for key in ("model", value, *ends))
    tokens = np.array([row.get("tokens_per_attempt") for row in rows], float)
    prices = np.array([row.get("price") for row in rows], float) / [row["attempts"] for row in rows]
    for cost, what in ((tokens, "completion tokens an attempt"), (prices, "price an attempt")):
        if np.isfinite(cost).any():
            drawn = leaderboard.score_by_cost(names, cost, score, low, high, what)
            shown = parse(headline).title()
            yield figure(drawn, f"{shown} with its interval by {what}.", "cost")
    good, bad = mean_lengths(cohort)
    if np.isfinite([*good, *bad]).any():
        share = cohort.matrix().mean(axis=(1, 2))
        drawn = leaderboard.tokens_against_correctness(cohort.names, good, bad, share)
        yield figure(drawn, "Mean completion tokens of correct and of all other attempts.", "cost")
    if "caps" in tables:
        # A model has the same look in all figures.
        drawn = caps.by_cap(sorted(tables["caps"].rows, key=lambda row: names.index(row["model"])))
        caption = "The same attempts under smaller limits, and what they cost then."
        yield figure(drawn, caption, "cost")


def mean_lengths(cohort: Cohort) -> npt.NDArray[np.float64]:
    """Mean completion tokens of correct and of all other graded attempts of L models, (2, L).

    NaN where none is known.
    """
    means = np.full((2, len(cohort.names)), np.nan)
    for i, member in enumerate(cohort.members):
        codes = cohort.outcomes[i]
        tokens = member.lengths(codes.shape[1]).tokens
        for row, chosen in zip(means, (codes == CORRECT, codes > CORRECT), strict=True):
            known = chosen & (tokens >= 0)
            if known.any():
                row[i] = tokens[known].mean()
    return means


def settling(names: list[str], outcomes: npt.NDArray[np.int8], told: str = "") -> dict[str, Any]:
    """Ranks as trials are added, of outcomes as :func:`trajectories` takes them.

    `told`: what all trials settle, which an order that stays does not say.
    """
    n, ranks, settled = trajectories(outcomes)
    some = np.arange(len(n))[:: -max(1, len(n) // POINTS)][::-1]  # with the last
    drawn = leaderboard.rank_trajectories(names, [n[i] for i in some], ranks[:, some], settled)
    of_all = f" By all {n[-1]} trials: {told}." if told else ""
    return figure(drawn, f"Ranks by Bayes@n after the first n trials.{of_all}")


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


def figure(drawn: Any, caption: str, group: str = "rest") -> dict[str, Any]:
    """A figure as the page takes it: its title is the page's text, which wraps."""
    title = " ".join(drawn.get_suptitle().split("\n"))
    drawn.suptitle("")
    return {"title": title, "svg": Markup(style.svg(drawn)), "caption": caption, "group": group}
