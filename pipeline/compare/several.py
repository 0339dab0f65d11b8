"""Several data sets side by side: the score of every model on each, and its mean over all."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bayes_at_n.pipeline.base.console import percent
from bayes_at_n.pipeline.compare import leaderboard
from bayes_at_n.pipeline.compare.cohort import Cohort
from bayes_at_n.pipeline.config.analysis import AnalysisConfig
from bayes_at_n.pipeline.display.table import Column, Table
from bayes_at_n.pipeline.score.headline import named
from bayes_at_n.scoring.numerics.results import normal_quantile


def scores(cohorts: Sequence[Cohort], cfg: AnalysisConfig) -> Table:
    """Tabulate models by data sets: scores, and of models on all of them the mean and its ranks.

    The mean gives each data set equal weight; its σ is that of independent scores. Models are
    ordered by the mean of their averages, those that lack a data set last. Keys of the mean begin
    with "_", which no data set's name does. CSV and JSON also hold half-widths of intervals and
    ranks on each data set. Raises UserError: as `leaderboard.scores`.
    """
    level, names = cfg.scoring.confidence, [cohort.dataset for cohort in cohorts]
    rows: dict[str, dict[str, Any]] = {}
    priors, z = dict[str, str](), normal_quantile(level)
    for cohort in cohorts:
        scored = leaderboard.scores(cohort, cfg)
        ranges = leaderboard.ranges(*scored.avg[:2], level)
        for i, model in enumerate(cohort.names):
            value, sigma, low, high = (float(of[i]) for of in scored.headline)
            keys = {
                "_score": value,
                "_sigma": sigma,
                "_half": (high - low) / 2,
                "_ranks": ranges[i],
            }
            keys["_avg"], keys["_avg_sigma"] = (float(of[i]) for of in scored.avg[:2])
            row = rows.setdefault(model, {"model": model})
            row |= {f"{cohort.dataset}{key}": of for key, of in keys.items()}
            priors[f"{model} on {cohort.dataset}"] = str(scored.prior[i])
    whole = [row for row in rows.values() if all(f"{name}_score" in row for name in names)]
    for row in whole:
        row["_mean"] = np.mean([row[f"{name}_score"] for name in names])
        row["_mean_sigma"] = np.linalg.norm([row[f"{name}_sigma"] for name in names]) / len(names)
        row["_mean_half"] = z * row["_mean_sigma"]
        row["_mean_avg"] = np.mean([row[f"{name}_avg"] for name in names])
        spread = np.linalg.norm([row[f"{name}_avg_sigma"] for name in names]) / len(names)
        row["_mean_avg_sigma"] = spread
    if len(whole) > 1:
        averages, sigmas = ([row[f"_mean_{key}"] for row in whole] for key in ("avg", "avg_sigma"))
        of_mean = leaderboard.ranges(averages, sigmas, level)
        for row, may in zip(whole, of_mean, strict=True):
            row["_ranks"] = may
    order = sorted(rows.values(), key=lambda row: -row.get("_mean_avg", -np.inf))
    metric, prior = named(priors)
    columns = [
        Column("model", "model", align="left"),
        *[Column("_ranks", "rank")] * (len(whole) > 1),
        Column("_mean", "mean", sigma="_mean_sigma", best=True),
        Column("_mean_half", "±", sigma="_mean_sigma"),
    ]
    for name in names:
        columns += [
            Column(f"{name}_score", name, sigma=f"{name}_sigma", best=True),
            *(Column(f"{name}_{key}", f"{name} {key}", wide=True) for key in ("half", "ranks")),
        ]
    halves = [
        row[f"{name}_half"] for row in rows.values() for name in names if f"{name}_score" in row
    ]
    notes = [
        f"{metric}{prior}; mean: of the data sets, each of equal weight, ± half of its"
        f" {percent(level)} interval; a single score ± {min(halves):.2g} to {max(halves):.2g}",
        f"rank: ranks that a model may have by its mean, {percent(level)} for all models at once",
    ]
    return Table("scores on several data sets", columns, order, notes)
