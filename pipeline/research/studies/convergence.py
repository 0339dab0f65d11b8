"""Figs. 1, 5, 6 and 9, Tables 8 to 10: how many trials a ranking needs, and when it never settles.

The gold ranking is Bayes@N of the real matrix, also for Pass@k; means are over the replicates that
converged, with the share that did not beside them.
"""

import math
from typing import Any

import numpy as np

import scoring
from pipeline.base.console import Meter
from pipeline.cohorts.cohort import Cohort
from pipeline.config.studies import StudyPlan
from pipeline.display.table import Column, Table
from pipeline.plots import convergence as plots
from pipeline.plots import leaderboard
from pipeline.research.studies import Result, merged, paper, shared, subsets
from pipeline.research.studies.shared import Bits, Group
from pipeline.research.studies.tau import SCHEMES
from scoring.studies import convergence
from scoring.studies.convergence import Convergence


def study(plan: StudyPlan, cohorts: list[Cohort]) -> Result:
    """Distributions of convergence@n, the latest trajectories, and subsets of the models.

    Raises:
        UserError: no data set has two models with two complete trials.
    """
    sound, notes = shared.each_sound(cohorts)
    work = [(cohort, data, g) for cohort, data in sound for g in shared.groups(cohort)]
    results = []
    with Meter("convergence", len(work)) as meter:
        for cohort, data, group in work:
            results.append(_one(plan, cohort, data, group))
            meter.advance(1)
    notes += [
        "Convergence: columns is the default (version 001) and is drawn; rows (version 000) is"
        " beside it in the tables, and printed numbers of version 000 are compared with it. A"
        " replicate that does not end on the gold ranking has not converged and enters no mean;"
        " the mean in which it counts as N stands beside.",
        "Fig. 1, right panel: the first replicate, which nothing singles out.",
        "Fig. 5: the worst case is the replicate that converged last, and beside it, where there is"
        " one, the first that did not converge.",
    ]
    return merged(*results, subsets.study(plan, sound), Result({}, {}, {}, notes))


def _one(plan: StudyPlan, cohort: Cohort, data: Bits, group: Group) -> Result:
    stack, trials = data[group.models], data.shape[-1]
    judged, replicates = shared.showcase(trials), plan.convergence_replicates
    by_scheme = {
        scheme: convergence.convergence_at(stack, judged, replicates, scheme, plan.seed)
        for scheme in SCHEMES
    }
    title = f"{cohort.dataset}, {group.label}"
    end = f"{cohort.dataset}_{len(group.models)}"
    by_columns, n = by_scheme["columns"], np.arange(1, trials + 1)
    masses = {c.label: c.pmf for c in by_columns}
    figures = {
        f"fig1_{end}": plots.pmf(n, masses, f"PMF of convergence@n: {title}"),
        f"fig9_{end}": plots.cdf(n, masses, f"CDF of convergence@n: {title}"),
    }
    names = [cohort.names[i] for i in group.models]

    def trajectory(replicate: int) -> Any:
        return convergence.rank_trajectory(stack, shared.BAYES, replicate, seed=plan.seed)

    first = trajectory(0)
    gold = scoring.ranks(stack.sum(axis=(1, 2), dtype=np.int64))
    wrong = np.flatnonzero((first != gold).any(axis=1))
    settled = int(wrong[-1]) + 2 if wrong.size else 1
    figures[f"fig1_{end}_example"] = leaderboard.rank_trajectories(
        names, n, first.T, settled if settled <= trials else None, f"First replicate: {title}"
    )
    bayes = by_columns[0]
    worst = bayes.worst if bayes.largest else None
    for kind, number, last in (
        ("latest", worst, bayes.largest),
        ("never", bayes.first_failed, None),
    ):
        if number is not None:
            words = f"converges at n = {last}" if last else "does not converge"
            caption = f"Worst case: {title}, replicate {number} {words}"
            figures[f"fig5_{end}_{kind}"] = leaderboard.rank_trajectories(
                names, n, trajectory(number).T, last, caption
            )
    table = _table(title, by_scheme, plan)
    return Result({f"fig1_{end}": table}, figures, _numbers(cohort, group, by_scheme), [])


def _table(title: str, by_scheme: dict[Any, list[Convergence]], plan: StudyPlan) -> Table:
    columns = [
        shared.text("estimator", "estimator"),
        shared.text("resample", "resampled"),
        shared.fixed("mean", "mean n of those converged", 2),
        shared.fixed("capped", "mean n, failures as N", 2),
        Column("largest", "largest n"),
        shared.fixed("failed", "share not converged", 4),
        Column("replicates", "replicates"),
    ]
    rows = [
        {
            "estimator": one.label,
            "resample": scheme,
            "mean": one.mean,
            "capped": shared.capped_mean(one),
            "largest": one.largest,
            "failed": one.share_failed,
            "replicates": one.replicates,
        }
        for scheme, of_scheme in by_scheme.items()
        for one in of_scheme
    ]
    notes = [f"gold ranking: Bayes@N of all trials; seed {plan.seed}"]
    return Table(f"Fig. 1: convergence@n, {title}", columns, rows, notes)


def _numbers(
    cohort: Cohort, group: Group, by_scheme: dict[Any, list[Convergence]]
) -> dict[str, float]:
    """Of the version's own bootstrap: rows for 000 (its section 3.3), columns for 001."""
    task = paper.task_of(cohort.dataset)
    if not (task and group.version):
        return {}
    schemes = SCHEMES if group.version == "001" else SCHEMES[::-1]
    bayes, *family = by_scheme[schemes[0]]
    means = [one.mean for one in family if one.mean is not None]
    start = f"convergence.{group.version}.{task}"
    numbers: dict[str, float] = {
        f"{start}.fails": float(bayes.failed > 0),
        f"{start}.bayes": _known(bayes.mean),
        f"{start}.bayes.other": shared.capped_mean(bayes),
        f"{start}.worst": _known(bayes.largest),
        f"{start}.worst.other": _known(by_scheme[schemes[1]][0].largest),
    }
    if family:
        numbers[f"{start}.pass"] = min(means, default=math.nan)
        numbers[f"{start}.pass.other"] = min(map(shared.capped_mean, family))
    return numbers


def _known(value: float | None) -> float:
    return math.nan if value is None else value
