"""Which attempts gave the same answer: equal by the grader, not by their text.

Nothing is stored; classes are made anew from the grades table whenever somebody asks. The right
answer is that of all attempts whose outcome is correct. Wrong answers of a question are compared as
an answer with a gold answer, and each joins the class of the commonest text that it equals: that
two equal a third does not make them equal.
"""

from collections import Counter
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

import numpy as np

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.grade.attempts import Pair, grade_pairs, whole
from bayes_at_n.pipeline.store import rowkeys
from bayes_at_n.pipeline.store.graded import graded
from bayes_at_n.pipeline.store.outcomes import CORRECT, NO_ANSWER, OUTCOMES, OWED, WRONG
from bayes_at_n.pipeline.store.rowkeys import Ints
from bayes_at_n.pipeline.store.runfolder import Run

MOST = 50  # wrong texts of a question that are compared with each other: beyond, each is its own
NONE, RIGHT = 0, 1


class Classes(NamedTuple):
    """The answers of a run's attempts: M questions, N trials of each."""

    codes: Ints  # (M, N): OWED, NONE, RIGHT, and 2, 3, ... from the commonest wrong answer on
    texts: list[list[str]]  # of each question the commonest text of 2, 3, ...


def of(run: Run) -> Classes:
    """Return the answers of all graded attempts of a run.

    What the rule grader could not read, or compare with the gold answer, goes by its text alone.
    Raises UserError: wrong attempts without the text of an answer, as in imported matrices;
    verdicts that decide outcomes are missing; worker processes cannot be started.
    """
    ids = rowkeys.question_ids(run)
    table = graded(run, ["answer"])
    kept, places = rowkeys.cells(rowkeys.encode(table, ids), run.cfg.sampling.trials)
    codes = np.full((len(ids), run.cfg.sampling.trials), OWED, np.int64)
    given: list[Counter[str]] = [Counter() for _ in ids]  # wrong texts
    read = set[tuple[int, str]]()  # those of them that were compared with the gold answer
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
            read.add((question, text))
    if lacking:
        raise UserError(f"{run.path}: {lacking} wrong attempts have no text of their answers")
    ranked = [sorted(texts, key=lambda text: (-texts[text], text)) for texts in given]
    pairs = [
        pair
        for question, texts in enumerate(ranked)
        for pair in combinations([t for t in texts if (question, t) in read][:MOST], 2)
    ]
    cfg = replace(run.cfg, grading=replace(run.cfg.grading, compat=None))
    if whole(cfg):  # a user's own grader judges whole texts, not answers
        pairs = []
    grades = zip(pairs, grade_pairs(cfg, pairs), strict=True)
    equal = {pair for pair, grade in grades if grade.outcome == OUTCOMES[CORRECT]}
    classes = [_classes(*of_question, equal) for of_question in zip(ranked, given, strict=True)]
    for question, trial, text in wrong:
        codes[question, trial] = classes[question][0][text]
    return Classes(codes, [texts for _, texts in classes])


def _classes(
    texts: list[str], counts: Counter[str], equal: set[Pair]
) -> tuple[dict[str, int], list[str]]:
    """Return the code of every text, from the commonest class on, and the classes' first texts."""
    leader: dict[str, str] = {}
    sizes: Counter[str] = Counter()
    for text in texts:
        first = (one for one in dict.fromkeys(leader.values()) if (one, text) in equal)
        leader[text] = next(first, text)
        sizes[leader[text]] += counts[text]
    codes = {one: RIGHT + 1 + i for i, (one, _) in enumerate(sizes.most_common())}
    return {text: codes[one] for text, one in leader.items()}, [*codes]
