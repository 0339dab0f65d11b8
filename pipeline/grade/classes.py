"""Classes of attempts with the same answer, equal by the grader and not by their text.

Nothing is stored. All correct attempts are one class. Wrong answers of a question are compared like
an answer with a gold answer, and each joins the class of the most common text that it equals:
equality is not transitive.
"""

from collections import Counter
from dataclasses import replace
from itertools import combinations

import numpy as np

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.grade.attempts import Pair, grade_pairs, whole_texts
from bayes_at_n.pipeline.store import rowkeys
from bayes_at_n.pipeline.store.graded import graded
from bayes_at_n.pipeline.store.outcomes import CORRECT, NO_ANSWER, OUTCOMES, PENDING, WRONG
from bayes_at_n.pipeline.store.rowkeys import Ints
from bayes_at_n.pipeline.store.runfolder import Run

MOST = 50  # wrong texts of a question that are compared; each further one is its own class
NONE, RIGHT = 0, 1


def classes_of(run: Run) -> Ints:
    """Return the class of each attempt's answer: PENDING, NONE, RIGHT, or a wrong one; (M, N).

    Wrong answers of a question are 2, 3, ..., from the most common one on.
    Answers that the rule grader could not compare with the gold answer are equal if their texts
    are. Raises UserError: wrong attempts have no answer text, as in imported matrices; verdicts
    that decide outcomes are missing; worker processes cannot be started.
    """
    ids, right, no_answer = rowkeys.question_ids(run), OUTCOMES[CORRECT], OUTCOMES[NO_ANSWER]
    table = graded(run, ["answer"])
    kept, cells = rowkeys.cells(rowkeys.encode(table, ids), run.cfg.sampling.trials)
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
