r"""review.jsonl: what a person should look at before believing the numbers of a run.

One JSON object a line, most suspicious first. Kinds:

common_wrong   the most common wrong answers of a question; if one is more common than the correct
               ones, the gold answer may be wrong (`gold_in_doubt`)
timeout        the comparison was stopped
unparsable     nobody could tell
disagreement   plain math_verify, asked about `\boxed{answer}`, says otherwise (`grade --review`)
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pipeline.base import atomic
from pipeline.base.console import note
from pipeline.grade import known
from pipeline.store import shards
from pipeline.store.columns import GRADES, KEY
from pipeline.store.runfolder import Run

KINDS = ("common_wrong", "timeout", "unparsable", "disagreement")
_TOP = 3  # wrong answers of a question
_TRIALS = 5  # shown of one answer
_LONGEST = 1000  # characters of an answer; longer ones are never parsed


@dataclass
class _Group:
    """The attempts at one question that gave one answer."""

    question_id: str
    answer: str | None
    outcome: str
    layer: str
    reason: str
    count: int = 0
    trials: list[int] = field(default_factory=list)


def path(run: Run) -> Path:
    """The list of one run."""
    return run.path / "review.jsonl"


def write(run: Run, ask_math_verify: bool) -> None:
    """Write the list of a graded run, and say how long it is."""
    groups = _groups(run)
    golds = {row["question_id"]: row["gold"] for row in run.questions}
    entries = [*_common_wrong(groups)]
    entries += [_entry(g.outcome, g) for g in groups if g.outcome in ("timeout", "unparsable")]
    if ask_math_verify:
        entries += _disagreements(run, groups, golds)
    # Golds in doubt first, then by kind; the other common wrong answers are the least urgent.
    order = (*KINDS[1:], KINDS[0])
    entries.sort(key=lambda e: (not e.get("gold_in_doubt"), order.index(e["kind"])))
    atomic.write_jsonl(path(run), ({**e, "gold": golds.get(e["question_id"])} for e in entries))
    if not entries:
        note("review: nothing to look at")
        return
    counts = Counter(entry["kind"] for entry in entries)
    doubts = len({e["question_id"] for e in entries if e.get("gold_in_doubt")})
    listed = [f"{kind} {counts[kind]}" for kind in KINDS if counts[kind]]
    listed += [f"questions whose gold answer is in doubt {doubts}"] * bool(doubts)
    note(f"review: {', '.join(listed)}; see {path(run)}")


def _groups(run: Run) -> list[_Group]:
    groups: dict[tuple[str, str | None, str], _Group] = {}
    columns = [*KEY, "answer", "outcome", "layer", "reason"]
    for batch in shards.batches(run.grades, GRADES, columns, shards.Damage()):
        for row in batch.to_pylist():
            key = (row["question_id"], row["answer"], row["outcome"])
            group = groups.setdefault(key, _Group(*key, row["layer"], row["reason"]))
            group.count += 1
            if len(group.trials) < _TRIALS:
                group.trials.append(row["trial"])
    return sorted(groups.values(), key=lambda group: -group.count)


def _entry(kind: str, group: _Group, **more: Any) -> dict[str, Any]:
    answer = group.answer if group.answer is None else group.answer[:_LONGEST]
    place = {"kind": kind, "question_id": group.question_id, "gold": None}
    return {**place, **asdict(group), "answer": answer, **more}


def _common_wrong(groups: list[_Group]) -> Iterator[dict[str, Any]]:
    wrong: dict[str, list[_Group]] = defaultdict(list)
    attempts, correct = Counter[str](), Counter[str]()
    for group in groups:
        attempts[group.question_id] += group.count
        correct[group.question_id] += group.count * (group.outcome == "correct")
        if group.outcome == "wrong" and group.answer is not None:
            wrong[group.question_id].append(group)
    for question_id, commonest in wrong.items():
        for group in commonest[:_TOP]:
            yield _entry(
                "common_wrong",
                group,
                share=round(group.count / attempts[question_id], 4),
                correct=correct[question_id],
                gold_in_doubt=commonest[0].count > correct[question_id],
            )


def _disagreements(
    run: Run, groups: list[_Group], golds: dict[str, str]
) -> Iterator[dict[str, Any]]:
    """Answers that one of the two calls correct and the other does not; a timeout is no vote."""
    cfg = deepcopy(run.cfg)
    cfg.grading.compat = "math_verify"
    plain = known.KnownGrades(cfg, known.default_folder(run.cfg))
    asked = [g for g in groups if g.answer is not None and g.question_id in golds]
    note(f"review: asking math_verify about {len(asked)} answers")
    pairs = [(golds[group.question_id], rf"\boxed{{{group.answer}}}") for group in asked]
    for group, theirs in zip(asked, plain.pairs(pairs), strict=True):
        differ = (group.outcome == "correct") != (theirs.outcome == "correct")
        if differ and theirs.outcome != "timeout":
            yield _entry("disagreement", group, math_verify=theirs.outcome)
