"""Read verdicts: calibrated probabilities, derived from log-probs of labels (verify/stage.py)."""

import contextlib
import functools
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.config.settings import OFFICIAL, VerifierConfig, template_file
from bayes_at_n.pipeline.store import rowkeys, runfolder
from bayes_at_n.pipeline.store.columns import GRADES, KEY, VERDICTS
from bayes_at_n.pipeline.store.rowkeys import Ints
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.store.tables import IMPORTED, Derived, Inputs, Rows, Stale, parts, record

_warn = functools.cache(warn)  # once a command
VERDICTS_TABLE = Derived("verdicts", VERDICTS, "verify", 1)
_GRADES = Derived("grades", GRADES, "grade", 0)  # for its records alone
_MOST = 1 << 20  # bytes of a prompt that is hashed: the folder that names it may be anybody's
# What makes a log-prob another one, as far as settings tell.
_ASKED = ("id", "revision", "prompt", "labels", "dtype", "context", "chat_template_kwargs")
_CALIBRATION = ("calibration", "clip", "average", "content_free", "temperature")


def asks(judge: str | None, outcome: Any, box: Any) -> Any:
    """Select the attempts that the verifier decides, by columns of their grades: bool."""
    decided = pc.and_(pc.is_valid(outcome), pc.not_equal(box, "truncated").fill_null(True))
    if judge == "unmatched":
        decided = pc.and_(decided, pc.not_equal(outcome, "correct").fill_null(False))
    return pc.and_(decided, judge is not None)


def inputs(run: Run, of_grades: bool) -> dict[str, Any]:
    """Return what decides verdicts and a reader knows; with `of_grades` also grades."""
    v, judge = run.cfg.verifier, run.cfg.dataset.judge
    found = {"asked": _asked(v)} | {name: getattr(v, name) for name in _CALIBRATION}
    found["judge"] = judge if judge == "unmatched" or v.calibration == "graded" else None
    if of_grades:
        made = [record(_GRADES.path(run.path, part.stem)) for part in parts(run.attempts)]
        kinds = {str({k: v for k, v in sorted(one.items()) if k != "part"}) for one in made if one}
        found["grades"] = [runfolder.short_hash(kind) for kind in sorted(kinds)]
    return found


def made_of(run: Run) -> dict[str, Any]:
    """Return what the verdicts were made of; empty without any, or of imported ones."""
    stems = (part.stem for part in parts(run.attempts))
    made = (record(VERDICTS_TABLE.path(run.path, stem)).get("inputs") for stem in stems)
    return next((dict(inputs) for inputs in made if inputs and inputs != IMPORTED), {})


def read(run: Run, names: Sequence[str]) -> Rows:
    """Read columns of all verdicts, of whoever made them with verifier=none. Raises Stale."""
    return VERDICTS_TABLE.read(run, names, _wanted(run))


def stale(run: Run) -> dict[Path, str]:
    """Return the files of verdicts that were made otherwise, and how."""
    wanted = _wanted(run)
    return {} if wanted is None else VERDICTS_TABLE.stale(run, wanted)


def _wanted(run: Run) -> Inputs | None:
    """Return what verdicts would be made of now, as far as a reader knows; None: no verifier."""
    if run.cfg.verifier.id is None:
        return None
    made = made_of(run)
    asked = _asked_as(run, made)
    found = {"asked": asked, "template": made.get("template")}
    with contextlib.suppress(OSError, ValueError, RuntimeError):  # else the file is not here
        path = template_file(asked["prompt"]).resolve()
        if path.is_file() and path.stat().st_size <= _MOST:
            found["template"] = runfolder.short_hash(path.read_text("utf-8").rstrip("\n"))
    return made | inputs(run, "grades" in made) | found


def current(run: Run, names: Sequence[str], quiet: bool = False) -> pa.Table:
    """Return the rows of `read`; none where stale, with a warning unless `quiet`."""
    try:
        return read(run, names).table
    except Stale as error:
        if not quiet:
            _warn(f"{error}; until then they count not")
        return VERDICTS.empty_table().select([*KEY, *names])


def aligned(run: Run, names: Sequence[str], keys: Ints, quiet: bool = False) -> dict[str, pa.Array]:
    """Read columns in the order of `keys`, null without a verdict; `quiet`: of `current`."""
    table = current(run, names, quiet) if quiet else read(run, names).table
    known = rowkeys.encode(table, rowkeys.question_ids(run))
    return rowkeys.in_order(table, known, names, keys)


def settings(run: Run) -> dict[str, Any] | None:
    """Return which outcomes verdicts decide, and whose; None: the rule grader decides all."""
    judge = run.cfg.dataset.judge
    return {"judge": judge, **_asked_as(run, made_of(run))} if judge else None


def _asked(v: VerifierConfig) -> dict[str, Any]:
    known = asdict(v) | ({"prompt": str(v.official)} if v.prompt == OFFICIAL else {})
    return {name: known[name] for name in _ASKED} | v.form()


def _asked_as(run: Run, made: Inputs) -> dict[str, Any]:
    """Return the settings; with the official prompt's fallback where verdicts are by that."""
    v = run.cfg.verifier
    if v.prompt == OFFICIAL and v.official.fallback is not None:
        instead = _asked(replace(v, prompt=v.official.fallback))
        if made.get("asked") == instead:
            return instead
    return _asked(v)
