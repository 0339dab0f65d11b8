"""Section 2.8 and Fig. 2 of version 001: models' older versions as a prior for their updates.

A reconstruction: the eight means are printed, the Beta shapes are lost; see
:mod:`scoring.studies.updates`.
"""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from bayes_at_n.pipeline.base.console import Meter
from bayes_at_n.pipeline.compare.cohort import Cohort
from bayes_at_n.pipeline.config.analysis import StudyPlan
from bayes_at_n.pipeline.display.table import Column, Table, of_columns
from bayes_at_n.pipeline.paper import Result, shared
from bayes_at_n.pipeline.plots import trials as plots
from bayes_at_n.pipeline.plots.lines import Curve
from bayes_at_n.scoring.numerics.inputs import Floats
from bayes_at_n.scoring.ranking.ranks import kendall_tau_b
from bayes_at_n.scoring.studies import updates
from bayes_at_n.scoring.studies.updates import PriorStudy

TRIALS = (*range(1, 11), 12, 16, 24, 32, 48, 64)
STRENGTHS = (1, 2, 4, 8, 16)


def study(plan: StudyPlan, cohorts: list[Cohort]) -> Result:
    """Simulate; `cohorts` are not looked at."""
    with Meter("priors", 1) as meter:
        outcome = updates.prior_study(plan.prior_replicates, TRIALS, STRENGTHS, seed=plan.seed)
        meter.advance(1)
    drawn = updates.updated_models(updates.ORIGINAL_SHAPES, plan.prior_replicates, plan.seed)
    truth = drawn.mean(axis=-1)
    taus = np.asarray(kendall_tau_b(truth, np.arange(truth.shape[1])))  # never all ties
    means = updates.original_models(plan.seed).mean(axis=-1)
    numbers = {f"priors.mean.{i}": float(mean) for i, mean in enumerate(means, 1)}
    numbers |= {"priors.update_tau": outcome.update_tau, "priors.changed": outcome.changed}
    for i, strength in enumerate(STRENGTHS, 1):
        gains = zip(TRIALS, outcome.gain[i].tolist(), outcome.gain_error[i].tolist(), strict=True)
        for n, gain, error in gains:
            name = f"priors.gain.d{strength}.n{n}"
            numbers |= {
                name: gain,
                f"{name}.low": gain - 2 * error,
                f"{name}.high": gain + 2 * error,
            }
    notes = [
        "Priors: a reconstruction. The originals are Beta(i, 15 - i), i = 4..11, the family that"
        " fits the printed means best; an update moves both shapes by -1 or +1, equally likely and"
        " independent.",
        f"Priors: mean tau_b of originals and updates is {outcome.update_tau:.3f},"
        f" {outcome.changed:.1%} of updates change the ranking.",
    ]
    return Result(
        {"fig2a_001": _updates_table(taus), "fig2bc_001": _gain_table(outcome, plan)},
        {"fig2_001": _figure(taus, outcome)},
        numbers,
        notes,
    )


def _updates_table(taus: Floats) -> Table:
    values, counts = np.unique(np.round(taus, 6), return_counts=True)
    columns = {
        shared.fixed("tau", "tau_b"): values.tolist(),
        shared.fixed("share", "share of updates", 4): (counts / counts.sum()).tolist(),
    }
    notes = [f"{taus.size:,} updates of the eight originals"]
    return of_columns("Fig. 2a of version 001: originals against updates", columns, notes)


def _gain_table(outcome: PriorStudy, plan: StudyPlan) -> Table:
    columns: dict[Column, Sequence[float]] = {Column("n", "N"): TRIALS}
    for d, tau in zip((0, *STRENGTHS), outcome.tau.tolist(), strict=True):
        columns[shared.fixed(f"d{d}", f"D = {d}", 4, "tau_b")] = tau
    for d, gain in zip(STRENGTHS, outcome.gain[1:].tolist(), strict=True):
        columns[shared.fixed(f"gain{d}", f"D = {d}", 4, "gain over D = 0")] = gain
    notes = [
        f"{plan.prior_replicates:,} updates; standard error of a gain at most"
        f" {float(outcome.gain_error.max()):.4f}",
        f"{int(outcome.undefined.sum())} replicates, over all N and D, had all models level and are"
        " left out",
    ]
    title = "Fig. 2b and c of version 001: what prior trials gain"
    return of_columns(title, columns, notes)


def _figure(taus: Floats, outcome: PriorStudy) -> Figure:
    strengths = (0, *STRENGTHS)
    low, high = outcome.tau - 2 * outcome.tau_error, outcome.tau + 2 * outcome.tau_error
    lines = zip(strengths, outcome.tau, low, high, strict=True)
    curves = {d: Curve(TRIALS, *line) for d, *line in lines}
    return plots.prior_gain(curves, taus, "Priors from older versions of models")
