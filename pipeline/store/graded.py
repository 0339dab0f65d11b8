"""Read grades as the rule grader made them, and outcomes where a verifier decides them.

With `dataset.judge` a verdict's label, the largest calibrated probability, is the outcome: A
correct, B wrong, C no_answer. No verdict decides a response that was cut off: it has not answered.
"""

import contextlib
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n import verifiers
from bayes_at_n.pipeline.base import environment
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.store import rowkeys, verdicts
from bayes_at_n.pipeline.store.columns import GRADES
from bayes_at_n.pipeline.store.runfolder import Run, read_json
from bayes_at_n.pipeline.store.tables import Derived, Inputs, is_imported
from bayes_at_n.verifiers.answers import own
from bayes_at_n.verifiers.maths.conventions import KNOWN

GRADES_TABLE = Derived("grades", GRADES, "grade", verifiers.VERSION)
_OF_DATASET = ("answer", "boxes", "pattern", "conventions")
# What decides a grade, and is kept in the folder where it is typed with `grade`.
SETTINGS = ("grading", *(f"dataset.{name}" for name in _OF_DATASET), "model.reasoning_end")
_PACKAGES = ("math-verify", "latex2sympy2_extended", "sympy", "antlr4-python3-runtime")
_OUTCOMES = pa.array(["correct", "wrong", "no_answer"])  # that the labels stand for
_LABELS = pa.array(["A", "B", "C"])
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
    """Return the files of grades that were made otherwise, and how."""
    return GRADES_TABLE.stale(run, inputs(run))


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


def aligned(run: Run, names: Sequence[str], keys: rowkeys.Ints) -> dict[str, pa.Array]:
    """Read columns of `ruled` in the order of `keys`; null without a grade."""
    rows = ruled(run, names)
    return rowkeys.in_order(rows, rowkeys.encode(rows, rowkeys.question_ids(run)), names, keys)


def graded(run: Run, names: Sequence[str] = (), quiet: bool = False) -> pa.Table:
    """Read key, `outcome`, `box` and other columns of every grade, with verdicts where they decide.

    `ruled` is the rule grader's outcome, `judged` whether the verifier decides. Where it does,
    `layer` is "verifier", `reason` has both, and without a verdict the outcome is null, so owed.
    Raises Stale: as `ruled`. UserError, unless `quiet`: with judge=unmatched verdicts are missing,
    and the rest, mostly what the rule grader accepts, is no fair sample.
    """
    judge = run.cfg.dataset.judge
    table = ruled(run, [*dict.fromkeys(["outcome", "box", *names])])
    rules = table["outcome"]
    decides = verdicts.asks(judge, rules, table["box"])
    table = table.append_column("ruled", rules).append_column("judged", decides)
    if judge is None:
        return table
    keys = rowkeys.encode(table, rowkeys.question_ids(run))
    labels = verdicts.aligned(run, ["label"], keys, quiet)["label"]
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
