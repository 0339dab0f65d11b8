"""Gold answers that attempts contradict: nearly all of one model, or most of several, agree.

What the limits are worth, on golds that were broken on purpose: docs/grading.md.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from pipeline.base.errors import UserError
from pipeline.store import parquet, rowkeys
from pipeline.store.runfolder import Run, opened

ALONE, TOGETHER = 0.9, 0.6  # of a model's attempts, or of several models' on average
RIVAL = 0.1  # as often as that answer the gold answer may be given at most
RIGHT, NONE = None, ""  # in the place of an answer
Counts = Mapping[str | None, int]  # attempts by their answers


def contradiction(models: Sequence[Counts]) -> str | None:
    """The wrong answer that so many attempts at a question gave that its gold answer is in doubt.

    Every model counts alike; two attempts more are counted that agree with nobody.

    >>> contradiction([{"7": 78, NONE: 2}]), contradiction([{"7": 4}])
    ('7', None)
    >>> contradiction([{"7": 78, NONE: 2}, {"8": 40, RIGHT: 40}])
    """
    shares: dict[str | None, float] = defaultdict(float)
    for counts in models:
        for answer, number in counts.items():
            shares[answer] += number / sum(counts.values()) / len(models)
    right, _ = shares.pop(RIGHT, 0.0), shares.pop(NONE, 0.0)
    total = sum(sum(counts.values()) for counts in models)
    least = (ALONE if len(models) == 1 else TOGETHER) * (1 + 2 / max(1, total))
    share, answer = max(
        ((share, answer or "") for answer, share in shares.items()), default=(0, "")
    )
    return answer if share >= least and right <= RIVAL * share else None


def in_doubt(run: Run) -> set[str]:
    """The ids of questions whose gold answer is in doubt, by all graded models beside the run."""
    own, others = _counts(run), list(_others(run))
    hashes = {row["question_hash"]: row["question_id"] for row in run.questions}
    return {
        hashes[mark]
        for mark, counts in own.items()
        if contradiction([counts, *(other[mark] for other in others if mark in other)])
    }


def _counts(run: Run) -> dict[str, Counter[str | None]]:
    """Attempts by their answers, by the hash of the question."""
    hashes = {row["question_id"]: row["question_hash"] for row in run.questions}
    columns = ["question_id", "answer", "outcome"]
    table = rowkeys.streamed(run, "grades", columns[1:], parquet.Damage()).group_by(columns)
    found: dict[str, Counter[str | None]] = defaultdict(Counter)
    for row in table.aggregate([([], "count_all")]).to_pylist():
        answer = (row["answer"] or NONE) if row["outcome"] == "wrong" else NONE
        answer = RIGHT if row["outcome"] == "correct" else answer
        if mark := hashes.get(row["question_id"]):
            found[mark][answer] += row["count_all"]
    return found


def _others(run: Run) -> Iterator[dict[str, Counter[str | None]]]:
    """The same of other models beside the run; of several runs of one model the first."""
    models, here = {run.cfg.model.id}, run.path.resolve()
    for folder in sorted(here.parent.iterdir()):
        if folder != here and (folder / "grades").is_dir():
            try:
                other = opened(folder)
                if other.cfg.model.id not in models:
                    models.add(other.cfg.model.id)
                    yield _counts(other)
            except UserError:  # what is wrong with it, its own verbs say
                continue
