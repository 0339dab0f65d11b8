"""Which attempts gave the same answer: equal by the grader, not by their text.

Nothing is stored. The right answer is that of all attempts whose outcome is correct. Wrong answers
of a question are compared as an answer with a gold answer, and each joins the class of the
commonest text that it equals: that two equal a third does not make them equal.
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
from bayes_at_n.pipeline.store.outcomes import CORRECT, NO_ANSWER, OUTCOMES, PENDING, WRONG
from bayes_at_n.pipeline.store.rowkeys import Ints
from bayes_at_n.pipeline.store.runfolder import Run

MOST = 50  # wrong texts of a question that are compared with each other: beyond, each is its own
NONE, RIGHT = 0, 1


class Classes(NamedTuple):
    """The answers of a run's attempts: M questions, N trials of each."""

    codes: Ints  # (M, N): PENDING, NONE, RIGHT, and 2, 3, ... from the commonest wrong answer on
    texts: list[list[str]]  # of each question the commonest text of 2, 3, ...


def classes_of(run: Run) -> Classes:
    """Return the answers of all graded attempts of a run.

    What the rule grader could not read, or compare with the gold answer, goes by its text alone.
    Raises UserError: wrong attempts without the text of an answer, as in imported matrices;
    verdicts that decide outcomes are missing; worker processes cannot be started.
    """
    ids, right, unread = rowkeys.question_ids(run), OUTCOMES[CORRECT], OUTCOMES[NO_ANSWER]
    table = graded(run, ["answer"])
    kept, places = rowkeys.cells(rowkeys.encode(table, ids), run.cfg.sampling.trials)
    codes = np.full((len(ids), run.cfg.sampling.trials), PENDING, np.int64)
    wrong = list[tuple[int, int, str]]()
    read = set[tuple[int, str]]()  # wrong texts that were compared with the gold answer
    given, lacking = [Counter[str]() for _ in ids], 0  # texts by question
    columns = [table[name].to_numpy()[kept] for name in ("outcome", "ruled", "answer")]
    for question, trial, outcome, ruled, text in zip(*places, *columns, strict=True):
        if outcome is not None:
            codes[question, trial] = RIGHT if outcome == right else NONE
        if outcome in (None, right, unread):
            continue
        if text is None:
            lacking += ruled == OUTCOMES[WRONG]
            continue
        wrong.append((question, trial, text))
        given[question][text] += 1
        if ruled in (right, OUTCOMES[WRONG]):
            read.add((question, text))
    if lacking:
        raise UserError(f"{run.path}: {lacking} wrong attempts have no text of their answers")
    ranked = [sorted(texts, key=lambda text: (-texts[text], text)) for texts in given]
    cfg = replace(run.cfg, grading=replace(run.cfg.grading, compat=None))
    pairs = [
        pair
        for question, texts in enumerate(ranked)
        for pair in combinations([t for t in texts if (question, t) in read][:MOST], 2)
        if not whole(cfg)  # a user's own grader judges whole texts, not answers
    ]
    grades = zip(pairs, grade_pairs(cfg, pairs), strict=True)
    equal = {pair for pair, grade in grades if grade.outcome == right}
    classes = [_classes(*of_question, equal) for of_question in zip(ranked, given, strict=True)]
    for question, trial, text in wrong:
        codes[question, trial] = classes[question][0][text]
    return Classes(codes, [texts for _, texts in classes])


def _classes(
    texts: list[str], counts: Counter[str], equal: set[Pair]
) -> tuple[dict[str, int], list[str]]:
    """Return the code of every text, from the commonest class on, and the classes' first texts."""
    leader, sizes = dict[str, str](), Counter[str]()
    for text in texts:
        leader[text] = next((one for one in sizes if (one, text) in equal), text)
        sizes[leader[text]] += counts[text]
    codes = {one: RIGHT + 1 + i for i, (one, _) in enumerate(sizes.most_common())}
    return {text: codes[one] for text, one in leader.items()}, [*codes]
