"""Scores before and since a date: whether a model knows the questions from its training data."""

from typing import Any

import numpy as np

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.console import percent, plural
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.score.by_category import before_and_since
from bayes_at_n.pipeline.store import outcomes
from bayes_at_n.pipeline.store.runfolder import Run


def compared(run: Run, matrix: Any) -> dict[str, Any] | None:
    """Compare questions before `dataset.since` with later ones; None without that setting.

    `matrix`: outcomes (M, N), masked where pending. Questions without a date or a trial are left
    out. Returns `before` and `since` (`pool_ci`, and their `questions`), `difference`, since minus
    before, and a sentence. Raises UserError: fewer than two questions or clusters on one side.
    """
    if (day := run.cfg.dataset.since) is None:
        return None
    begun, clusters = np.ma.count(matrix, axis=1) > 0, np.array(outcomes.clusters(run))
    dates = [
        row["date"] if any_trial else None
        for row, any_trial in zip(run.questions, begun, strict=True)
    ]
    sides = before_and_since(day, dates)
    if min(len({*clusters[side]}) for side in sides) < 2:
        known = sorted({date for date in dates if date})
        span = f"dates are {known[0]} to {known[-1]}" if known else "set dataset.fields.date=COLUMN"
        raise UserError(
            f"dataset.since={day}: {int(sides[0].sum())} questions of {run.path} are of before and"
            f" {int(sides[1].sum())} of since then; two of each are needed: {span}"
        )
    level, parts = run.cfg.scoring.confidence, [(matrix[side], clusters[side]) for side in sides]
    before, since = (
        scoring.pool_ci(of, None, level, labels)._asdict() | {"questions": len(labels)}
        for of, labels in parts
    )
    (old, old_labels), (new, new_labels) = parts
    gap = scoring.difference_ci(new, old, level, new_labels, old_labels)
    change = "no change is shown"
    if gap.low > 0:
        change = "higher since then"
    if gap.high < 0:
        change = "lower since then: the earlier ones are known from training, or easier"
    sentence = (
        f"{before['value']:.3f} on {plural(before['questions'], 'question')} before {day},"
        f" {since['value']:.3f} on {since['questions']:,} since then: {gap.value:+.3f}"
        f" ({percent(level)}: {gap.low:+.3f} to {gap.high:+.3f}, with both as samples), {change}"
    )
    found = {"date": day, "before": before, "since": since, "difference": gap._asdict()}
    return found | {"sentence": sentence}
