"""Known grades of (gold, answer) pairs: each pair is compared once a process, for all its runs."""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple, cast

from bayes_at_n import verifiers
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.store import options
from bayes_at_n.pipeline.store.graded import settings
from bayes_at_n.verifiers import NO_ANSWER, Extraction, Grade

Pair = tuple[str, str]

SEEN = ("question_id", "problem", "choices", "form")  # of a question, by graders that ask for it
_known: dict[str, dict[Pair, Grade]] = {}  # by `graded.settings`
_NO_ANSWER = {
    "no_box": NO_ANSWER,
    "unclosed": NO_ANSWER._replace(reason="a box was opened and never closed"),
    "truncated": NO_ANSWER._replace(reason="the attempt was cut off before it answered"),
    "timeout": verifiers.Grade("timeout", "limits", ""),
    "error": verifiers.Grade("error", "limits", ""),
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
    """An attempt at a row of the questions table, with gold letter and options as it saw them."""
    shown = options.as_shown(cfg, question, trial)
    order = options.order(cfg, question, trial)
    return Attempt(shown["gold"], text, truncated, {n: shown[n] for n in SEEN}, order)


def whole(cfg: RunConfig) -> bool:
    """Whether whole texts are judged, not answers that are found in them."""
    return cfg.grading.compat is not None or cfg.dataset.answer.startswith("python:")


def find(cfg: RunConfig, attempt: Attempt, answer: str | None = None) -> Extraction:
    """The answer of an attempt, as the kind of answer of the data set, or another, has it.

    An exception of the grader is the reason why there is none: a response ends no command.
    """
    choices, boxes = tuple(attempt.question.get("choices") or ()), cast(Any, cfg.dataset.boxes)
    asked = verifiers.Asked(boxes, cfg.dataset.pattern or "", choices, attempt.gold)
    try:
        return verifiers.find(
            attempt.text,
            answer=answer or cfg.dataset.answer,
            truncated=attempt.truncated,
            reasoning_end=cfg.model.reasoning_end,
            asked=asked,
        )
    except Exception as error:
        return Extraction(None, "error", verifiers.failed(error).reason)


class KnownGrades:
    """Grades attempts, asking about no pair twice.

    With `grading.compat` math_verify judges whole texts, a user's own grader final parts; of those
    the box, if there is one, is only written down. Raises UserError: that grader is not there.
    """

    def __init__(self, cfg: RunConfig) -> None:
        self.cfg = cfg
        self.plain, self.whole = cfg.grading.compat is not None, whole(cfg)
        self.answer, _ = cfg.dataset.grader()
        self.grader = "math_verify" if self.plain else verifiers.grader(self.answer)
        self.known = _known.setdefault(json.dumps(settings(cfg), sort_keys=True), {})
        self.used: set[Pair] = set()

    def attempts(self, attempts: Sequence[Attempt]) -> list[tuple[Extraction, Grade]]:
        """What is extracted from each attempt, in order, and its grade."""
        found = boxes = [find(self.cfg, attempt) for attempt in attempts]
        if self.whole:
            boxes = [find(self.cfg, attempt, "math") for attempt in attempts]
        if self.plain:
            grades = self.pairs([(attempt.gold, attempt.text) for attempt in attempts])
            return list(zip(boxes, grades, strict=True))
        pairs = [
            (a.gold, verifiers.own.packed(x.answer, a.question) if self.whole else x.answer)
            for a, x in zip(attempts, found, strict=True)
            if x.answer is not None
        ]
        judged = iter(self.pairs(pairs))
        graded = []
        for box, a, x in zip(boxes, attempts, found, strict=True):
            if x.answer is None:
                grade = _NO_ANSWER[x.reason]._replace(grader=self.grader)
                grade = grade._replace(reason=x.how or grade.reason)
            else:
                grade = next(judged)
                if a.question.get("form") == "strict":  # grades are known without the form
                    grade = verifiers.in_form(grade, a.gold, x.answer)
                if how := _in_table(x, a).how:  # other attempts with the answer need not share it
                    grade = grade._replace(reason=f"{grade.reason}, {how}")
            graded.append((_in_table(box, a), grade))
        return graded

    def pairs(self, pairs: Sequence[Pair]) -> list[Grade]:
        """The grade of each pair, in order.

        Raises UserError: worker processes cannot be started.
        """
        keys = [(gold, _hashed(text) if self.whole else text) for gold, text in pairs]
        owed = {k: p for k, p in zip(keys, pairs, strict=True) if k not in self.known}
        if owed:
            limits = self.cfg.grading
            try:
                grades = verifiers.grade(
                    [owed[key] for key in sorted(owed)],
                    answer=self.answer,
                    conventions=verifiers.Conventions(**asdict(self.cfg.dataset.conventions)),
                    plain=self.plain,
                    workers=limits.workers,
                    timeout_s=limits.timeout_s,
                    memory_mb=limits.memory_mb,
                )
            except RuntimeError as error:
                raise UserError(str(error)) from error
            self.known |= {key: grades[pair] for key, pair in owed.items()}
        self.used.update(keys)
        return [self.known[key] for key in keys]

    def summary(self) -> str:
        """How many distinct pairs there were, and the share that each layer decided."""
        layers = Counter(self.known[pair].layer for pair in self.used)
        shares = [f"{name} {n / len(self.used):.1%}" for name, n in layers.most_common()]
        return f"{len(self.used)} distinct pairs" + (f": {', '.join(shares)}" if shares else "")


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _in_table(found: Extraction, attempt: Attempt) -> Extraction:
    """Letters as the questions table has them, where an attempt saw its options otherwise."""
    letters = (found.answer or "").split(", ")
    known = verifiers.LETTERS[: len(attempt.order)]
    if not all(letter in known and len(letter) == 1 for letter in letters):
        return found
    stored = sorted(verifiers.LETTERS[attempt.order[known.index(letter)]] for letter in letters)
    how = f"{found.how}, shown as {found.answer}".removeprefix(", ")
    return found._replace(answer=", ".join(stored), how=how)
