"""What answers say of themselves: stated confidence against outcomes, and answers not attempted."""

import re
from typing import Any

import numpy as np

from bayes_at_n import scoring
from bayes_at_n.pipeline.score.people import keys_of
from bayes_at_n.pipeline.store import parquet, rowkeys
from bayes_at_n.pipeline.store.outcomes import CORRECT, NO_ANSWER, PENDING, Outcomes
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.verifiers.maths.boxed import final_part

_STATED = re.compile(r"confidence\W{0,12}(\d{1,3}(?:\.\d{1,9})?)\s*(%?)", re.IGNORECASE)
_END = 2000  # characters of an answer that may state it


def stated_confidence(text: str) -> float | None:
    """Return the last confidence that an answer states, 0 to 1; None: none, or above 100%.

    >>> [stated_confidence(f"**Confidence:** {said}") for said in ("85%", "0.7", "120")]
    [0.85, 0.7, None]
    """
    found = _STATED.findall(text[-_END:])
    if not found:
        return None
    number, percent = float(found[-1][0]), found[-1][1]
    share = number if "." in found[-1][0] and number <= 1 and not percent else number / 100
    return share if share <= 1 else None


def confidence(run: Run, found: Outcomes) -> tuple[dict[str, Any], str] | None:
    """Measure the calibration of the confidences that answers state; None if no prompt asks for it.

    Answers without one are left out and counted.
    """
    asked = [*run.cfg.prompt.templates, run.cfg.model.system or ""]
    if not any("confidence" in text.lower() for text in asked):
        return None
    keys, said = keys_of(found), list[tuple[float, bool]]()
    right = found.codes[found.codes != PENDING] == CORRECT
    for i, text in rowkeys.responses(run, keys, parquet.Damage()):
        start = final_part(text, run.cfg.model.reasoning_end)
        share = None if start is None else stated_confidence(text[start:])
        if share is not None:
            said.append((share, bool(right[i])))
    if not said:
        return None
    stated, true = np.array(said, float).T
    error = scoring.confidence_error(stated, true)
    mean, correct, without = float(stated.mean()), float(true.mean()), keys.size - len(said)
    record = {"error": error, "mean": mean, "correct": correct, "without": without}
    return record | {"attempts": len(said)}, (
        f"stated confidence {mean:.1%}, correct {correct:.1%}: RMS calibration error {error:.1%}"
        f" ({len(said):,} attempts state one, {without:,} do not)"
    )


def attempted(run: Run, found: Outcomes) -> tuple[dict[str, Any], str] | None:
    """Compute SimpleQA's F-score where the judge's own outcome is that nothing was attempted."""
    if found.judged is None or run.cfg.verifier.kind != "generate":  # C of others is "invalid"
        return None
    if not (passed := found.judged & (found.codes == NO_ANSWER)).any():
        return None
    total = int((found.codes != PENDING).sum())
    not_attempted, correct = passed.sum() / total, (found.codes == CORRECT).sum() / total
    shares = {
        "not_attempted": float(not_attempted),
        "correct_of_attempted": float(correct / (1 - not_attempted)) if not_attempted < 1 else 0.0,
        "f_score": scoring.attempted_f(float(correct), float(not_attempted)),
    }
    return shares, (
        f"not attempted {not_attempted:.1%}; correct of attempted"
        f" {shares['correct_of_attempted']:.1%}, F-score {shares['f_score']:.3f}"
    )
