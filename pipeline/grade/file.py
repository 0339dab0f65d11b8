"""grade --file: completions from elsewhere, graded line by line without a run."""

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

from bayes_at_n import verifiers
from bayes_at_n.pipeline.base import atomic, jsonl
from bayes_at_n.pipeline.base.console import Meter, note, warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.display.table import answer
from bayes_at_n.pipeline.grade.known import SEEN, Attempt, KnownGrades
from bayes_at_n.pipeline.store.columns import CUT

_BATCH = 4096  # rows graded together
_ADDED = ("answer", "outcome", "layer", "reason", "grader")


def grade_file(cfg: RunConfig, source: Path, target: Path) -> None:
    """Grade every row of a JSON Lines file; the same rows come out, in order, with grades added.

    A row is an object with `completion` and `gold`, and may say `truncated` or a `finish_reason`
    ("length" or "repetition": cut off) and, of multiple choice, its `choices` in the order in which
    they were shown; every other field passes through. Blank lines are skipped.
    Raises UserError: for a bad row, before anything is graded, or a file that cannot be used.
    """
    _check_paths(source, target)
    rows = [_checked(row, f"{source}, {place}") for place, row in jsonl.read(source)]
    golds = [row["gold"] for row in rows]
    if cfg.dataset.answer == "choice":
        try:
            golds = verifiers.lettered([(row["gold"], row.get("choices") or ()) for row in rows])
        except ValueError as error:
            raise UserError(f"{source}: the gold answers {error}") from error
    known = KnownGrades(cfg)
    if clash := sorted({name for row in rows for name in _ADDED if name in row}):
        warn(f"{source}: fields {', '.join(clash)} are replaced in {target}")
    outcomes = Counter[str]()
    with Meter("grade", len(rows)) as meter:
        for start in range(0, len(rows), _BATCH):
            batch = rows[start : start + _BATCH]
            of_batch = zip(golds[start : start + _BATCH], batch, strict=True)
            graded = known.attempts([_attempt(gold, row) for gold, row in of_batch])
            for row, (extraction, grade) in zip(batch, graded, strict=True):
                row |= {"answer": extraction.answer, **grade._asdict()}
                outcomes[grade.outcome] += 1
            meter.advance(len(batch), lambda: f"{len(known.used)} distinct answers")
    atomic.write_jsonl(target, rows)
    listed = "".join(f", {name} {count}" for name, count in outcomes.most_common())
    note(f"grade: {len(rows)} rows{listed}; {known.summary()}")
    note(f"saved {target}")
    answer({"file": target, "rows": len(rows), "outcomes": dict(outcomes)})


def _check_paths(source: Path, target: Path) -> None:
    if not source.exists():
        raise UserError(f"--file {source}: no such file")
    if source.is_dir() or target.is_dir():
        raise UserError(f"{source if source.is_dir() else target}: is a folder; name a file")
    if target.resolve() == source.resolve() or (target.exists() and target.samefile(source)):
        raise UserError(f"--out {target}: is the input itself, which is never changed")
    if not target.parent.is_dir() or not os.access(target.parent, os.W_OK):
        raise UserError(f"--out {target}: its folder is not there or cannot be written")


def _checked(row: dict[str, Any], where: str) -> dict[str, Any]:
    for name in ("completion", "gold", "truncated", "finish_reason"):
        value, required = row.get(name), name in ("completion", "gold")
        if name not in row and required:
            raise UserError(f"{where}: no field {name}; it has {', '.join(row)[:200] or 'none'}")
        if not isinstance(value, bool if name == "truncated" else str) and (
            required or value is not None
        ):
            kind = "true or false" if name == "truncated" else "a text"
            raise UserError(f"{where}: {name} must be {kind}, not {json.dumps(value)[:60]}")
    choices = row.get("choices") or []
    if not isinstance(choices, list) or not all(isinstance(text, str) for text in choices):
        raise UserError(f"{where}: choices must be a list of texts, the options as they were shown")
    return row


def _attempt(gold: str, row: dict[str, Any]) -> Attempt:
    cut = bool(row.get("truncated")) or row.get("finish_reason") in CUT
    question = {name: row.get(name) for name in SEEN}
    return Attempt(gold, row["completion"], cut, question)
