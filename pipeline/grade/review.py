"""review.jsonl: what a person should check before believing the numbers of a run."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from bayes_at_n.pipeline.base import atomic
from bayes_at_n.pipeline.base.console import joined, note_alone
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.store import outcomes
from bayes_at_n.pipeline.store.runfolder import Run, open_run

KINDS = (  # of entries, in the order of the list; entries with suspect gold answers come first
    "error",  # the grader failed
    "timeout",  # the comparison was stopped
    "unparsable",  # the answer cannot be compared
    "common_wrong",  # the most common wrong answers of a question
)
_TOP = 3  # wrong answers of a question
_TRIALS = 5  # listed for one answer
_LONGEST = 1000  # characters of an answer; longer ones are never parsed
# A gold answer is suspect if this share of a model's attempts, or of several models' on average,
# agrees on another, and at most RIVAL times as many agree with the gold answer.
ALONE, TOGETHER, RIVAL = 0.9, 0.6, 0.1
RIGHT, NONE = None, ""  # keys for the right answer and for no answer

Group = dict[str, Any]  # a row of the list: the attempts at one question with one answer


def path(run: Run) -> Path:
    """Return the path of a run's list."""
    return run.path / "review.jsonl"


def write(run: Run) -> None:
    """Write the list of a graded run, and print its size."""
    groups, suspect = _groups(run), gold_suspect(run)
    attempts, correct, common = Counter[str](), Counter[str](), Counter[str]()
    for group in groups:
        attempts[group["question_id"]] += group["count"]
        correct[group["question_id"]] += group["count"] * (group["outcome"] == "correct")
    entries = list[Group]()
    for group in groups:
        name, outcome = group["question_id"], group["outcome"]
        if outcome in KINDS:
            entries.append({"kind": outcome, **group})
        elif outcome == "wrong" and group["answer"] is not None and common[name] < _TOP:
            common[name] += 1
            share = round(group["count"] / attempts[name], 4)
            doubt = {"correct": correct[name], "gold_in_doubt": name in suspect}
            entries.append({"kind": "common_wrong", **group, "share": share, **doubt})
    entries.sort(key=lambda e: (not e.get("gold_in_doubt"), KINDS.index(e["kind"])))
    for entry in entries:
        entry["answer"] = entry["answer"] and entry["answer"][:_LONGEST]
    atomic.write_jsonl(path(run), entries)
    if decided := outcomes.deciders_line(run, outcomes.read(run, quiet=True)):
        note_alone(f"review: {decided}; the list is of the rule grader's outcomes")
    counts = Counter(entry["kind"] for entry in entries)
    parts = [f"{kind} {counts[kind]}" for kind in sorted(counts)] or ["nothing to check"]
    if suspect:
        parts.append(f"doubtful gold answers {len(suspect)} ({joined(sorted(suspect), 3)})")
    note_alone(f"review: {', '.join(parts)}; see {path(run)}")


def _groups(run: Run) -> list[Group]:
    """Return the attempts grouped by question, answer and outcome, largest group first."""
    golds = {row["question_id"]: row["gold"] for row in run.questions}
    keys = ["question_id", "answer", "outcome"]
    table = outcomes.ruled(run, [*keys, "layer", "reason"]).group_by(keys, use_threads=False)
    rows = table.aggregate([("layer", "first"), ("reason", "first"), ("trial", "list")])
    groups = rows.rename_columns([*keys, "layer", "reason", "trials"]).to_pylist()
    for group in groups:
        group["gold"] = golds.get(group["question_id"])
        group["count"] = len(group["trials"])
        group["trials"] = sorted(group["trials"])[:_TRIALS]
    # Fully sorted, since the order of files depends on which attempts finished first.
    return sorted(groups, key=lambda g: (-g["count"], *(str(g[key]) for key in keys)))


def contradiction(models: Sequence[Mapping[str | None, int]]) -> str | None:
    """Return the wrong answer that makes the gold answer suspect, if any.

    `models`: numbers of attempts by answer, for each model. All models have equal weight, and two
    attempts that agree with no other are added.
    """
    shares: dict[str | None, float] = defaultdict(float)
    for counts in models:
        for answer, number in counts.items():
            shares[answer] += number / sum(counts.values()) / len(models)
    right, _ = shares.pop(RIGHT, 0.0), shares.pop(NONE, 0.0)
    total = sum(sum(counts.values()) for counts in models)
    least = max((ALONE if len(models) == 1 else TOGETHER) * (1 + 2 / total), right / RIVAL)
    return next((answer for answer, share in shares.items() if share >= least), None)


def gold_suspect(run: Run) -> set[str]:
    """Return the questions with suspect gold answers, by all graded models of the dataset."""
    models = {run.cfg.model.id: _counts(run)}
    for grades in sorted(run.path.resolve().parent.glob("*/grades/")):
        with suppress(UserError):  # the other run's own verbs report it
            other = open_run(grades.parent)
            if other.cfg.model.id not in models:
                models[other.cfg.model.id] = _counts(other)
    hashes = {row["question_hash"]: row["question_id"] for row in run.questions}
    return {
        hashes[digest]
        for digest in models[run.cfg.model.id]
        if contradiction([counts[digest] for counts in models.values() if digest in counts])
    }


def _counts(run: Run) -> dict[str, Counter[str | None]]:
    """Return the numbers of attempts by answer, for each question's hash."""
    hashes = {row["question_id"]: row["question_hash"] for row in run.questions}
    names, counts = ["question_id", "answer", "outcome"], defaultdict[str, Counter[Any]](Counter)
    table = outcomes.ruled(run, names).group_by(names)
    for row in table.aggregate([([], "count_all")]).to_pylist():
        answer = {"correct": RIGHT, "wrong": row["answer"] or NONE}.get(row["outcome"], NONE)
        if digest := hashes.get(row["question_id"]):
            counts[digest][answer] += row["count_all"]
    return counts
