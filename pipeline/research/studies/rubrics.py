"""Fig. 7 and section 3.4: how models rank under each rubric, all data sets stacked.

Categories come from each data set with its own thresholds; the questions of all of them are then
one set (M = 120 for the paper's four tasks).
"""

import numpy as np
import numpy.typing as npt

import scoring
from pipeline.base.console import Meter
from pipeline.base.errors import UserError
from pipeline.cohorts import rubrics as cohort_rubrics
from pipeline.cohorts.cohort import Cohort
from pipeline.config.analysis import AnalysisConfig
from pipeline.config.studies import Plan
from pipeline.display.table import Column, Table
from pipeline.plots import leaderboard as plots
from pipeline.research.studies import Result, paper, shared
from pipeline.rubrics.rubric import Rubric

Made = dict[str, tuple[Rubric, npt.NDArray[np.int8]]]


def study(plan: Plan, cohorts: list[Cohort]) -> Result:
    """Competition ranks of the models that all data sets have, under each rubric.

    Raises:
        UserError: no rubric can be made (no signals, or outcomes that came as a matrix), or fewer
            than two models in common.
    """
    cfg = AnalysisConfig(rubric=plan.rubric, thresholds=plan.thresholds)
    made: list[tuple[Cohort, Made]] = []
    notes = []
    with Meter("rubrics", len(cohorts)) as meter:
        for cohort in cohorts:
            try:
                found = cohort_rubrics.categories(cohort, cfg)
            except UserError as error:
                notes.append(f"Rubrics: {cohort.dataset} is left out: {error}")
                found = {}
            if found:
                made.append((cohort, found))
            meter.advance(1)
    if not made:
        said = "; ".join(notes) or "these outcomes came without attempts"
        raise UserError(f"no rubric can be made: {said}; run `signals` on every run")
    names = [n for n in made[0][0].names if all(n in cohort.names for cohort, _ in made)]
    rubrics = [r for r in made[0][1] if all(r in found for _, found in made)]
    if len(names) < 2 or not rubrics:
        raise UserError(
            f"{len(names)} models and {len(rubrics)} rubrics are common to all data sets; ranks"
            " need two models and one rubric: name data sets that share them"
        )
    scores = {name: _stacked(made, names, name) for name in rubrics}
    return _result(made, names, scores, notes)


def _stacked(
    made: list[tuple[Cohort, Made]], names: list[str], rubric: str
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Bayes@N of each model, mean and sigma, over the questions of all data sets."""
    counts = []
    for cohort, found in made:
        rows = [cohort.names.index(name) for name in names]
        counts.append(cohort_rubrics.counts(found[rubric][0], found[rubric][1][rows]))
    weights = made[0][1][rubric][0].weights
    stacked = np.concatenate(counts, axis=1)  # (L, all M, C + 1)
    found_scores = [scoring.bayes(scoring.Counts(model), weights) for model in stacked]
    mu, sigma = np.array(found_scores).T
    return mu, sigma


def _result(
    made: list[tuple[Cohort, Made]],
    names: list[str],
    scores: dict[str, tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]],
    notes: list[str],
) -> Result:
    questions = sum(len(cohort.question_ids) for cohort, _ in made)
    ranks = np.array([scoring.ranks(mu) for mu, _ in scores.values()]).T  # (L, rubrics)
    title = f"{', '.join(c.dataset for c, _ in made)} stacked, M = {questions}"
    columns = [shared.text("model", "model"), *(Column(name, name) for name in scores)]
    by_rank = [
        {"model": name, **dict(zip(scores, map(int, row), strict=True))}
        for name, row in zip(names, ranks, strict=True)
    ]
    by_score = [
        {
            "model": name,
            "rubric": rubric,
            "mu": float(mu[i]),
            "sigma": float(sigma[i]),
            "rank": int(ranks[i, k]),
        }
        for k, (rubric, (mu, sigma)) in enumerate(scores.items())
        for i, name in enumerate(names)
    ]
    long = [
        shared.text("rubric", "rubric"),
        shared.text("model", "model"),
        shared.fixed("mu", "μ", 4),
        shared.fixed("sigma", "σ", 4),
        Column("rank", "rank"),
    ]
    told = ["competition ranks of Bayes@N under each rubric's weights (configs/rubric)"]
    notes += [
        "Rubrics: thresholds are per data set, over all models together unless"
        " thresholds.scope=model; the weights are ours, the paper prints one example.",
    ]
    lacking = {name for _, found in made for name in found} - set(scores)
    if lacking:
        notes.append(f"Rubrics: {', '.join(sorted(lacking))}: not made on every data set.")
    return Result(
        {
            "fig7": Table(f"Fig. 7: ranks by rubric, {title}", columns, by_rank, told),
            "fig7_scores": Table(f"Fig. 7: scores by rubric, {title}", long, by_score, told),
        },
        {"fig7": plots.rank_lines(list(scores), names, ranks, f"Ranks by rubric: {title}")},
        _numbers(made, names, list(scores), ranks),
        notes,
    )


def _numbers(
    made: list[tuple[Cohort, Made]],
    names: list[str],
    rubrics: list[str],
    ranks: npt.NDArray[np.int64],
) -> dict[str, float]:
    """The statements of section 3.4 that name a rubric; only over the paper's four tasks."""
    if {paper.task_of(cohort.dataset) for cohort, _ in made} != set(paper.TASKS):
        return {}
    known = dict(zip(shared.paper_numbers(made[0][0]), made[0][0].names, strict=True))
    row = {paper.short_names()[n]: names.index(m) for n, m in known.items() if n and m in names}
    numbers: dict[str, float] = {}
    if "Qwen3-Thinking" in row:
        best = ranks[list(row.values())].min(axis=0)  # of the paper's models: others may be better
        numbers["rubrics.leader"] = float((ranks[row["Qwen3-Thinking"]] == best).mean())
    for rubric, first, second in (
        ("verifier-probe", "OpenThinker2", "gpt-oss-medium"),
        ("conf-calibrated", "gpt-oss-high", "OpenThinker2"),
        ("format-confidence", "gpt-oss-high", "OpenThinker2"),
    ):
        if rubric in rubrics and {first, second} <= set(row):
            above = ranks[row[first]] < ranks[row[second]]
            numbers[f"rubrics.{rubric}"] = float(above[rubrics.index(rubric)])
    return numbers
