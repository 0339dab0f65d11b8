"""review.jsonl: what a person should look at before believing the numbers of a run."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from bayes_at_n.pipeline.base import atomic
from bayes_at_n.pipeline.base.console import joined, note, note_alone
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.grade.attempts import grade_pairs
from bayes_at_n.pipeline.store import outcomes
from bayes_at_n.pipeline.store.graded import ruled
from bayes_at_n.pipeline.store.runfolder import Run, open_run

KINDS = (  # of entries, in the order of the list; those at a gold answer in doubt come first
    "error",  # the grader failed
    "timeout",  # the comparison was stopped
    "unparsable",  # nobody could tell
    "disagreement",  # plain math_verify, asked about `\boxed{answer}`, says otherwise
    "common_wrong",  # the most common wrong answers of a question
)
_TOP = 3  # wrong answers of a question
_TRIALS = 5  # shown of one answer
_LONGEST = 1000  # characters of an answer; longer ones are never parsed
# A gold answer is in doubt if so many attempts of a model, or of several on average, agree on
# another, and it is itself given at most RIVAL as often.
ALONE, TOGETHER, RIVAL = 0.9, 0.6, 0.1
RIGHT, NONE = None, ""  # in the place of an answer

Group = dict[str, Any]  # the attempts at one question that gave one answer, as a row of the list


def path(run: Run) -> Path:
    """Return where the list of a run is."""
    return run.path / "review.jsonl"


def write(run: Run, ask_math_verify: bool) -> None:
    """Write the list of a graded run, and say how long it is."""
    groups, doubted = _groups(run), gold_suspect(run)
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
            doubt = {"correct": correct[name], "gold_in_doubt": name in doubted}
            entries.append({"kind": "common_wrong", **group, "share": share, **doubt})
    if ask_math_verify:
        answered = [g for g in groups if g["answer"] is not None and g["gold"] is not None]
        note(f"review: asking math_verify about {len(answered)} answers")
        cfg = replace(run.cfg, grading=replace(run.cfg.grading, compat="math_verify"))
        plain = grade_pairs(cfg, [(g["gold"], rf"\boxed{{{g['answer']}}}") for g in answered])
        for group, outcome in zip(answered, (grade.outcome for grade in plain), strict=True):
            differ = (group["outcome"] == "correct") != (outcome == "correct")
            if differ and outcome != "timeout":
                entries.append({"kind": "disagreement", **group, "math_verify": outcome})
    entries.sort(key=lambda e: (not e.get("gold_in_doubt"), KINDS.index(e["kind"])))
    for entry in entries:
        entry["answer"] = entry["answer"] and entry["answer"][:_LONGEST]
    atomic.write_jsonl(path(run), entries)
    if decided := outcomes.deciders_line(run, outcomes.read(run, quiet=True)):
        note_alone(f"review: {decided}; the list has what the rule grader said")
    counts = Counter(entry["kind"] for entry in entries)
    parts = [f"{kind} {counts[kind]}" for kind in sorted(counts)] or ["nothing to look at"]
    if doubted:
        parts.append(f"gold answers in doubt {len(doubted)} ({joined(sorted(doubted), 3)})")
    note_alone(f"review: {', '.join(parts)}; see {path(run)}")


def _groups(run: Run) -> list[Group]:
    """Return the attempts by question, answer and outcome, most first."""
    golds = {row["question_id"]: row["gold"] for row in run.questions}
    keys = ["question_id", "answer", "outcome"]
    table = ruled(run, [*keys, "layer", "reason"]).group_by(keys, use_threads=False)
    rows = table.aggregate([("layer", "first"), ("reason", "first"), ("trial", "list")])
    groups = rows.rename_columns([*keys, "layer", "reason", "trials"]).to_pylist()
    for group in groups:
        group["gold"] = golds.get(group["question_id"])
        group["count"] = len(group["trials"])
        group["trials"] = sorted(group["trials"])[:_TRIALS]
    # In an order of their own: that of the files is who was first to finish what.
    return sorted(groups, key=lambda g: (-g["count"], *(str(g[key]) for key in keys)))


def contradiction(models: Sequence[Mapping[str | None, int]]) -> str | None:
    """Return the wrong answer of so many attempts that the gold answer is in doubt, if any.

    `models` are numbers of attempts by answer. Each model counts alike, and two more attempts that
    agree with nobody.
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
    """Return the questions whose gold answer is in doubt, by all graded models beside the run."""
    models = {run.cfg.model.id: _counts(run)}
    for grades in sorted(run.path.resolve().parent.glob("*/grades/")):
        with suppress(UserError):  # what is wrong with it, its own verbs say
            other = open_run(grades.parent)
            if other.cfg.model.id not in models:
                models[other.cfg.model.id] = _counts(other)
    hashes = {row["question_hash"]: row["question_id"] for row in run.questions}
    return {
        hashes[mark]
        for mark in models[run.cfg.model.id]
        if contradiction([counts[mark] for counts in models.values() if mark in counts])
    }


def _counts(run: Run) -> dict[str, Counter[str | None]]:
    """Count attempts by their answers, by the hash of the question."""
    hashes = {row["question_id"]: row["question_hash"] for row in run.questions}
    names, found = ["question_id", "answer", "outcome"], defaultdict[str, Counter[Any]](Counter)
    table = ruled(run, names).group_by(names)
    for row in table.aggregate([([], "count_all")]).to_pylist():
        given = {"correct": RIGHT, "wrong": row["answer"] or NONE}.get(row["outcome"], NONE)
        if mark := hashes.get(row["question_id"]):
            found[mark][given] += row["count_all"]
    return found
