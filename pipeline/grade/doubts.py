"""Gold answers that attempts contradict: nearly all of one model, or most of several, agree.

What the limits are worth, on golds that were broken on purpose: docs/grading.md.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.store.graded import ruled
from bayes_at_n.pipeline.store.runfolder import Run, opened

ALONE, TOGETHER = 0.9, 0.6  # of a model's attempts, or of several models' on average
RIVAL = 0.1  # as often as that answer the gold answer may be given at most
RIGHT, NONE = None, ""  # in the place of an answer


def contradiction(models: Sequence[Mapping[str | None, int]]) -> str | None:
    """The wrong answer that so many attempts gave that the gold answer of a question is in doubt.

    `models` are numbers of attempts by answer. Each model counts alike, and two more attempts that
    agree with nobody.

    >>> contradiction([{"7": 78, NONE: 2}]), contradiction([{"7": 4}])
    ('7', None)
    """
    shares: dict[str | None, float] = defaultdict(float)
    for counts in models:
        for answer, number in counts.items():
            shares[answer] += number / sum(counts.values()) / len(models)
    right, _ = shares.pop(RIGHT, 0.0), shares.pop(NONE, 0.0)
    total = sum(sum(counts.values()) for counts in models)
    least = max((ALONE if len(models) == 1 else TOGETHER) * (1 + 2 / total), right / RIVAL)
    return next((answer for answer, share in shares.items() if share >= least), None)


def in_doubt(run: Run) -> set[str]:
    """The ids of questions whose gold answer is in doubt, by all graded models beside the run."""
    models = {run.cfg.model.id: _counts(run)}
    for folder in sorted(run.path.resolve().parent.iterdir()):
        try:
            if (folder / "grades").is_dir() and (
                other := opened(folder)
            ).cfg.model.id not in models:
                models[other.cfg.model.id] = _counts(other)
        except UserError:  # what is wrong with it, its own verbs say
            continue
    hashes = {row["question_hash"]: row["question_id"] for row in run.questions}
    return {
        hashes[mark]
        for mark in models[run.cfg.model.id]
        if contradiction([counts[mark] for counts in models.values() if mark in counts])
    }


def _counts(run: Run) -> dict[str, Counter[str | None]]:
    """Attempts by their answers, by the hash of the question."""
    hashes = {row["question_id"]: row["question_hash"] for row in run.questions}
    names, found = ["question_id", "answer", "outcome"], defaultdict[str, Counter[Any]](Counter)
    table = ruled(run, names).group_by(names)
    for row in table.aggregate([([], "count_all")]).to_pylist():
        given = row["answer"] or NONE if row["outcome"] == "wrong" else NONE
        answer = RIGHT if row["outcome"] == "correct" else given
        if mark := hashes.get(row["question_id"]):
            found[mark][answer] += row["count_all"]
    return found
