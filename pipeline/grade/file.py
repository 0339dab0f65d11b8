"""grade --file: completions from elsewhere, graded line by line without a run."""

from collections import Counter
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, InstanceOf, ValidationError

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
    if not source.exists() or source.is_dir():
        raise UserError(f"--file {source}: no such file")
    if not target.parent.is_dir() or target.is_dir():
        raise UserError(f"--out {target}: name a file in a folder that is there")
    if target.exists() and target.samefile(source):
        raise UserError(f"--out {target}: is the input itself, which is never changed")
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


Text = InstanceOf[str]  # with surrogates, which JSON may hold


class _Row(BaseModel):
    model_config = ConfigDict(strict=True)
    completion: Text
    gold: Text
    truncated: bool | None = None
    finish_reason: Text | None = None
    choices: list[Text] | None = None


def _checked(row: dict[str, Any], where: str) -> dict[str, Any]:
    try:
        _Row.model_validate(row)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)[0]
        why = found["msg"].replace("Input should", "must")
        raise UserError(f"{where}: {found['loc'][0]}: {why}") from None
    return row


def _attempt(gold: str, row: dict[str, Any]) -> Attempt:
    cut = bool(row.get("truncated")) or row.get("finish_reason") in CUT
    question = {name: row.get(name) for name in SEEN}
    return Attempt(gold, row["completion"], cut, question)
