"""Score runs with `sampling.likelihood`: means over questions, each of which has one outcome."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.grade.likelihood import values
from bayes_at_n.pipeline.store import outcomes, rowkeys, runfolder
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.scoring.metrics.options import option_scores, question_mean
from bayes_at_n.scoring.numerics.results import Clusters, Summary
from bayes_at_n.verifiers import LETTERS

Parts = dict[str, Any]
_MOST = {"probability": 1.0, "brier": 2.0, "log_score": math.inf}  # of measures from 0 on
_ENDLESS = 10**9  # equal trials of a question, which leave no uncertainty about it


def measured(run: Run) -> dict[str, Parts]:
    """Compute the means of what the run's questions score, with intervals over questions.

    Returns value, sigma, low and high of each measure in `shown.BY_LIKELIHOOD`; with
    likelihood=gold of bits per byte only. Raises UserError: fewer than two questions, or clusters
    of them, are scored.
    """
    table, ids = rowkeys.streamed(run, "attempts", ["options"]), rowkeys.question_ids(run)
    keys = rowkeys.encode(table, ids)
    table, places = table.filter(pa.array(keys >= 0)), keys[keys >= 0] >> 32
    clusters, level = np.array(outcomes.clusters(run))[places], run.cfg.scoring.confidence
    if len({*clusters}) < 2:
        raise UserError(f"{run.path}: scores by likelihood need at least two questions")
    found, right = dict[str, Summary](), np.zeros(len(places), np.int64)
    if run.cfg.sampling.likelihood == "options":
        right = np.array([LETTERS.index(run.questions[place]["gold"]) for place in places])
        scores = option_scores(values(run.cfg, table["options"]), right)
        found["accuracy"] = accuracy(scores.chosen == right, level, clusters)
        for name, most in _MOST.items():
            mean, sigma, low, high = question_mean(getattr(scores, name), level, clusters)
            found[name] = Summary(mean, sigma, max(low, 0.0), min(high, most))
    gold = [options[i] for options, i in zip(table["options"].to_pylist(), right, strict=True)]
    bits = np.array([-one["logprob"] / math.log(2) / one["bytes"] for one in gold])
    found["bits_per_byte"] = question_mean(bits, level, clusters)
    return {name: summary._asdict() for name, summary in found.items()}


def accuracy(correct: Any, confidence: float, clusters: Clusters) -> Summary:
    """Average outcomes (..., M), of one trial that is not random, with an interval over questions.

    >>> [round(float(x), 2) for x in accuracy(np.array([1, 1, 1, 0]), 0.95, None)]
    [0.75, 0.25, 0.12, 1.0]
    """
    endless = scoring.Counts(np.eye(2, dtype=np.int64)[np.asarray(correct, int)] * _ENDLESS)
    value, _, *ends = scoring.pool_ci(endless, None, confidence, clusters)
    return Summary(value, scoring.question_stderr(endless, clusters=clusters), *ends)


def headline(run: Run, found: Mapping[str, Parts]) -> Parts:
    """Return the score to report, in the form of `score.headline.headline`."""
    metric, of = next(iter(found.items()))
    return {"metric": metric, "prior": run.cfg.sampling.likelihood, **of}


def of_gold_texts(run: Run) -> Parts:
    """Score gold texts, which have no outcomes: what `scores.json` is to hold.

    Raises UserError: nothing was generated, or see `measured`.
    """
    drawn = outcomes.clusters(run)
    return {
        "run": str(run.path),
        "model": run.cfg.model.name,
        "dataset": run.cfg.dataset.name,
        "questions": len(run.questions),
        "clusters": len({*drawn}),
        "trials": 1,
        "attempts": len(run.questions) - len(runfolder.pending(run)),
        "confidence": run.cfg.scoring.confidence,
        "headline": headline(run, found := measured(run)),
        "likelihood": found,
        "metrics": {},
    }
