"""Fig. 7 and section 3.4: how models rank under each rubric, all data sets stacked.

Categories come from each data set with its own thresholds; the questions of all of them are then
one set (M = 120 for the paper's four tasks).
"""

from typing import Any

import numpy as np
import numpy.typing as npt

import scoring
from pipeline.base.console import Meter
from pipeline.base.errors import UserError
from pipeline.cohorts import rubrics as cohort_rubrics
from pipeline.cohorts.cohort import Cohort
from pipeline.config.analysis import AnalysisConfig
from pipeline.config.studies import StudyPlan
from pipeline.display.table import Column, Table
from pipeline.plots import leaderboard as plots
from pipeline.research.studies import Result, paper, shared
from pipeline.rubrics.rubric import Rubric

Made = dict[str, tuple[Rubric, npt.NDArray[np.int8]]]


def study(plan: StudyPlan, cohorts: list[Cohort]) -> Result:
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
                categories = cohort_rubrics.categories(cohort, cfg)
            except UserError as error:
                notes.append(f"Rubrics: {cohort.dataset} is left out: {error}")
                categories = {}
            if categories:
                made.append((cohort, categories))
            meter.advance(1)
    if not made:
        said = "; ".join(notes) or "these outcomes came without attempts"
        raise UserError(f"no rubric can be made: {said}; run `signals` on every run")
    names = [n for n in made[0][0].names if all(n in cohort.names for cohort, _ in made)]
    rubrics = [r for r in made[0][1] if all(r in others for _, others in made)]
    if len(names) < 2 or not rubrics:
        raise UserError(
            f"{len(names)} models and {len(rubrics)} rubrics are common to all data sets; ranks"
            " need two models and one rubric: name data sets that share them"
        )
    questions = sum(len(cohort.question_ids) for cohort, _ in made)
    title = f"{', '.join(c.dataset for c, _ in made)} stacked, M = {questions}"
    by_rank: list[dict[str, Any]] = [{"model": name} for name in names]
    by_score: list[dict[str, Any]] = []
    for rubric in rubrics:
        mu, sigma = _stacked(made, names, rubric)
        for row, *scores in zip(by_rank, mu, sigma, scoring.ranks(mu), strict=True):
            values = dict(zip(("mu", "sigma", "rank"), np.array(scores).tolist(), strict=True))
            row[rubric] = values["rank"] = int(values["rank"])
            by_score.append({"model": row["model"], "rubric": rubric, **values})
    ranks = np.array([[row[rubric] for rubric in rubrics] for row in by_rank])
    columns = [shared.text("model", "model"), *(Column(name, name) for name in rubrics)]
    long = [
        shared.text("rubric", "rubric"),
        shared.text("model", "model"),
        shared.fixed("mu", "μ", 4),
        shared.fixed("sigma", "σ", 4),
        Column("rank", "rank"),
    ]
    caption = ["competition ranks of Bayes@N under each rubric's weights (configs/rubric)"]
    notes += [
        "Schemata: thresholds are per data set, over all models together unless"
        " thresholds.scope=model; the weights are ours, the paper prints one example.",
    ]
    if lacking := {name for _, of_cohort in made for name in of_cohort} - {*rubrics}:
        notes.append(f"Schemata: {', '.join(sorted(lacking))}: not made on every data set.")
    return Result(
        {
            "fig7": Table(f"Fig. 7: ranks by rubric, {title}", columns, by_rank, caption),
            "fig7_scores": Table(f"Fig. 7: scores by rubric, {title}", long, by_score, caption),
        },
        {"fig7": plots.rank_lines(rubrics, names, ranks, f"Ranks by rubric: {title}")},
        _numbers(made, names, rubrics, ranks),
        notes,
    )


def _stacked(
    made: list[tuple[Cohort, Made]], names: list[str], rubric: str
) -> npt.NDArray[np.float64]:
    """Mean and sigma (2, L) of each model's Bayes@N, over the questions of all data sets."""
    counts = []
    for cohort, of_cohort in made:
        rows = [cohort.names.index(name) for name in names]
        counts.append(cohort_rubrics.counts(of_cohort[rubric][0], of_cohort[rubric][1][rows]))
    stacked = scoring.Counts(np.concatenate(counts, axis=1))  # (L, all M, C + 1)
    return np.array(scoring.bayes(stacked, made[0][1][rubric][0].weights))


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
