"""Extract the answers of attempts and grade them, each pair of gold answer and answer once.

With `sampling.likelihood` an attempt chooses the option with the largest value instead.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa

from bayes_at_n import verifiers
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.store.columns import GRADES, KEY
from bayes_at_n.pipeline.store.outcomes import grade_settings
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.scoring.metrics import By
from bayes_at_n.scoring.metrics.probability import option_values
from bayes_at_n.scoring.numerics.inputs import Floats
from bayes_at_n.verifiers.maths.boxed import Extraction
from bayes_at_n.verifiers.maths.conventions import NO_ANSWER, Grade

Pair = tuple[str, str]  # gold answer, and answer or the whole text

QUESTION_FIELDS = ("question_id", "problem", "choices", "form")  # for the user's own graders
_cache: dict[str, dict[Pair, Grade]] = {}  # by `grade_settings`, for all runs of a process
_REASONS = {
    "no_box": NO_ANSWER.reason,
    "unclosed": "a box was opened but not closed",
    "truncated": "the attempt was cut off before it answered",
}


class Attempt(NamedTuple):
    """A response and its question, as returned by `store.runfolder.as_presented`."""

    question: Mapping[str, Any]  # gold, QUESTION_FIELDS, and `order` if its options were shuffled
    text: str
    truncated: bool


def whole_texts(cfg: RunConfig) -> bool:
    """Return whether the grader judges whole texts instead of extracted answers."""
    return cfg.grading.compat is not None or cfg.dataset.answer.startswith("python:")


def grade(cfg: RunConfig, attempts: Sequence[Attempt]) -> list[tuple[Extraction, Grade]]:
    """Extract and grade the answer of each attempt, in order.

    With `grading.compat` math_verify judges whole texts, and the user's own grader final parts.
    """
    whole_text, kind = whole_texts(cfg), cfg.dataset.answer
    boxes = answers = [_extract(cfg, a, "math" if whole_text else kind) for a in attempts]
    if cfg.grading.compat is not None:
        judged = grade_pairs(cfg, [(a.question["gold"], a.text) for a in attempts])
        return [*zip(boxes, judged, strict=True)]
    if whole_text:
        answers = [_extract(cfg, a, kind) for a in attempts]
    pairs, graded = list[Pair](), list[tuple[Extraction, Grade]]()
    for (question, *_), x in zip(attempts, answers, strict=True):
        if x.answer is not None:
            fields = {name: question[name] for name in QUESTION_FIELDS}
            text = verifiers.own.packed(x.answer, fields) if whole_text else x.answer
            pairs.append((question["gold"], text))
    grades = iter(grade_pairs(cfg, pairs))
    for (question, *_), box, x in zip(attempts, boxes, answers, strict=True):
        if x.answer is None:
            failed, reason = x.reason in ("timeout", "error"), x.how or _REASONS.get(x.reason, "")
            outcome: Any = x.reason if failed else "no_answer"
            grade = Grade(outcome, "limits" if failed else "none", reason, verifiers.grader(kind))
        else:
            grade = next(grades)
            if question["form"] == "strict":  # cached grades do not depend on the form
                grade = verifiers.in_form(grade, question["gold"], x.answer)
            if how := _in_table(x, question).how:  # differs between attempts with equal answers
                grade = grade._replace(reason=f"{grade.reason}, {how}")
        graded.append((_in_table(box, question), grade))
    return graded


def grade_pairs(cfg: RunConfig, pairs: Sequence[Pair]) -> list[Grade]:
    """Grade pairs, in order. Raises UserError: no worker processes, or no grader of the user."""
    grades = _cache.setdefault(json.dumps(grade_settings(cfg), sort_keys=True), {})
    if whole_texts(cfg):  # few texts are equal, and the cache would hold all of them
        grades = {}
    if pending := sorted({*pairs} - grades.keys()):
        limits = cfg.grading
        try:
            grades |= verifiers.grade(
                pending,
                answer=cfg.dataset.grader()[0],
                conventions=verifiers.Conventions(**asdict(cfg.dataset.conventions)),
                plain=limits.compat is not None,
                workers=limits.workers,
                timeout_s=limits.timeout_s,
                memory_mb=limits.memory_mb,
                sandbox=limits.sandbox,
                image=limits.image,
            )
        except RuntimeError as error:
            raise UserError(str(error)) from error
    return [grades[pair] for pair in pairs]


def _extract(cfg: RunConfig, attempt: Attempt, answer: str) -> Extraction:
    """Extract an answer; an exception becomes the reason that there is none."""
    gold, choices = attempt.question["gold"], tuple(attempt.question["choices"] or ())
    boxes = cast(Any, cfg.dataset.boxes)
    try:
        return verifiers.find(
            attempt.text,
            answer=answer,
            truncated=attempt.truncated,
            reasoning_end=cfg.model.reasoning_end,
            asked=verifiers.Asked(boxes, cfg.dataset.pattern or "", choices, gold),
        )
    except Exception as error:
        return Extraction(None, "error", verifiers.failed(error).reason)


def _in_table(extraction: Extraction, question: Mapping[str, Any]) -> Extraction:
    """Translate letters of shuffled options to those of the questions table."""
    order, letters = question.get("order", ()), (extraction.answer or "").split(", ")
    presented = verifiers.LETTERS[: len(order)]
    if not all(letter in presented and len(letter) == 1 for letter in letters):
        return extraction
    stored = sorted(verifiers.LETTERS[order[presented.index(letter)]] for letter in letters)
    how = f"{extraction.how}, shown as {extraction.answer}".removeprefix(", ")
    return extraction._replace(answer=", ".join(stored), how=how)


def likelihood_values(cfg: RunConfig, options: Any) -> Floats:
    """Return values of `options` (rows, most options) by `grading.likelihood`; -inf: no option."""
    options = options.combine_chunks()
    lengths, flat = options.value_lengths().to_numpy(), options.flatten()
    logprob, tokens, size, alone = (field.to_numpy() for field in flat.flatten())
    table = np.full((len(lengths), lengths.max(initial=1)), -np.inf)
    by = cast(By, cfg.grading.likelihood)
    found = option_values(logprob, tokens, size, alone, by)
    table[np.arange(table.shape[1]) < lengths[:, None]] = found
    return table


def by_likelihood(run: Run, rows: pa.Table) -> pa.Table:
    """Return the grades of attempts as a table: the letter of the option that was chosen."""
    golds = {row["question_id"]: row["gold"] for row in run.questions}
    right = [golds[name] for name in rows["question_id"].to_pylist()]
    scores = likelihood_values(run.cfg, rows["options"])
    chosen = [verifiers.LETTERS[i] for i in scores.argmax(axis=1)]
    margins = np.sort(scores, axis=1)[:, -2:]
    columns = {name: rows[name] for name in KEY} | {
        "has_box": [True] * len(chosen),
        "box": ["boxed"] * len(chosen),
        "answer": chosen,
        "outcome": ["correct" if a == b else "wrong" for a, b in zip(chosen, right, strict=True)],
        "layer": ["likelihood"] * len(chosen),
        "reason": [f"log-prob {best:.4f}, next {next_:.4f}" for next_, best in margins],
        "grader": [f"likelihood:{run.cfg.grading.likelihood}"] * len(chosen),
    }
    return pa.table(columns, schema=GRADES)
