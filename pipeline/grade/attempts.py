"""Find the answers of attempts and grade them, each pair of gold answer and answer once."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple, cast

from bayes_at_n import verifiers
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.store.graded import settings
from bayes_at_n.verifiers.maths.boxed import Extraction
from bayes_at_n.verifiers.maths.conventions import NO_ANSWER, Grade

Pair = tuple[str, str]  # gold answer and answer, or the whole text where that is judged

SEEN = ("question_id", "problem", "choices", "form")  # of a question, by graders that ask for it
_known: dict[str, dict[Pair, Grade]] = {}  # by `graded.settings`, for all runs of this process
_WHY = {
    "no_box": NO_ANSWER.reason,
    "unclosed": "a box was opened and never closed",
    "truncated": "the attempt was cut off before it answered",
}


class Attempt(NamedTuple):
    """A response, and what the attempt saw of its question, as `store.runfolder.as_presented`."""

    question: Mapping[str, Any]  # gold, `SEEN`, and `order` where its options had their own
    text: str
    truncated: bool


def whole(cfg: RunConfig) -> bool:
    """Return whether whole texts are judged, not answers that are found in them."""
    return cfg.grading.compat is not None or cfg.dataset.answer.startswith("python:")


def grade(cfg: RunConfig, attempts: Sequence[Attempt]) -> list[tuple[Extraction, Grade]]:
    """Find and grade the answer of each attempt, in order.

    With `grading.compat` math_verify judges whole texts, a user's own grader final parts; of those
    the box, if there is one, is only written down. Raises UserError: as `grade_pairs`.
    """
    own, kind = whole(cfg), cfg.dataset.answer
    boxes = found = [_find(cfg, a, "math" if own else kind) for a in attempts]
    if cfg.grading.compat is not None:
        judged = grade_pairs(cfg, [(a.question["gold"], a.text) for a in attempts])
        return [*zip(boxes, judged, strict=True)]
    if own:
        found = [_find(cfg, a, kind) for a in attempts]
    pairs, graded = list[Pair](), list[tuple[Extraction, Grade]]()
    for (question, *_), x in zip(attempts, found, strict=True):
        if x.answer is not None:
            seen = {name: question[name] for name in SEEN}
            text = verifiers.own.packed(x.answer, seen) if own else x.answer
            pairs.append((question["gold"], text))
    grades = iter(grade_pairs(cfg, pairs))
    for (question, *_), box, x in zip(attempts, boxes, found, strict=True):
        if x.answer is None:
            failed, why = x.reason in ("timeout", "error"), x.how or _WHY.get(x.reason, "")
            outcome: Any = x.reason if failed else "no_answer"
            grade = Grade(outcome, "limits" if failed else "none", why, verifiers.grader(kind))
        else:
            grade = next(grades)
            if question["form"] == "strict":  # grades are known without the form
                grade = verifiers.in_form(grade, question["gold"], x.answer)
            if how := _in_table(x, question).how:  # others with the answer need not share it
                grade = grade._replace(reason=f"{grade.reason}, {how}")
        graded.append((_in_table(box, question), grade))
    return graded


def grade_pairs(cfg: RunConfig, pairs: Sequence[Pair]) -> list[Grade]:
    """Grade pairs, in order.

    Raises UserError: worker processes cannot be started; a user's own grader is not there.
    """
    known = _known.setdefault(json.dumps(settings(cfg), sort_keys=True), {})
    if whole(cfg):  # few are the same, and memory would hold all texts
        known = {}
    if pending := sorted({*pairs} - known.keys()):
        limits = cfg.grading
        try:
            known |= verifiers.grade(
                pending,
                answer=cfg.dataset.grader()[0],
                conventions=verifiers.Conventions(**asdict(cfg.dataset.conventions)),
                plain=limits.compat is not None,
                workers=limits.workers,
                timeout_s=limits.timeout_s,
                memory_mb=limits.memory_mb,
            )
        except RuntimeError as error:
            raise UserError(str(error)) from error
    return [known[pair] for pair in pairs]


def _find(cfg: RunConfig, attempt: Attempt, answer: str) -> Extraction:
    """Find an answer; an exception of the grader is why there is none: no response ends a run."""
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


def _in_table(found: Extraction, question: Mapping[str, Any]) -> Extraction:
    """Name letters as the questions table does, where an attempt saw its options otherwise."""
    order, letters = question.get("order", ()), (found.answer or "").split(", ")
    known = verifiers.LETTERS[: len(order)]
    if not all(letter in known and len(letter) == 1 for letter in letters):
        return found
    stored = sorted(verifiers.LETTERS[order[known.index(letter)]] for letter in letters)
    how = f"{found.how}, shown as {found.answer}".removeprefix(", ")
    return found._replace(answer=", ".join(stored), how=how)
