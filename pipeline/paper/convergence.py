"""Figs. 1, 5, 6 and 9, Tables 8 to 10: how many trials a ranking needs, and when it never settles.

The gold ranking is Bayes@N of the real matrix, also for Pass@k; means are over the replicates that
converged, with the share that did not beside them.
"""

import math
from typing import Any

import numpy as np

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.console import Meter
from bayes_at_n.pipeline.compare.cohort import Cohort
from bayes_at_n.pipeline.config.analysis import StudyPlan
from bayes_at_n.pipeline.display.table import Column, Table, of_columns
from bayes_at_n.pipeline.paper import Result, shared, subsets
from bayes_at_n.pipeline.paper.shared import Bits, Group
from bayes_at_n.pipeline.plots import convergence as plots
from bayes_at_n.pipeline.plots import leaderboard
from bayes_at_n.scoring.studies import convergence
from bayes_at_n.scoring.studies.convergence import Convergence, Resample


def study(plan: StudyPlan, cohorts: list[Cohort]) -> Result:
    """Distributions of convergence@n, the latest trajectories, and subsets of the models.

    Raises UserError: no data set has two models with two complete trials.
    """
    sound, notes = shared.each_complete(cohorts)
    ranked = [(group, outcomes) for cohort, outcomes in sound for group in shared.groups(cohort)]
    result = Result()
    with Meter("convergence", len(ranked)) as meter:
        for group, outcomes in ranked:
            _add_group(result, plan, group, outcomes[group.models])
            meter.advance(1)
    subsets.add(result, plan, sound)
    result.notes += notes
    result.notes += [
        "Convergence: columns is the default (version 001) and is drawn; rows (version 000) is"
        " beside it in the tables, and printed numbers of version 000 are compared with it. A"
        " replicate that does not end on the gold ranking has not converged and enters no mean;"
        " the mean in which it counts as N stands beside.",
        "Fig. 1, right panel: the first replicate, which nothing singles out.",
        "Fig. 5: the worst case is the replicate that converged last, and beside it, where there is"
        " one, the first that did not converge.",
    ]
    return result


def _add_group(result: Result, plan: StudyPlan, group: Group, stack: Bits) -> None:
    judged, replicates = shared.showcase(stack.shape[-1]), plan.convergence_replicates
    by_scheme = {
        scheme: convergence.convergence_at(stack, judged, replicates, scheme, plan.seed)
        for scheme in shared.SCHEMES
    }
    by_columns, trials = by_scheme["columns"], range(1, stack.shape[-1] + 1)
    masses = {at.label: at.pmf for at in by_columns}
    for stem, draw, name in (("fig1", plots.pmf, "PMF"), ("fig9", plots.cdf, "CDF")):
        title = f"{name} of convergence@n: {group.title}"
        result.figures[f"{stem}_{group.stem}"] = draw(trials, masses, title)
    _add_trajectories(result, group, stack, by_columns[0], plan.seed)
    result.tables[f"fig1_{group.stem}"] = _table(
        group.title, by_scheme, plan, _settled(group, stack)
    )
    if group.paper_id:
        # Of the version's own bootstrap: rows for 000 (its section 3.3), columns for 001.
        own, other = by_columns, by_scheme["rows"]
        if group.version == "000":
            own, other = other, own
        result.numbers |= _numbers(f"convergence.{group.paper_id}", own, other)


def _add_trajectories(
    result: Result, group: Group, stack: Bits, bayes: Convergence, seed: int
) -> None:
    """Ranks as trials are added in the first replicate, and in the worst ones."""
    trials = stack.shape[-1]
    gold = scoring.ranks(stack.sum(axis=(1, 2), dtype=np.int64))

    def draw(name: str, replicate: int, title: str) -> None:
        ranks = convergence.rank_trajectory(stack, shared.BAYES, replicate, seed=seed)
        other = np.flatnonzero((ranks != gold).any(axis=1))
        settled = int(other[-1]) + 2 if other.size else 1
        result.figures[name] = leaderboard.rank_trajectories(
            group.names,
            range(1, trials + 1),
            ranks.T,
            settled if settled <= trials else None,
            title,
        )

    draw(f"fig1_{group.stem}_example", 0, f"First replicate: {group.title}")
    worst = f"Worst case: {group.title}, replicate"
    if bayes.largest:
        title = f"{worst} {bayes.worst}, whose order stays from n = {bayes.largest} on"
        draw(f"fig5_{group.stem}_latest", bayes.worst, title)
    if bayes.first_failed is not None:
        title = f"{worst} {bayes.first_failed}, whose order never is that of all trials"
        draw(f"fig5_{group.stem}_never", bayes.first_failed, title)


def _settled(group: Group, stack: Bits) -> str:
    """What all trials settle, which an order that has stopped changing does not say."""
    groups = scoring.indistinguishable_groups(*scoring.avg(stack))
    alike = [", ".join(group.names[i] for i in one) for one in groups if len(one) > 1]
    return (
        "convergence@n is where a sample's order stops changing, and not where it is settled; by"
        f" all trials cannot be told apart (all pairs |z| < 1.645): {'; '.join(alike) or 'none'}"
    )


def _table(
    title: str, by_scheme: dict[Resample, list[Convergence]], plan: StudyPlan, settled: str
) -> Table:
    cells = [(scheme, at) for scheme, of_scheme in by_scheme.items() for at in of_scheme]
    columns: dict[Column, list[Any]] = {
        shared.text("estimator", "estimator"): [at.label for _, at in cells],
        shared.text("resample", "resampled"): [scheme for scheme, _ in cells],
        shared.fixed("mean", "mean n of those converged", 2): [at.mean for _, at in cells],
        shared.fixed("capped", "mean n, failures as N", 2): [at.capped_mean for _, at in cells],
        Column("largest", "largest n"): [at.largest for _, at in cells],
        shared.fixed("failed", "share not converged", 4): [at.share_failed for _, at in cells],
        Column("replicates", "replicates"): [at.replicates for _, at in cells],
    }
    notes = [f"gold ranking: Bayes@N of all trials; seed {plan.seed}", settled]
    return of_columns(f"Fig. 1: convergence@n, {title}", columns, notes)


def _numbers(start: str, own: list[Convergence], other: list[Convergence]) -> dict[str, float]:
    bayes, *family = own
    numbers: dict[str, float | None] = {
        f"{start}.fails": float(bayes.failed > 0),
        f"{start}.bayes": bayes.mean,
        f"{start}.bayes.other": bayes.capped_mean,
        f"{start}.worst": bayes.largest,
        f"{start}.worst.other": other[0].largest,
    }
    if family:
        means = (at.mean for at in family if at.mean is not None)
        numbers[f"{start}.pass"] = min(means, default=None)
        numbers[f"{start}.pass.other"] = min(at.capped_mean for at in family)
    return {key: math.nan if number is None else number for key, number in numbers.items()}
