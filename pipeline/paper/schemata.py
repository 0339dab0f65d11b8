"""Study of ranks under each rubric, all datasets stacked: Fig. 7 and section 3.4.

Each dataset's attempts are categorized with its own thresholds; the questions of all datasets are
then one set (M = 120 for the paper's four tasks).
"""

from typing import Any

import numpy as np

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.console import Meter, substep
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.compare import rubrics as cohort_rubrics
from bayes_at_n.pipeline.compare.cohort import Cohort
from bayes_at_n.pipeline.compare.rubrics import ByRubric
from bayes_at_n.pipeline.config.analysis import AnalysisConfig, StudyPlan
from bayes_at_n.pipeline.display.table import Column, Table, of_columns
from bayes_at_n.pipeline.paper import printed, studies
from bayes_at_n.pipeline.paper.studies import Result, fixed, text
from bayes_at_n.pipeline.plots import scores as plots
from bayes_at_n.pipeline.rubrics import categories, signals
from bayes_at_n.scoring.numerics.inputs import Floats

Categorized = list[tuple[Cohort, ByRubric]]


def rubrics(plan: StudyPlan, cohorts: list[Cohort]) -> Result:
    """Rank the models that all datasets share under each rubric.

    Raises UserError: no rubric can be computed (no signals, or outcomes imported as a matrix), or
    fewer than two models are shared.
    """
    categorized, notes = _categorized(plan, cohorts)
    first, labels = categorized[0]
    models = [n for n in first.names if all(n in cohort.names for cohort, _ in categorized)]
    names = [r for r in labels if all(r in of_cohort for _, of_cohort in categorized)]
    if len(models) < 2 or not names:
        raise UserError(
            f"{len(models)} models and {len(names)} rubrics are common to all datasets; ranks"
            " need two models and one rubric: name datasets that share them"
        )
    questions = sum(len(cohort.question_ids) for cohort, _ in categorized)
    title = f"{', '.join(c.dataset for c, _ in categorized)} stacked, M = {questions}"
    ranks: dict[str, list[int]] = {}
    scores: list[dict[str, Any]] = []
    for rubric in names:
        mu, sigma = _stacked(categorized, models, rubric)
        ranks[rubric] = scoring.ranks(mu).tolist()
        cells = zip(models, mu.tolist(), sigma.tolist(), ranks[rubric], strict=True)
        keys = ("rubric", "model", "mu", "sigma", "rank")
        scores += [dict(zip(keys, (rubric, *row), strict=True)) for row in cells]
    by_model: dict[Column, list[Any]] = {text("model", "model"): models}
    by_model |= {Column(rubric, rubric): ranks[rubric] for rubric in names}
    columns = [
        text("rubric", "rubric"),
        text("model", "model"),
        fixed("mu", "μ", 4),
        fixed("sigma", "σ", 4),
        Column("rank", "rank"),
    ]
    caption = ["competition ranks of Bayes@N under each rubric's weights (configs/rubric)"]
    notes.append(
        "Schemata: thresholds are per dataset, over all models together unless"
        " thresholds.scope=model; the weights are ours, the paper prints one example."
    )
    if missing := {name for _, of_cohort in categorized for name in of_cohort} - {*names}:
        notes.append(f"Schemata: {', '.join(sorted(missing))}: missing on some dataset.")
    of_models = np.array(list(ranks.values())).T
    figure = plots.rank_lines(names, models, of_models, f"Ranks by rubric: {title}")
    return Result(
        {
            "fig7": of_columns(f"Fig. 7: ranks by rubric, {title}", by_model, caption),
            "fig7_scores": Table(f"Fig. 7: scores by rubric, {title}", columns, scores, caption),
        },
        {"fig7": figure},
        _numbers(categorized, models, ranks),
        notes,
    )


def _categorized(plan: StudyPlan, cohorts: list[Cohort]) -> tuple[Categorized, list[str]]:
    """Assign categories by dataset; return notes on datasets that are left out."""
    cfg = AnalysisConfig(rubric=plan.rubric, thresholds=plan.thresholds)
    categorized, notes = [], []
    with Meter("rubrics", len(cohorts)) as meter:
        for cohort in cohorts:
            try:
                for run in (m.run for m in cohort.members if m.run.attempts.is_dir()):
                    with substep():  # it skips what is current
                        signals.make(run)
                if labels := cohort_rubrics.categories(cohort, cfg):
                    categorized.append((cohort, labels))
            except (UserError, OSError) as error:  # OSError: a read-only folder
                notes.append(f"Rubrics: {cohort.dataset} is left out: {error}")
            meter.advance(1)
    if not categorized:
        why = "; ".join(notes) or "these outcomes were imported without attempts"
        raise UserError(f"no rubric can be computed: {why}")
    return categorized, notes


def _stacked(categorized: Categorized, models: list[str], name: str) -> Floats:
    """Compute mean and sigma (2, L) of Bayes@N over the questions of all datasets."""
    counts = []
    for cohort, labels in categorized:
        rubric, codes = labels[name]
        rows = [cohort.names.index(model) for model in models]
        counts.append(categories.counts(codes[rows], len(rubric.categories)))
    stacked = scoring.Counts(np.concatenate(counts, axis=1))  # (L, all M, C + 1)
    return np.array(scoring.bayes(stacked, categorized[0][1][name][0].weights))


def _numbers(
    categorized: Categorized, models: list[str], ranks: dict[str, list[int]]
) -> dict[str, float]:
    """Check the claims of section 3.4 about rubrics; empty unless on the paper's four tasks."""
    if {printed.task_of(cohort.dataset) for cohort, _ in categorized} != set(printed.TASKS):
        return {}
    first, short_names = categorized[0][0], printed.short_names()
    known = zip(studies.paper_numbers(first), first.names, strict=True)
    row = {short_names[n]: models.index(name) for n, name in known if n and name in models}
    numbers: dict[str, float] = {}
    if "Qwen3-Thinking" in row:  # best of the paper's models: others may be better
        leads = [
            of_models[row["Qwen3-Thinking"]] == min(of_models[i] for i in row.values())
            for of_models in ranks.values()
        ]
        numbers["rubrics.leader"] = float(np.mean(leads))
    for rubric, better, worse in (
        ("verifier-probe", "OpenThinker2", "gpt-oss-medium"),
        ("conf-calibrated", "gpt-oss-high", "OpenThinker2"),
        ("format-confidence", "gpt-oss-high", "OpenThinker2"),
    ):
        if rubric in ranks and {better, worse} <= set(row):
            numbers[f"rubrics.{rubric}"] = float(
                ranks[rubric][row[better]] < ranks[rubric][row[worse]]
            )
    return numbers
