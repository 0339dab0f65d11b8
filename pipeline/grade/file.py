"""grade --file: completions from elsewhere, graded line by line without a run."""

from collections import Counter
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, InstanceOf, ValidationError

from bayes_at_n import verifiers
from bayes_at_n.pipeline.base import atomic, foreign
from bayes_at_n.pipeline.base.console import note
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.display.table import answer
from bayes_at_n.pipeline.grade.attempts import SEEN, Attempt, grade
from bayes_at_n.pipeline.store.columns import CUT

Text = InstanceOf[str]  # with surrogates, which JSON may hold


class _Row(BaseModel):
    model_config = ConfigDict(strict=True)
    completion: Text
    gold: Text
    truncated: bool | None = None
    finish_reason: Text | None = None
    choices: list[Text] | None = None


def grade_file(cfg: RunConfig, source: Path, target: Path) -> None:
    """Grade every row of a JSON Lines file; the same rows come out, in order, with grades added.

    A row is an object with `completion` and `gold`, and may say `truncated` or a `finish_reason`
    ("length" or "repetition": cut off) and, of multiple choice, its `choices` in the order in which
    they were shown; every other field passes through, but those of a grade are replaced.
    Raises UserError: for a bad row, before anything is graded, or a file that cannot be used.
    """
    if not source.exists() or source.is_dir():
        raise UserError(f"--file {source}: no such file")
    if not target.parent.is_dir() or target.is_dir() or target.resolve() == source.resolve():
        raise UserError(f"--out {target}: name another file, in a folder that is there")
    rows = list[dict[str, Any]]()
    for place, row in foreign.json_lines(source):
        try:
            _Row.model_validate(row)
        except ValidationError as error:
            wrong = error.errors(include_url=False, include_input=False)[0]
            raise UserError(f"{source}, {place}: {wrong['loc'][0]}: {wrong['msg']}") from None
        rows.append(row)
    golds = [row["gold"] for row in rows]
    if cfg.dataset.answer == "choice":
        try:
            golds = verifiers.lettered([(row["gold"], row.get("choices") or ()) for row in rows])
        except ValueError as error:
            raise UserError(f"{source}: the gold answers {error}") from error
    given = list[Attempt]()
    for gold, row in zip(golds, rows, strict=True):
        cut = bool(row.get("truncated")) or row.get("finish_reason") in CUT
        given.append(Attempt(gold, row["completion"], cut, {name: row.get(name) for name in SEEN}))
    for row, (extraction, made) in zip(rows, grade(cfg, given), strict=True):
        row |= {"answer": extraction.answer, **made._asdict()}
    atomic.write_jsonl(target, rows)
    outcomes = Counter(row["outcome"] for row in rows)
    listed = "".join(f", {name} {count}" for name, count in outcomes.most_common())
    note(f"grade: {len(rows)} rows{listed}")
    note(f"saved {target}")
    answer({"file": target, "rows": len(rows), "outcomes": dict(outcomes)})
