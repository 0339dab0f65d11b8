"""Find the answers of attempts and grade them, each pair of gold answer and answer once."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple, cast

from bayes_at_n import verifiers
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.store import options
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
    """What grading needs to know of an attempt, and of its question where the kind asks for it."""

    gold: str
    text: str
    truncated: bool
    question: dict[str, Any] = {}  # noqa: RUF012 (never written to): `SEEN` of it
    order: tuple[int, ...] = ()  # of its options, see store.options.order


def attempt(
    cfg: RunConfig, question: dict[str, Any], trial: int, text: str, truncated: bool
) -> Attempt:
    """Return an attempt at a question of a run, with gold letter and options as it saw them."""
    shown = options.as_shown(cfg, question, trial)
    order = options.order(cfg, question, trial)
    return Attempt(shown["gold"], text, truncated, {n: shown[n] for n in SEEN}, order)


def whole(cfg: RunConfig) -> bool:
    """Return whether whole texts are judged, not answers that are found in them."""
    return cfg.grading.compat is not None or cfg.dataset.answer.startswith("python:")


def grade(cfg: RunConfig, attempts: Sequence[Attempt]) -> list[tuple[Extraction, Grade]]:
    """Find and grade the answer of each attempt, in order.

    With `grading.compat` math_verify judges whole texts, a user's own grader final parts; of those
    the box, if there is one, is only written down. Raises UserError: as `grade_pairs`.
    """
    boxes = found = [_find(cfg, a, "math" if whole(cfg) else cfg.dataset.answer) for a in attempts]
    if cfg.grading.compat is not None:
        return [*zip(boxes, grade_pairs(cfg, [(a.gold, a.text) for a in attempts]), strict=True)]
    if whole(cfg):
        found = [_find(cfg, a, cfg.dataset.answer) for a in attempts]
    pairs = [
        (a.gold, verifiers.own.packed(x.answer, a.question) if whole(cfg) else x.answer)
        for a, x in zip(attempts, found, strict=True)
        if x.answer is not None
    ]
    judged, graded = iter(grade_pairs(cfg, pairs)), []
    for a, box, x in zip(attempts, boxes, found, strict=True):
        if x.answer is None:
            outcome: Any = x.reason if x.reason in ("timeout", "error") else "no_answer"
            layer = "none" if outcome == "no_answer" else "limits"
            why, grader = x.how or _WHY.get(x.reason, ""), verifiers.grader(cfg.dataset.answer)
            grade = Grade(outcome, layer, why, grader)
        else:
            grade = next(judged)
            if a.question.get("form") == "strict":  # grades are known without the form
                grade = verifiers.in_form(grade, a.gold, x.answer)
            if how := _in_table(x, a).how:  # other attempts with the answer need not share it
                grade = grade._replace(reason=f"{grade.reason}, {how}")
        graded.append((_in_table(box, a), grade))
    return graded


def grade_pairs(cfg: RunConfig, pairs: Sequence[Pair]) -> list[Grade]:
    """Grade pairs, in order.

    Raises UserError: worker processes cannot be started; a user's own grader is not there.
    """
    known = _known.setdefault(json.dumps(settings(cfg), sort_keys=True), {})
    if whole(cfg):  # few are the same, and memory would hold all texts
        known = {}
    if owed := sorted({*pairs} - known.keys()):
        limits = cfg.grading
        try:
            known |= verifiers.grade(
                owed,
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
    choices, boxes = tuple(attempt.question.get("choices") or ()), cast(Any, cfg.dataset.boxes)
    try:
        return verifiers.find(
            attempt.text,
            answer=answer,
            truncated=attempt.truncated,
            reasoning_end=cfg.model.reasoning_end,
            asked=verifiers.Asked(boxes, cfg.dataset.pattern or "", choices, attempt.gold),
        )
    except Exception as error:
        return Extraction(None, "error", verifiers.failed(error).reason)


def _in_table(found: Extraction, attempt: Attempt) -> Extraction:
    """Name letters as the questions table does, where an attempt saw its options otherwise."""
    letters = (found.answer or "").split(", ")
    known = verifiers.LETTERS[: len(attempt.order)]
    if not all(letter in known and len(letter) == 1 for letter in letters):
        return found
    stored = sorted(verifiers.LETTERS[attempt.order[known.index(letter)]] for letter in letters)
    how = f"{found.how}, shown as {found.answer}".removeprefix(", ")
    return found._replace(answer=", ".join(stored), how=how)
