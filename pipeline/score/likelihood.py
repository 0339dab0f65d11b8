"""Score runs with `sampling.likelihood`: means over questions, each of which has one outcome."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.display.table import Column, Table
from bayes_at_n.pipeline.grade.attempts import likelihood_values
from bayes_at_n.pipeline.score import headline
from bayes_at_n.pipeline.store import outcomes, tables
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.scoring.metrics.probability import option_scores, question_mean
from bayes_at_n.scoring.numerics.inputs import UNIT, Floats
from bayes_at_n.scoring.numerics.results import Clusters, Summary, sample_summary
from bayes_at_n.verifiers import LETTERS

Parts = dict[str, Any]
_MOST = {"probability": 1.0, "brier": 2.0, "log_score": math.inf}  # of measures from 0 on


def by_question(run: Run) -> tuple[dict[str, Floats], list[str]]:
    """Compute what questions score, by measure, in the run's order, and their clusters."""
    table, ids = tables.streamed(run, "attempts", ["options"]), tables.question_ids(run)
    keys = tables.encode(table, ids)
    order = np.argsort(keys)[(keys < 0).sum() :]
    table, places = table.take(order), keys[order] >> 32
    found, right = dict[str, Floats](), np.zeros(len(places), np.int64)
    if run.cfg.sampling.likelihood == "options":
        right = np.array([LETTERS.index(run.questions[place]["gold"]) for place in places])
        scores = option_scores(likelihood_values(run.cfg, table["options"]), right)
        found["accuracy"] = (scores.chosen == right).astype(float)
        found |= {name: getattr(scores, name) for name in _MOST}
    gold = [options[i] for options, i in zip(table["options"].to_pylist(), right, strict=True)]
    found["bits_per_byte"] = np.array([-of["logprob"] / math.log(2) / of["bytes"] for of in gold])
    return found, np.array(outcomes.clusters(run))[places].tolist()


def measured(run: Run) -> dict[str, Parts]:
    """Average what the run's questions score, with intervals over questions, by measure.

    Raises UserError: fewer than two questions, or clusters of them, are scored.
    """
    (found, clusters), level = by_question(run), run.cfg.scoring.confidence
    if len({*clusters}) < 2:
        raise UserError(f"{run.path}: scores by likelihood need at least two questions")
    means = dict[str, Parts]()
    for name, of in found.items():
        mean, sigma, low, high = question_mean(of, level, clusters)
        summary = Summary(mean, sigma, max(low, 0.0), min(high, _MOST.get(name, math.inf)))
        means[name] = (accuracy(of, level, clusters) if name == "accuracy" else summary)._asdict()
    return means


def of_runs(runs: Mapping[str, Run]) -> Table | None:
    """Tabulate what runs by likelihood score; None without any. Raises what `measured` does."""
    rows = [
        {"model": name, "measure": measure.replace("_", " "), **of, "questions": len(run.questions)}
        for name, run in runs.items()
        for measure, of in (measured(run) if run.cfg.sampling.likelihood else {}).items()
    ]
    columns = [Column(key, key, align="left") for key in ("model", "measure")]
    columns += [Column(key, key, format="{:.3f}") for key in Summary._fields]
    columns.append(Column("questions", "questions"))
    return Table("scores by likelihood", columns, rows, [headline.OVER_QUESTIONS]) if rows else None


def accuracy(correct: Any, confidence: float, clusters: Clusters) -> Summary:
    """Average outcomes (..., M), of one trial that is not random, with an interval over questions.

    >>> [round(float(x), 2) for x in accuracy(np.array([1, 1, 1, 0]), 0.95, None)]
    [0.75, 0.25, 0.12, 1.0]
    """
    return sample_summary(np.asarray(correct, float), UNIT, confidence, clusters)
