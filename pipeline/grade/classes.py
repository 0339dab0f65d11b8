"""Which attempts gave the same answer: equal by the grader, not by their text.

Nothing is stored but known grades (`known.py`); classes are made anew from the grades table
whenever somebody asks. The right answer is that of all attempts whose outcome is correct. Wrong
answers of a question are compared as an answer with a gold answer, and each joins the class of the
commonest text that it equals: that two equal a third does not make them equal.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

import numpy as np

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.grade.known import KnownGrades, Pair, whole
from bayes_at_n.pipeline.store import rowkeys
from bayes_at_n.pipeline.store.graded import graded
from bayes_at_n.pipeline.store.outcomes import CORRECT, NO_ANSWER, OUTCOMES, OWED, WRONG
from bayes_at_n.pipeline.store.rowkeys import Ints
from bayes_at_n.pipeline.store.runfolder import Run

MOST = 50  # wrong texts of a question that are compared with each other, the commonest
NONE, RIGHT = 0, 1


class Classes(NamedTuple):
    """The answers of a run's attempts: M questions, N trials of each."""

    codes: Ints  # (M, N): OWED, NONE, RIGHT, and 2, 3, ... from the commonest wrong answer on
    texts: list[list[str]]  # of each question the commonest text of 2, 3, ...
    alone: int  # texts that were not compared, as their question has too many


def of(run: Run) -> Classes:
    """The answers of all graded attempts of a run.

    What the rule grader could not read, or compare with the gold answer, goes by its text alone.
    Raises UserError: wrong attempts without the text of an answer, as in imported matrices;
    verdicts that decide outcomes are missing; worker processes cannot be started.
    """
    ids = rowkeys.question_ids(run)
    table = graded(run, ["answer"])
    kept, places = rowkeys.cells(rowkeys.encode(table, ids), run.cfg.sampling.trials)
    codes = np.full((len(ids), run.cfg.sampling.trials), OWED, np.int64)
    given: list[Counter[str]] = [Counter() for _ in ids]  # wrong texts
    read: list[set[str]] = [set() for _ in ids]  # those of them that were compared with the gold
    wrong: list[tuple[int, int, str]] = []
    lacking = 0
    columns = [table[name].to_numpy()[kept] for name in ("outcome", "ruled", "answer")]
    for question, trial, outcome, ruled, text in zip(*places, *columns, strict=True):
        if outcome is not None:
            codes[question, trial] = RIGHT if outcome == OUTCOMES[CORRECT] else NONE
        if outcome in (None, OUTCOMES[CORRECT], OUTCOMES[NO_ANSWER]):
            continue
        if text is None:
            lacking += ruled == OUTCOMES[WRONG]
            continue
        wrong.append((question, trial, text))
        given[question][text] += 1
        if ruled in (OUTCOMES[CORRECT], OUTCOMES[WRONG]):
            read[question].add(text)
    if lacking:
        raise UserError(f"{run.path}: {lacking} wrong attempts have no text of their answers")
    ranked = [sorted(texts, key=lambda text: (-texts[text], text)) for texts in given]
    compared = [
        [text for text in texts if text in own] for texts, own in zip(ranked, read, strict=True)
    ]
    equal = _equal(run, (texts[:MOST] for texts in compared))
    classes = [_classes(*of, equal) for of in zip(ranked, given, strict=True)]
    for question, trial, text in wrong:
        codes[question, trial] = classes[question][0][text]
    alone = sum(max(0, len(texts) - MOST) for texts in compared)
    return Classes(codes, [texts for _, texts in classes], alone)


def _equal(run: Run, texts: Iterable[list[str]]) -> set[Pair]:
    """Which pairs of a question's texts, the commoner first, are one answer.

    None where a user's own grader, which is given whole texts, is the one to ask.
    """
    cfg = replace(run.cfg, grading=replace(run.cfg.grading, compat=None))
    if whole(cfg):
        return set()
    known = KnownGrades(cfg)
    pairs = [pair for of_question in texts for pair in combinations(of_question, 2)]
    grades = zip(pairs, known.pairs(pairs), strict=True)
    return {pair for pair, grade in grades if grade.outcome == OUTCOMES[CORRECT]}


def _classes(
    texts: list[str], counts: Counter[str], equal: set[Pair]
) -> tuple[dict[str, int], list[str]]:
    """The code of every text, from the commonest class on, and the classes' first texts."""
    first: dict[str, str] = {}
    for text in texts:
        leaders = (leader for leader in dict.fromkeys(first.values()) if (leader, text) in equal)
        first[text] = next(leaders, text)
    sizes: Counter[str] = Counter()
    for text, leader in first.items():
        sizes[leader] += counts[text]
    ordered = [leader for leader, _ in sizes.most_common()]
    codes = {leader: RIGHT + 1 + i for i, leader in enumerate(ordered)}
    return {text: codes[leader] for text, leader in first.items()}, ordered
