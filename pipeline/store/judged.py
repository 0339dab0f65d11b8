"""Verdicts as others read them: which attempts they decide, and whether they are as set."""

import contextlib
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.config.official import OFFICIAL, template_file
from bayes_at_n.pipeline.store import parquet, rowkeys, runfolder
from bayes_at_n.pipeline.store.runfolder import Run

_MOST = 1 << 20  # bytes of a file that is read: the folder that names it may be anybody's
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


def edited(run: Run) -> Iterator[str]:
    """A line for a prompt file of the user's that has changed since it decided what is stored.

    One that is not there, as on another machine, is no reason to say so: what it made stays.
    """
    verdicts = runfolder.read_json(run.path / "verdicts" / "_verifier.json")
    if prompt := verdicts.get("asked", {}).get("prompt"):
        template = verdicts.get("settings", {}).get("template")
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            path = template_file(str(prompt)).expanduser().resolve()
            if path.is_file() and path.stat().st_size <= _MOST:
                text = path.read_bytes().decode().rstrip("\n")
                if template not in (None, runfolder.short_hash(text)):
                    yield f"{run.path}: {path} was edited after it made the verdicts; run `verify`"


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


def labels(run: Run, keys: rowkeys.Ints, quiet: bool) -> pa.Array:
    """The label of the verdict on each of these attempts, A, B or C; null without one."""
    if not _as_set(run):
        name = run.cfg.verifier.name
        if not quiet and (run.path / "verdicts").exists():
            warn(f"{run.path}: its verdicts are not of verifier={name} as it is set; run `verify`")
        return pa.nulls(keys.size, pa.string())
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
