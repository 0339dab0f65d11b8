r"""review.jsonl: what a person should look at before believing the numbers of a run.

One JSON object a line, most suspicious first. Kinds:

common_wrong   the most common wrong answers of a question; if attempts agree on one as `doubts` has
               it, the gold answer may be wrong (`gold_in_doubt`)
error          the grader failed
timeout        the comparison was stopped
unparsable     nobody could tell
disagreement   plain math_verify, asked about `\boxed{answer}`, says otherwise (`grade --review`)
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

from bayes_at_n.pipeline.base import atomic
from bayes_at_n.pipeline.base.console import mention, note
from bayes_at_n.pipeline.grade import doubts, known
from bayes_at_n.pipeline.store import outcomes
from bayes_at_n.pipeline.store.graded import ruled
from bayes_at_n.pipeline.store.runfolder import Run

# In the order of the list; common wrong answers of questions with a good gold answer come last.
KINDS = ("error", "timeout", "unparsable", "disagreement", "common_wrong")
_TOP = 3  # wrong answers of a question
_TRIALS = 5  # shown of one answer
_ROWS = 1 << 12  # that are Python objects at a time
_LONGEST = 1000  # characters of an answer; longer ones are never parsed

Group = dict[str, Any]  # the attempts at one question that gave one answer, as a row of the list


def path(run: Run) -> Path:
    """The list of one run."""
    return run.path / "review.jsonl"


def write(run: Run, ask_math_verify: bool) -> None:
    """Write the list of a graded run, and say how long it is."""
    groups = _groups(run)
    doubted = doubts.in_doubt(run)
    entries = [*_common_wrong(groups, doubted)]
    entries += [_entry(g["outcome"], g) for g in groups if g["outcome"] in KINDS]
    if ask_math_verify:
        entries += _disagreements(run, groups)
    entries.sort(key=lambda e: (not e.get("gold_in_doubt"), KINDS.index(e["kind"])))
    atomic.write_jsonl(path(run), entries)
    if decided := outcomes.who(run, outcomes.read(run, quiet=True)):
        mention(f"review: {decided}; the list has what the rule grader said")
    if not entries:
        mention("review: nothing to look at")
        return
    counts = Counter(entry["kind"] for entry in entries)
    listed = [f"{kind} {counts[kind]}" for kind in sorted(counts)]
    if doubted:
        names = ", ".join(sorted(doubted)[:3]) + ", ..." * (len(doubted) > 3)
        listed.append(f"gold answers in doubt {len(doubted)} ({names})")
    mention(f"review: {', '.join(listed)}; see {path(run)}")


def _groups(run: Run) -> list[Group]:
    golds = {row["question_id"]: row["gold"] for row in run.questions}
    groups: dict[tuple[str, str | None, str], Group] = {}
    columns = ["answer", "outcome", "layer", "reason"]
    for batch in ruled(run, columns).to_batches(_ROWS):
        for row in batch.to_pylist():
            question_id, trial = row.pop("question_id"), row.pop("trial")
            group = groups.setdefault(
                (question_id, row["answer"], row["outcome"]),
                {"question_id": question_id, "gold": golds.get(question_id), **row}
                | {"count": 0, "trials": []},
            )
            group["count"] += 1
            group["trials"] = sorted([*group["trials"], trial])[:_TRIALS]
    # In an order of their own: that of the files is who was first to finish what.
    return [
        groups[key] for key in sorted(groups, key=lambda key: (-groups[key]["count"], str(key)))
    ]


def _entry(kind: str, group: Group, **more: Any) -> dict[str, Any]:
    answer = group["answer"] and group["answer"][:_LONGEST]
    return {"kind": kind, **group, "answer": answer, **more}


def _common_wrong(groups: list[Group], doubted: set[str]) -> Iterator[dict[str, Any]]:
    wrong: dict[str, list[Group]] = defaultdict(list)
    attempts, correct = Counter[str](), Counter[str]()
    for group in groups:
        question_id = group["question_id"]
        attempts[question_id] += group["count"]
        correct[question_id] += group["count"] * (group["outcome"] == "correct")
        if group["outcome"] == "wrong" and group["answer"] is not None:
            wrong[question_id].append(group)
    for question_id, commonest in wrong.items():
        for group in commonest[:_TOP]:
            yield _entry(
                "common_wrong",
                group,
                share=round(group["count"] / attempts[question_id], 4),
                correct=correct[question_id],
                gold_in_doubt=question_id in doubted,
            )


def _disagreements(run: Run, groups: list[Group]) -> Iterator[dict[str, Any]]:
    """Answers that one of the two calls correct and the other does not; a timeout is no vote."""
    cfg = deepcopy(run.cfg)
    cfg.grading.compat = "math_verify"
    math_verify = known.KnownGrades(cfg)
    answered = [g for g in groups if g["answer"] is not None and g["gold"] is not None]
    note(f"review: asking math_verify about {len(answered)} answers")
    pairs = [(group["gold"], rf"\boxed{{{group['answer']}}}") for group in answered]
    for group, plain in zip(answered, math_verify.pairs(pairs), strict=True):
        differ = (group["outcome"] == "correct") != (plain.outcome == "correct")
        if differ and plain.outcome != "timeout":
            yield _entry("disagreement", group, math_verify=plain.outcome)
