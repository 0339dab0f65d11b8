"""What answers say of themselves: stated confidence against outcomes, and answers not attempted."""

import re
from typing import Any

import numpy as np

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.console import percent
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
    keys, said = keys_of(found), list[tuple[float, bool, int]]()
    right = found.codes[found.codes != PENDING] == CORRECT
    for i, text in rowkeys.responses(run, keys, parquet.Damage()):
        start = final_part(text, run.cfg.model.reasoning_end)
        share = None if start is None else stated_confidence(text[start:])
        if share is not None:
            said.append((share, bool(right[i]), keys[i] >> 32))
    if not said:
        return None
    (stated, true, questions), level = np.array(said, float).T, run.cfg.scoring.confidence
    error, low, high = scoring.confidence_error(stated, true, questions=questions, level=level)
    mean, correct, without = float(stated.mean()), float(true.mean()), keys.size - len(said)
    record = {"error": error, "low": low, "high": high, "mean": mean, "correct": correct}
    return record | {"without": without, "attempts": len(said)}, (
        f"stated confidence {mean:.1%}, correct {correct:.1%}: RMS calibration error {error:.1%}"
        f" ({percent(level)} interval without chance's part: {low:.1%} to {high:.1%};"
        f" {len(said):,} attempts state one, {without:,} do not)"
    )


def attempted(run: Run, found: Outcomes) -> tuple[dict[str, Any], str] | None:
    """Compute SimpleQA's F-score where the judge's own outcome is that nothing was attempted."""
    if found.judged is None or run.cfg.verifier.kind != "generate":  # C of others is "invalid"
        return None
    if not (passed := found.judged & (found.codes == NO_ANSWER)).any():
        return None
    kinds: Any = np.ma.array(2 * passed + (found.codes == CORRECT), mask=found.codes == PENDING)  # type: ignore[no-untyped-call]
    silent, right = (float((kinds == kind).mean()) for kind in (2, 1))
    value, low, high = scoring.attempted_f(kinds, level := run.cfg.scoring.confidence)
    of_attempted = right / (1 - silent) if silent < 1 else 0.0
    shares = {"not_attempted": silent, "correct_of_attempted": of_attempted}
    return shares | {"f_score": value, "f_low": low, "f_high": high}, (
        f"not attempted {silent:.1%}; correct of attempted {of_attempted:.1%},"
        f" F-score {value:.3f} ({percent(level)}: {low:.3f} to {high:.3f})"
    )
