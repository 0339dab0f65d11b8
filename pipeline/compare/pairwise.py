"""What separates models: neighbors in the order, all pairs, attempts that decide it.

All of it is made from avg@N and the paper's sigma, as the ranks of
:mod:`pipeline.compare.leaderboard` are.
"""

import numpy as np
import numpy.typing as npt
import scipy

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.console import percent, plural
from bayes_at_n.pipeline.compare import labeled
from bayes_at_n.pipeline.compare.claims import claims, together
from bayes_at_n.pipeline.compare.cohort import Cohort
from bayes_at_n.pipeline.compare.leaderboard import (
    Columns,
    finished,
    inflation_columns,
    scores,
    title,
)
from bayes_at_n.pipeline.config.analysis import AnalysisConfig
from bayes_at_n.pipeline.display.table import CHANCE, Column, Table, of_columns
from bayes_at_n.pipeline.score.headline import correlation_warning

Positions = npt.NDArray[np.intp]
_TABLED = 32  # models, up to which all pairs are a table


def neighbors(cohort: Cohort, cfg: AnalysisConfig) -> Table:
    """Tabulate each two neighbors in order: is the upper one better, and how to settle it.

    The cohort has two models at least.
    """
    scored, matrix = scores(cohort, cfg), cohort.matrix()
    upper, lower = scored.order[:-1], scored.order[1:]
    columns, notes = _of_pairs(cohort, cfg, upper, lower)
    limit = together(cohort, scored.avg, cfg.scoring.confidence).limit
    level = float(scipy.special.ndtr(limit))
    plan = scoring.trials_to_separate(matrix[upper], matrix[lower], confidence=level)
    # One trial does not show what trials vary by, and more of them do not mend a judge.
    if matrix.count(axis=2).max() == 1 or labeled.corrected(cohort, cfg.scoring.confidence):
        plan = plan._replace(**{key: np.full(len(upper), np.nan) for key in plan._fields})
    luck = scoring.inflation(matrix[upper], matrix[lower], confidence=cfg.scoring.confidence)
    ended, of_ended = finished(cohort)
    # Kitagawa (1955): what is left of the gap if both answered what they finish equally well.
    by_truncation = (ended[upper] - ended[lower]) * (of_ended[upper] + of_ended[lower]) / 2
    columns |= {
        Column("truncation", "by truncation", None, "{:+.3f}", short="trunc."): by_truncation,
        Column("trials", "trials to tell apart", None, "{:.0f}", short="trials"): plan.trials,
        Column("trials_fewest", "fewest", None, "{:.0f}", wide=True): plan.fewest,
        Column("trials_most", "most", None, "{:.0f}", wide=True): plan.most,
        **inflation_columns(luck),
    }
    names = np.array(cohort.names)
    pairs = [f"{a} minus {b}" for a, b in zip(names[upper], names[lower], strict=True)]
    whole, of_trials = (
        np.hypot(of[upper], of[lower]) for of in (scored.avg.sigma, scored.of_trials)
    )
    notes += [
        "by truncation: the part of the difference that arises because the lower model finishes"
        " fewer attempts (at the mean of both models' accuracies on finished attempts)",
        "trials: of each model in a new experiment with 90% power for such a difference; to extend"
        " these runs use `settle`, which may look as often as it likes",
        *correlation_warning(pairs, luck, of_trials, cfg.scoring.confidence, whole),
    ]
    return of_columns(title("adjacent models", cohort), columns, notes)


def pairs(cohort: Cohort, cfg: AnalysisConfig) -> Table | None:
    """Tabulate all pairs, the better one first; None of more than 32 models."""
    if len(cohort.names) > _TABLED:
        return None
    above, below = np.triu_indices(len(cohort.names), 1)
    order = scores(cohort, cfg).order
    return of_columns(title("pairs", cohort), *_of_pairs(cohort, cfg, order[above], order[below]))


def _of_pairs(
    cohort: Cohort, cfg: AnalysisConfig, above: Positions, below: Positions
) -> tuple[Columns, list[str]]:
    """Compare models at positions `above` with those at `below`; both of shape (pairs,)."""
    scored = scores(cohort, cfg)
    whole = together(cohort, scored.avg, cfg.scoring.confidence)
    proven = claims(cohort, cfg)
    value, sigma = scored.avg[:2]
    comparison = scoring.compare_scores(value[above], sigma[above], value[below], sigma[below])
    reach = whole.limit * comparison.sigma
    other_questions = np.full(len(above), np.nan)
    if len({*cohort.clusters}) > 1:
        shares = labeled.shares(cohort, cfg.scoring.confidence)
        gaps = shares[above] - shares[below], comparison.sigma
        other_questions = scoring.paired_gaps(*gaps, clusters=cohort.clusters).probability
    better, tied = proven.better[above, below], proven.tied[above, below]
    names = np.array(cohort.names)
    columns: Columns = {
        Column("above", "above", align="left"): names[above],
        Column("below", "below", align="left"): names[below],
        Column("difference", "difference", None, "{:+.3f}", short="diff."): comparison.difference,
        Column("low", "low", None, "{:+.4f}", wide=True): comparison.difference - reach,
        Column("high", "high", None, "{:+.4f}", wide=True): comparison.difference + reach,
        Column("z", "z", "$z$", "{:.2f}"): comparison.z,
        Column("q", "q", "$q$", CHANCE): whole.q[above, below],
        Column("log10_e", "log10 e", None, "{:.1f}"): proven.log_e[above, below] / np.log(10),
        Column("settled", "settled", align="left"): np.select(
            [better, tied], ["better", "tied"], ""
        ),
        # Rounding may have carried a probability past 0 or 1.
        Column("probability", "P(above better)", None, CHANCE, short="P"): (
            np.clip(comparison.probability, 0, 1)
        ),
        Column(
            "probability_other_questions", "P, other questions", None, CHANCE, short="P other"
        ): np.clip(other_questions, 0, 1),
    }
    level, needed = percent(cfg.scoring.confidence), proven.needed / np.log(10)
    notes = [
        f"z: at least {whole.limit:.2f} separates a pair, {level} for all pairs at once; q: the"
        " expected share of false differences among pairs with at most this q",
        f"log10 e: largest evidence so far, of which 10^-e is a p-value at any number of looks;"
        f" settled: better from {needed:.1f}, tied where a pair differs by at most"
        f" {plural(cfg.scoring.margin, 'point')}",
        "P: probability that the upper model is better on these questions; P other: on a pool that"
        " they are a sample of, shrunk toward 1/2 because most pairs differ little",
        *([f"nothing is settled: {proven.dependent}"] if proven.dependent else []),
    ]
    return columns, notes
