"""Read grades of the rule grader, verdicts of a verifier, and the outcomes that these decide.

Verdicts are calibrated probabilities, derived from log-probs of labels (verify/stage.py). With
`dataset.judge` a verdict's label, the most probable, is the outcome: A correct, B wrong, C
no_answer. No verdict decides a response that was cut off: it has not answered.
"""

import contextlib
import functools
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n import verifiers
from bayes_at_n.pipeline.base import environment
from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.config.settings import OFFICIAL, RunConfig, VerifierConfig, template_file
from bayes_at_n.pipeline.store import rowkeys
from bayes_at_n.pipeline.store.columns import GRADES, KEY, VERDICTS
from bayes_at_n.pipeline.store.runfolder import Run, read_json, short_hash
from bayes_at_n.pipeline.store.tables import (
    IMPORTED,
    Derived,
    Inputs,
    Rows,
    Stale,
    is_imported,
    parts,
    record,
)
from bayes_at_n.verifiers.answers import own
from bayes_at_n.verifiers.maths.conventions import KNOWN

GRADES_TABLE = Derived("grades", GRADES, "grade", verifiers.VERSION)
VERDICTS_TABLE = Derived("verdicts", VERDICTS, "verify", 1)
_OF_DATASET = ("answer", "boxes", "pattern", "conventions")
# What decides a grade, and is kept in the folder where it is typed with `grade`.
SETTINGS = ("grading", *(f"dataset.{name}" for name in _OF_DATASET), "model.reasoning_end")
_PACKAGES = ("math-verify", "latex2sympy2_extended", "sympy", "antlr4-python3-runtime")
_OUTCOMES = pa.array(["correct", "wrong", "no_answer"])  # that the labels stand for
_LABELS = pa.array(["A", "B", "C"])
_MOST = 1 << 20  # bytes of a prompt that is hashed: the folder that names it may be anybody's
# What makes a log-prob another one, as far as settings tell.
_ASKED = ("id", "revision", "prompt", "labels", "dtype", "context", "chat_template_kwargs")
_CALIBRATION = ("calibration", "clip", "average", "content_free", "temperature")
_warn = functools.cache(warn)  # once a command
_version = functools.cache(environment.version)


def settings(cfg: RunConfig) -> dict[str, Any]:
    """Return what decides the grade of a pair. Raises UserError: a user's own grader is gone."""
    conventions = KNOWN[cfg.dataset.answer.partition(":")[0]]
    answer, function = cfg.dataset.grader()
    return {
        "answer": own.grader(answer),
        "function": function,
        "compat": cfg.grading.compat,
        "conventions": {name: getattr(cfg.dataset.conventions, name) for name in conventions},
        "timeout_s": cfg.grading.timeout_s,
        "memory_mb": cfg.grading.memory_mb,
        "packages": {name: _version(name) for name in _PACKAGES},
    }


def inputs(run: Run) -> Inputs:
    """Return what grades are made of beside the attempts. Raises as `settings`."""
    dataset, end = run.cfg.dataset, run.cfg.model.reasoning_end
    found = {"reasoning_end": end, "boxes": dataset.boxes, "pattern": dataset.pattern}
    strict = [q["question_id"] for q in run.questions if q["form"] == "strict"]
    return settings(run.cfg) | found | {"strict": strict}


def stale(run: Run) -> dict[Path, str]:
    """Return the files of grades and verdicts that were made otherwise, and how."""
    wanted = _wanted(run)
    found = {} if wanted is None else VERDICTS_TABLE.stale(run, wanted)
    with contextlib.suppress(UserError):  # on another machine, without a user's own grader
        found |= GRADES_TABLE.stale(run, inputs(run))
    return found


def ruled(run: Run, names: Sequence[str]) -> pa.Table:
    """Read key and columns of every grade by the rule grader. Raises Stale: by other settings."""
    wanted = None
    with contextlib.suppress(UserError):  # on another machine, without a user's own grader
        wanted = inputs(run)
    return GRADES_TABLE.read(run, names, wanted).table


def made_by(run: Run) -> dict[str, Any]:
    """Return what decided the grades of a run, to be compared with another's."""
    if any(map(is_imported, run.grades.glob("*.parquet"))):
        imported = dict(read_json(run.manifest).get("imported", {}))
        return {"imported": str(imported.get("fingerprint"))}
    with contextlib.suppress(UserError):
        return {"version": GRADES_TABLE.version, **inputs(run)}
    return {}


def asks(judge: str | None, outcome: Any, box: Any) -> Any:
    """Select the attempts that the verifier decides, by columns of their grades: bool."""
    decided = pc.and_(pc.is_valid(outcome), pc.not_equal(box, "truncated").fill_null(True))
    if judge == "unmatched":
        decided = pc.and_(decided, pc.not_equal(outcome, "correct").fill_null(False))
    return pc.and_(decided, judge is not None)


def verdict_inputs(run: Run, of_grades: bool) -> dict[str, Any]:
    """Return what decides verdicts and a reader knows; with `of_grades` also grades."""
    v, judge = run.cfg.verifier, run.cfg.dataset.judge
    found = {"asked": _asked(v)} | {name: getattr(v, name) for name in _CALIBRATION}
    found["judge"] = judge if judge == "unmatched" or v.calibration == "graded" else None
    if of_grades:
        made = [record(GRADES_TABLE.path(run.path, part.stem)) for part in parts(run.attempts)]
        kinds = {str({k: v for k, v in sorted(one.items()) if k != "part"}) for one in made if one}
        found["grades"] = [short_hash(kind) for kind in sorted(kinds)]
    return found


def verdicts_made_of(run: Run) -> dict[str, Any]:
    """Return what the verdicts were made of; empty without any, or of imported ones."""
    stems = (part.stem for part in parts(run.attempts))
    made = (record(VERDICTS_TABLE.path(run.path, stem)).get("inputs") for stem in stems)
    return next((dict(inputs) for inputs in made if inputs and inputs != IMPORTED), {})


def read_verdicts(
    run: Run, names: Sequence[str], stale: Literal["raise", "warn", "hide"] = "raise"
) -> Rows:
    """Read columns of all verdicts, of whoever made them with verifier=none; of stale ones no row.

    Raises Stale, by default.
    """
    try:
        return VERDICTS_TABLE.read(run, names, _wanted(run))
    except Stale as error:
        if stale == "raise":
            raise
        if stale == "warn":
            _warn(f"{error}; they do not count until then")
        return Rows(VERDICTS.empty_table().select([*KEY, *names]), 0)


def _wanted(run: Run) -> Inputs | None:
    """Return what verdicts would be made of now, as far as a reader knows; None: no verifier."""
    if run.cfg.verifier.id is None:
        return None
    made = verdicts_made_of(run)
    asked = _asked(run.cfg.verifier, made)
    found = {"asked": asked, "template": made.get("template")}
    with contextlib.suppress(OSError, ValueError, RuntimeError):  # else the file is not here
        path = template_file(asked["prompt"]).resolve()
        if path.is_file() and path.stat().st_size <= _MOST:
            found["template"] = short_hash(path.read_text("utf-8").rstrip("\n"))
    return made | verdict_inputs(run, "grades" in made) | found


def judge_settings(run: Run) -> dict[str, Any] | None:
    """Return which outcomes verdicts decide, and whose; None: the rule grader decides all."""
    judge = run.cfg.dataset.judge
    return {"judge": judge, **_asked(run.cfg.verifier, verdicts_made_of(run))} if judge else None


def _asked(v: VerifierConfig, made: Inputs = IMPORTED) -> dict[str, Any]:
    """Return what decides log-probs; of the official prompt's fallback where `made` is by that."""
    if v.prompt == OFFICIAL and v.official.fallback is not None:
        instead = _asked(replace(v, prompt=v.official.fallback))
        if made.get("asked") == instead:
            return instead
    known = asdict(v) | ({"prompt": str(v.official)} if v.prompt == OFFICIAL else {})
    return {name: known[name] for name in _ASKED} | v.form()


def graded(run: Run, names: Sequence[str] = (), quiet: bool = False) -> pa.Table:
    """Read key, `outcome`, `box` and other columns of every grade, with verdicts where they decide.

    `ruled` is the rule grader's outcome, `judged` whether the verifier decides. Where it does,
    `layer` is "verifier", `reason` has both, and without a verdict the outcome is null, so pending.
    Raises Stale: as `ruled`. UserError, unless `quiet`: with judge=unmatched verdicts are missing,
    and the rest, mostly what the rule grader accepts, is no fair sample.
    """
    judge = run.cfg.dataset.judge
    table = ruled(run, [*dict.fromkeys(["outcome", "box", *names])])
    rules = table["outcome"]
    decides = asks(judge, rules, table["box"])
    table = table.append_column("ruled", rules).append_column("judged", decides)
    if judge is None:
        return table
    keys = rowkeys.encode(table, rowkeys.question_ids(run))
    verdicts = read_verdicts(run, ["label"], "hide" if quiet else "raise").table
    labels = rowkeys.aligned(run, verdicts, keys)["label"]
    waiting = pc.sum(pc.and_(decides, labels.is_null())).as_py()
    if waiting and judge == "unmatched" and not quiet:
        raise UserError(
            f"{run.path}: {waiting} attempts wait for the verifier, which decides what the rule"
            f" grader does not accept (dataset.judge=unmatched); run `{PROGRAM} verify`"
        )
    decided: dict[str, Any] = {"outcome": _OUTCOMES.take(pc.index_in(labels, _LABELS))}
    if "layer" in names:
        decided["layer"] = pa.scalar("verifier")
    if "reason" in names:
        said = ("the verifier says ", labels.fill_null("nothing yet"), "; the rule grader: ", rules)
        decided["reason"] = pc.binary_join_element_wise(*said, ", ", table["reason"], "")
    for name, values in decided.items():
        column = pc.if_else(decides, values, table[name])
        table = table.set_column(table.column_names.index(name), name, column)
    return table
