"""What an attempt's outcome is where a verifier decides it: of a grade and a verdict, here alone.

With `dataset.judge` a verdict's label, the largest calibrated probability, is the outcome: A
correct, B wrong, C no_answer. Grades stay on the disk as the rule grader made them. A response that
was cut off has not answered, whatever it holds, so no verdict decides it.
"""

import contextlib
import functools
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.config.settings import OFFICIAL, template_file
from bayes_at_n.pipeline.store import parquet, rowkeys, runfolder
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.verifiers import grader

_warn = functools.cache(warn)  # once a command
_MOST = 1 << 20  # bytes of a file that is hashed: the folder that names it may be anybody's
_LABELS = pa.array(["A", "B", "C"])
_OUTCOMES = pa.array(["correct", "wrong", "no_answer"])  # that they stand for
_CALIBRATION = 2  # the version of how baselines are made
# What makes a verdict another one; the record of the calibration says the rest.
_ASKED = ("id", "revision", "prompt", "labels", "dtype", "context", "chat_template_kwargs")


def asks(judge: str | None, outcome: Any, box: Any) -> Any:
    """Which attempts the verifier decides, by columns of their grades: bool of the same length.

    >>> outcome, box = pa.array(["correct", "wrong", "wrong", None]), pa.array(["boxed"] * 4)
    >>> asks("all", outcome, box).to_pylist(), asks("unmatched", outcome, box).to_pylist()
    ([True, True, True, False], [False, True, True, False])
    """
    decided = pc.and_(pc.is_valid(outcome), pc.not_equal(box, "truncated").fill_null(True))
    if judge == "unmatched":
        decided = pc.and_(decided, pc.not_equal(outcome, "correct").fill_null(False))
    return pc.and_(decided, judge is not None)


def graded(run: Run, names: Sequence[str] = (), quiet: bool = False) -> pa.Table:
    """The key, `outcome`, `box` and other columns of every grade, with verdicts where they decide.

    `ruled` is the rule grader's outcome, and `judged` whether the verifier decides. Where it does,
    `layer` is "verifier", `reason` says what both said, and the outcome is null, so owed, without a
    verdict as the settings would have it. With `quiet` nothing is said of damage. Raises UserError,
    unless `quiet`: with judge=unmatched verdicts are missing; the others would be scored, and are
    mostly those that the rule grader accepts.
    """
    for line in _edited(run):
        _warn(line)
    damage, judge = parquet.Damage() if quiet else None, run.cfg.dataset.judge
    table = rowkeys.streamed(run, "grades", [*dict.fromkeys(["outcome", "box", *names])], damage)
    ruled = table["outcome"]
    judged = asks(judge, ruled, table["box"])
    table = table.append_column("ruled", ruled).append_column("judged", judged)
    if judge is None:
        return table
    labels = _labels(run, table, quiet)
    waiting = pc.sum(pc.and_(judged, labels.is_null())).as_py()
    if waiting and judge == "unmatched" and not quiet:
        raise UserError(
            f"{run.path}: {waiting} attempts wait for the verifier, which decides what the rule"
            f" grader does not accept (dataset.judge=unmatched); run `{PROGRAM} verify`"
        )
    said = ("the verifier says ", labels.fill_null("nothing yet"), "; the rule grader: ", ruled)
    decided: dict[str, Any] = {"outcome": _OUTCOMES.take(pc.index_in(labels, _LABELS))}
    if "layer" in names:
        decided["layer"] = pa.scalar("verifier")
    if "reason" in names:
        decided["reason"] = pc.binary_join_element_wise(*said, ", ", table["reason"], "")
    for name, values in decided.items():
        column = pc.if_else(judged, values, table[name])
        table = table.set_column(table.column_names.index(name), name, column)
    return table


def _edited(run: Run) -> Iterator[str]:
    """A line for each file of the user's that has changed since it decided what is stored.

    One that is not there, as on another machine, is no reason to say so: what it made stays.
    """
    answer = run.cfg.dataset.answer
    files = list[tuple[str, Path, Any]]()
    if answer.startswith("python:"):
        grades = runfolder.read_json(run.grades / "_grader.json")
        if grades.get("answer") == grader(answer):
            named = answer.removeprefix("python:").rpartition(":")[0]
            files.append(("grade", Path(named), grades.get("function")))
    verdicts = runfolder.read_json(run.path / "verdicts" / "_verifier.json")
    if prompt := verdicts.get("asked", {}).get("prompt"):
        template = verdicts.get("settings", {}).get("template")
        files.append(("verify", template_file(str(prompt)), template))
    for verb, file, made in files:
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            path = file.expanduser().resolve()
            seen = path.stat()
            if not path.is_file() or seen.st_size > _MOST:
                continue
            if made not in (None, *_hashes(path, seen.st_size, seen.st_mtime_ns)):
                what = {"grade": "grades", "verify": "verdicts"}[verb]
                yield f"{run.path}: {path} was edited after it made the {what}; run `{verb}`"


@functools.lru_cache
def _hashes(path: Path, size: int, time_ns: int) -> tuple[str, str]:
    """The hashes of a file that was seen so: of a grader's source, and of a prompt's text."""
    data = path.read_bytes()
    text = data.decode().rstrip("\n")
    return hashlib.sha256(data).hexdigest()[:16], runfolder.short_hash(text)


def asked_as(run: Run) -> dict[str, Any]:
    """The settings that make a verdict what it is, for the record beside the verdicts."""
    v = run.cfg.verifier
    settings = asdict(v) | ({"prompt": str(v.official)} if v.prompt == OFFICIAL else {})
    return {name: settings[name] for name in _ASKED} | v.form()


def settings(run: Run) -> dict[str, Any] | None:
    """Which outcomes verdicts decide, and whose; None: the rule grader decides all."""
    judge = run.cfg.dataset.judge
    return {"judge": judge, **_made_as(run)} if judge else None


def state(run: Run) -> str | None:
    """Which outcomes verdicts decide, for the record of what is made of them; None: none.

    Verdicts of another verifier than is set, or calibrated otherwise, decide nothing.
    """
    judge = run.cfg.dataset.judge
    return judge if judge is None or _as_set(run) else f"{judge}, by another verifier"


def _labels(run: Run, rows: pa.Table, quiet: bool) -> pa.Array:
    """The label of the verdict on each row of a table, A, B or C; null without one."""
    if not _as_set(run):
        name = run.cfg.verifier.name
        if not quiet and (run.path / "verdicts").exists():
            warn(f"{run.path}: its verdicts are not of verifier={name} as it is set; run `verify`")
        return pa.nulls(rows.num_rows, pa.string())
    keys = rowkeys.encode(rows, rowkeys.question_ids(run))
    damage = parquet.Damage() if quiet else None
    return rowkeys.aligned(run, "verdicts", ["label"], keys, damage)["label"]


def _as_set(run: Run) -> bool:
    """Whether the stored verdicts are those that the settings would give."""
    made = runfolder.read_json(run.path / "verdicts" / "_verifier.json")
    applied = made.get("calibration") or {}  # none while it is changed
    as_set = calibrated_as(run).items() <= applied.items()
    return as_set and made.get("asked") == _made_as(run)


def calibrated_as(run: Run) -> dict[str, Any]:
    """The settings that make a calibration what it is, but for T, for the same record."""
    v = run.cfg.verifier
    kept = {"average": v.average, "content_free": list(v.content_free)}
    return kept | {"version": _CALIBRATION, "kind": v.calibration, "clip": v.clip}


def by_grader(run: Run) -> bool:
    """Whether the stored verdicts are calibrated to the grader's outcomes."""
    made = runfolder.read_json(run.path / "verdicts" / "_verifier.json")
    return (made.get("calibration") or {}).get("kind") == "graded"


def _made_as(run: Run) -> dict[str, Any]:
    """`asked_as`, with the prompt in the official one's stead where the verdicts are by that."""
    made, v = runfolder.read_json(run.path / "verdicts" / "_verifier.json"), run.cfg.verifier
    instead = asked_as(run) | ({"prompt": v.official.fallback} if v.prompt == OFFICIAL else {})
    return instead if made.get("asked") == instead else asked_as(run)
