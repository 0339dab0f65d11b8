"""What answers say beyond right and wrong: equal ones, votes, stated confidence, not attempted.

Answers are equal by the grader and not by their text; nothing of that is stored. All correct
attempts are one class. Wrong answers of a question are compared like an answer with a gold answer,
and each joins the class of the most common text that it equals: equality is not transitive.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.console import percent
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.grade.attempts import Pair, grade_pairs, whole_texts
from bayes_at_n.pipeline.rubrics import signals
from bayes_at_n.pipeline.score.labels import keys_of
from bayes_at_n.pipeline.store import shards, tables
from bayes_at_n.pipeline.store.outcomes import (
    CORRECT,
    NO_ANSWER,
    OUTCOMES,
    PENDING,
    WRONG,
    Outcomes,
    graded,
)
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.scoring.metrics.metric import ANSWERS, CONFIDENCE, VERIFIER, Metric
from bayes_at_n.verifiers.maths.boxed import final_part

MOST = 50  # wrong texts of a question that are compared; each further one is its own class
NONE, RIGHT = 0, 1
_SIGNALS = {CONFIDENCE: ("completion_bpt", "log-probs"), VERIFIER: ("a", "verdict")}
_STATED = re.compile(r"confidence\W{0,12}(\d{1,3}(?:\.\d{1,9})?)\s*(%?)", re.IGNORECASE)
_END = 2000  # characters of an answer that may state it


def classes_of(run: Run) -> tables.Ints:
    """Return the class of each attempt's answer: PENDING, NONE, RIGHT, or a wrong one; (M, N).

    Wrong answers of a question are 2, 3, ..., from the most common one on. Answers that the rule
    grader could not compare with the gold answer are equal if their texts are. Raises UserError:
    wrong attempts have no answer text, as in imported matrices.
    """
    ids, right, no_answer = tables.question_ids(run), OUTCOMES[CORRECT], OUTCOMES[NO_ANSWER]
    table = graded(run, ["answer"])
    kept, cells = tables.cells(tables.encode(table, ids), run.cfg.sampling.trials)
    codes = np.full((len(ids), run.cfg.sampling.trials), PENDING, np.int64)
    wrong = list[tuple[int, int, str]]()
    comparable = set[tuple[int, str]]()  # wrong texts that were compared with the gold answer
    counts, missing = [Counter[str]() for _ in ids], 0  # of texts, by question
    columns = [table[name].to_numpy()[kept] for name in ("outcome", "ruled", "answer")]
    for question, trial, outcome, ruled, text in zip(*cells, *columns, strict=True):
        if outcome is not None:
            codes[question, trial] = RIGHT if outcome == right else NONE
        if outcome in (None, right, no_answer):
            continue
        if text is None:
            missing += ruled == OUTCOMES[WRONG]
            continue
        wrong.append((question, trial, text))
        counts[question][text] += 1
        if ruled in (right, OUTCOMES[WRONG]):
            comparable.add((question, text))
    if missing:
        raise UserError(f"{run.path}: {missing} wrong attempts have no answer text")
    ranked = [sorted(texts, key=lambda text: (-texts[text], text)) for texts in counts]
    cfg = replace(run.cfg, grading=replace(run.cfg.grading, compat=None))
    pairs = [
        pair
        for question, texts in enumerate(ranked)
        for pair in combinations([t for t in texts if (question, t) in comparable][:MOST], 2)
        if not whole_texts(cfg)  # the user's own grader judges whole texts, not answers
    ]
    grades = zip(pairs, grade_pairs(cfg, pairs), strict=True)
    equal = {pair for pair, grade in grades if grade.outcome == right}
    classes = [_classes(*question, equal) for question in zip(ranked, counts, strict=True)]
    for question, trial, text in wrong:
        codes[question, trial] = classes[question][text]
    return codes


def _classes(texts: list[str], counts: Counter[str], equal: set[Pair]) -> dict[str, int]:
    """Return the code of each text, the most common class first."""
    leader, sizes = dict[str, str](), Counter[str]()
    for text in texts:
        leader[text] = next((one for one in sizes if (one, text) in equal), text)
        sizes[leader[text]] += counts[text]
    codes = {one: RIGHT + 1 + i for i, (one, _) in enumerate(sizes.most_common())}
    return {text: codes[one] for text, one in leader.items()}


class Evidence(NamedTuple):
    """What votes of a run are made from: arrays (M, N), by the names that metrics have."""

    arrays: dict[str, Any]  # "answers", masked where pending, and scores
    lacking: dict[str, str]  # why others are not there


NOTHING = Evidence({}, {ANSWERS: "no run, so no answers"})


def evidence(run: Run, question_ids: Sequence[str]) -> Evidence:
    """Read the answers of these questions, and the scores that all attempts with an answer have.

    The confidence of an attempt is the geometric mean of the probabilities of its tokens, 2 to the
    power of minus its bits per token; the verifier's score is its calibrated P(A).
    """
    try:
        found = classes_of(run)
    except UserError as error:
        return Evidence({}, {ANSWERS: str(error)})
    ids = pa.array(question_ids, pa.string())
    rows = pc.index_in(ids, tables.question_ids(run)).to_numpy()
    answers: Any = np.ma.masked_equal(found[rows], PENDING)  # type: ignore[no-untyped-call]
    evidence = Evidence({ANSWERS: answers}, {})
    try:
        table = signals.read(run)
    except UserError as error:
        return evidence._replace(lacking=dict.fromkeys(_SIGNALS, str(error)))
    for name, (signal, noun) in _SIGNALS.items():
        values = table[signal].to_numpy().astype(np.float64)
        scores = tables.placed(table, ids, values, answers.shape, np.nan)
        if lost := int((np.isnan(scores) & (answers.filled(PENDING) > NONE)).sum()):
            evidence.lacking[name] = f"{run.path}: {lost} attempts with an answer have no {noun}"
        else:
            evidence.arrays[name] = np.exp2(-scores) if name == CONFIDENCE else scores
    return evidence


def left_out(metrics: Sequence[Metric], evidence: Evidence) -> dict[str, str]:
    """Say why metrics cannot be made of the evidence, by their names; nothing of the others."""
    whys = evidence.lacking
    return {m.name: whys[name] for m in metrics for name in m.of[::-1] if name in whys}


def stated_confidence(text: str) -> float | None:
    """Return the last confidence that an answer states, 0 to 1; None: none, or above 100%.

    >>> [stated_confidence(f"**Confidence:** {said}") for said in ("85%", "0.7", "120")]
    [0.85, 0.7, None]
    >>> stated_confidence("Confidence: 10% of a 95% confidence interval"), stated_confidence("95%")
    (0.1, None)
    """
    found = _STATED.findall(text[-_END:])
    if not found:
        return None
    number, percent = float(found[-1][0]), found[-1][1]
    share = number if "." in found[-1][0] and number <= 1 and not percent else number / 100
    return share if share <= 1 else None


def stated(run: Run, found: Outcomes) -> tuple[dict[str, Any], str] | None:
    """Measure the calibration of the confidences that answers state; None if none does."""
    keys, said = keys_of(found), list[tuple[float, bool, int]]()
    right = found.codes[found.codes != PENDING] == CORRECT
    for i, text in tables.responses(run, keys, shards.Damage()):
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
    """Compute SimpleQA's F-score; None if the judge finds every answer to be an attempt."""
    if not (passed := np.asarray(found.judged) & (found.codes == NO_ANSWER)).any():
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
