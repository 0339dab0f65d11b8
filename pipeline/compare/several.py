"""Several datasets side by side: the score of every model on each, and its mean over all."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bayes_at_n.pipeline.base.console import percent
from bayes_at_n.pipeline.compare import leaderboard
from bayes_at_n.pipeline.compare.cohort import Cohort, by_line
from bayes_at_n.pipeline.config.analysis import AnalysisConfig
from bayes_at_n.pipeline.display.table import Column, Table
from bayes_at_n.pipeline.score.headline import named
from bayes_at_n.scoring.numerics.results import normal_quantile

_WIDE = ("half", "ranks", "rank", "rank_ci")


def scores(cohorts: Sequence[Cohort], cfg: AnalysisConfig) -> Table:
    """Tabulate models by datasets: scores, and of models on all of them the mean and its ranks.

    The mean weighs datasets by `dataset_weights`; its σ is that of independent scores. Models are
    ordered by the mean of their averages, those that lack a dataset last. Keys of the mean begin
    with "_", which no dataset's name does. CSV and JSON also hold, of each dataset, half-widths of
    intervals, ranges of ranks, and ranks by avg without and with `scoring.rule` (Table 2 of arXiv
    2510.04265). Raises UserError: as `leaderboard.scores`.
    """
    level, names = cfg.scoring.confidence, [cohort.dataset for cohort in cohorts]
    weights = np.array([cfg.dataset_weights.get(name, 1.0) for name in names])
    weights /= weights.mean()
    rows, priors = dict[str, dict[str, Any]](), dict[str, str]()
    for name, cohort in zip(names, cohorts, strict=True):
        scored = leaderboard.scores(cohort, cfg)
        score, sigma, low, high = scored.headline
        avg, avg_sigma, *_ = scored.avg
        values = {"score": score, "sigma": sigma, "half": (high - low) / 2}
        values |= {"ranks": leaderboard.ranges(avg, avg_sigma, level)}
        values |= {"avg": avg, "avg_sigma": avg_sigma}
        by_rule = leaderboard.ranks(scored, cfg)
        values |= {"rank": by_rule["none"], "rank_ci": by_rule[cfg.scoring.rule]}
        for i, model in enumerate(cohort.names):
            row = rows.setdefault(model, {"model": model})
            row |= {f"{name}_{key}": of[i] for key, of in values.items()}
            priors[f"{model} on {name}"] = str(scored.prior[i])
    whole = [row for row in rows.values() if all(f"{name}_score" in row for name in names)]
    for row in whole:
        for mean, key, spread in (("_mean", "score", "sigma"), ("_mean_avg", "avg", "avg_sigma")):
            row[mean] = np.mean(weights * [row[f"{name}_{key}"] for name in names])
            sigmas = weights * [row[f"{name}_{spread}"] for name in names]
            row[f"{mean}_sigma"] = np.linalg.norm(sigmas) / len(names)
        row["_mean_half"] = normal_quantile(level) * row["_mean_sigma"]
    if len(whole) > 1:
        averages, sigmas = ([row[key] for row in whole] for key in ("_mean_avg", "_mean_avg_sigma"))
        for row, may in zip(whole, leaderboard.ranges(averages, sigmas, level), strict=True):
            row["_ranks"] = may

    def place(row: dict[str, Any]) -> float:  # by the mean; after these by that of fewer datasets
        fewer = [row[f"{name}_avg"] for name in names if f"{name}_avg" in row]
        return -float(row.get("_mean_avg", np.mean(fewer) - 1))

    order = sorted(rows.values(), key=place)
    metric, prior = named(priors)
    of_mean = [
        *[Column("_ranks", "rank")] * (len(whole) > 1),
        Column("_mean", "mean", sigma="_mean_sigma", half="_mean_half", best=True),
        Column("_mean_half", "±", sigma="_mean_sigma", minor=1),
    ]
    columns = [Column("model", "model", align="left"), *of_mean * bool(whole)]
    for name in names:
        columns += [
            Column(f"{name}_score", name, sigma=f"{name}_sigma", half=f"{name}_half", best=True),
            *(Column(f"{name}_{key}", f"{name} {key}", wide=True) for key in _WIDE),
        ]
    halves = [
        row[f"{name}_half"] for row in rows.values() for name in names if f"{name}_score" in row
    ]
    notes = [
        f"{metric}{prior}; {percent(level)} intervals: ± {min(halves):.3f} to {max(halves):.3f}"
    ]
    if whole:
        wide = [row["_mean_half"] for row in whole]
        notes[0] += f", of the mean ± {min(wide):.3f} to {max(wide):.3f}"
        shares = ", ".join(f"{n} {w / len(names):.1%}" for n, w in zip(names, weights, strict=True))
        weighed = f"weighted: {shares}" if np.ptp(weights) else "equally weighted"
        notes.append(
            f"mean: of the datasets, {weighed}; rank: possible ranks by that mean,"
            f" {percent(level)} for all models at once"
        )
    sizes = {cohort.dataset: cohort.outcomes.shape[1:] for cohort in cohorts}
    if len({*sizes.values()}) == 1:
        sizes = {"each dataset": cohorts[0].outcomes.shape[1:]}
    notes += [f"{name}: {m} questions × {n} trials" for name, (m, n) in sizes.items()]
    unlike = by_line({cohort.dataset: cohort.differences for cohort in cohorts})
    notes += [f"differs: {line}" for line in unlike]
    return Table("scores by dataset", columns, order, notes)
