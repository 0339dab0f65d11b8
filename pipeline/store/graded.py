"""Read grades of the rule grader, verdicts of the verifier, and the outcomes that they decide.

Verdicts are calibrated probabilities, derived from log-probs of labels (verify/stage.py). With
`dataset.judge` a verdict's most probable label is the outcome: A correct, B wrong, C no_answer. No
verdict decides a truncated response, which has no answer.
"""

import contextlib
import functools
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n import verifiers
from bayes_at_n.pipeline.base import program
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
VERDICTS_TABLE = Derived("verdicts", VERDICTS, "verify", 2)
_OF_DATASET = ("answer", "boxes", "pattern", "conventions")
# Settings that decide a grade, which `grade` stores in the folder.
SETTINGS = ("grading", *(f"dataset.{name}" for name in _OF_DATASET), "model.reasoning_end")
_PACKAGES = ("math-verify", "latex2sympy2_extended", "sympy", "antlr4-python3-runtime")
_BY_LABEL = {"A": "correct", "B": "wrong", "C": "no_answer"}
_MOST = 1 << 20  # bytes of a prompt to hash: a stranger's folder may name any file
# Settings that decide the log-probs of labels.
_REQUEST = ("id", "revision", "prompt", "labels", "dtype", "context", "chat_template_kwargs")
_CALIBRATION = ("calibration", "clip", "average", "content_free", "temperature")
_warn = functools.cache(warn)  # once per command
_version = functools.cache(program.version)


def settings(cfg: RunConfig) -> dict[str, Any]:
    """Return what decides the grade of an answer. Raises UserError: own grader is missing."""
    conventions = KNOWN[cfg.dataset.answer.partition(":")[0]]
    answer, function = cfg.dataset.grader()
    limits = cfg.grading
    of_code = {"sandbox": limits.sandbox, "image": limits.image, "python": sys.version_info[:2]}
    return {
        "answer": own.grader(answer),
        "function": function,
        "compat": cfg.grading.compat,
        "conventions": {name: getattr(cfg.dataset.conventions, name) for name in conventions},
        "timeout_s": cfg.grading.timeout_s,
        "memory_mb": cfg.grading.memory_mb,
        "packages": {name: _version(name) for name in _PACKAGES},
        **(of_code if answer == "code" else {}),
    }


def inputs(run: Run) -> Inputs:
    """Return the inputs of grades besides the attempts. Raises: see `settings`."""
    dataset, end = run.cfg.dataset, run.cfg.model.reasoning_end
    more = {"reasoning_end": end, "boxes": dataset.boxes, "pattern": dataset.pattern}
    strict = [q["question_id"] for q in run.questions if q["form"] == "strict"]
    if run.cfg.sampling.likelihood:
        return {"likelihood": run.cfg.grading.likelihood}
    return settings(run.cfg) | more | {"strict": strict}


def stale(run: Run) -> dict[Path, str]:
    """Return the stale files of grades and verdicts, and which inputs differ."""
    now = _inputs_now(run)
    files = {} if now is None else VERDICTS_TABLE.stale(run, now)
    with contextlib.suppress(UserError):  # the user's grader may be on another machine
        files |= GRADES_TABLE.stale(run, inputs(run))
    return files


def ruled(run: Run, names: Sequence[str]) -> pa.Table:
    """Read key and columns of the rule grader's grades. Raises Stale: made with other inputs."""
    now = None
    with contextlib.suppress(UserError):  # the user's grader may be on another machine
        now = inputs(run)
    return GRADES_TABLE.read(run, names, now).table


def made_by(run: Run) -> dict[str, Any]:
    """Return what decided the grades of a run, for comparison with another's."""
    if any(map(is_imported, run.grades.glob("*.parquet"))):
        imported = dict(read_json(run.manifest).get("imported", {}))
        return {"imported": str(imported.get("fingerprint"))}
    with contextlib.suppress(UserError):
        return {"version": GRADES_TABLE.version, **inputs(run)}
    return {}


def decided_by_verifier(judge: str | None, outcome: Any, box: Any) -> Any:
    """Return which attempts the verifier decides, from columns of their grades: bool."""
    decided = pc.and_(pc.is_valid(outcome), pc.not_equal(box, "truncated").fill_null(True))
    if judge == "unmatched":
        decided = pc.and_(decided, pc.not_equal(outcome, "correct").fill_null(False))
    return pc.and_(decided, judge is not None)


def verdict_inputs(run: Run, of_grades: bool) -> dict[str, Any]:
    """Return the inputs of verdicts that settings decide; with `of_grades`, grades, too."""
    v, judge = run.cfg.verifier, run.cfg.dataset.judge
    inputs = {"asked": _request(v)} | {name: getattr(v, name) for name in _CALIBRATION}
    inputs["judge"] = judge if judge == "unmatched" or v.calibration == "graded" else None
    if of_grades:
        records = [record(GRADES_TABLE.path(run.path, part.stem)) for part in parts(run.attempts)]
        kinds = {str({k: v for k, v in sorted(r.items()) if k != "part"}) for r in records if r}
        inputs["grades"] = [short_hash(kind) for kind in sorted(kinds)]
    return inputs


def verdicts_made_of(run: Run) -> dict[str, Any]:
    """Return the inputs of the stored verdicts; empty if there are none, or imported ones."""
    stems = (part.stem for part in parts(run.attempts))
    stored = (record(VERDICTS_TABLE.path(run.path, stem)).get("inputs") for stem in stems)
    return next((dict(inputs) for inputs in stored if inputs and inputs != IMPORTED), {})


def read_verdicts(
    run: Run, names: Sequence[str], stale: Literal["raise", "warn", "hide"] = "raise"
) -> Rows:
    """Read columns of all verdicts; with verifier=none whatever made them.

    `stale`: raise Stale for stale verdicts, or return no rows, with a warning or without.
    """
    try:
        return VERDICTS_TABLE.read(run, names, _inputs_now(run))
    except Stale as error:
        if stale == "raise":
            raise
        if stale == "warn":
            _warn(f"{error}; until then they do not count")
        return Rows(VERDICTS.empty_table().select([*KEY, *names]), 0)


def _inputs_now(run: Run) -> Inputs | None:
    """Return the inputs that verdicts would have now; None: no verifier."""
    if run.cfg.verifier.id is None:
        return None
    stored = verdicts_made_of(run)
    request = _request(run.cfg.verifier, stored)
    prompt_inputs = {"asked": request, "template": stored.get("template")}
    with contextlib.suppress(OSError, ValueError, RuntimeError):  # the file may be elsewhere
        path = template_file(request["prompt"]).resolve()
        if path.is_file() and path.stat().st_size <= _MOST:
            prompt_inputs["template"] = short_hash(path.read_text("utf-8").rstrip("\n"))
    return stored | verdict_inputs(run, "grades" in stored) | prompt_inputs


def judge_settings(run: Run) -> dict[str, Any] | None:
    """Return which outcomes the verifier decides, and its settings; None: the rules decide all."""
    judge = run.cfg.dataset.judge
    return {"judge": judge, **_request(run.cfg.verifier, verdicts_made_of(run))} if judge else None


def _request(v: VerifierConfig, stored: Inputs = IMPORTED) -> dict[str, Any]:
    """Return what decides log-probs; of the fallback prompt if the stored verdicts used that."""
    if v.prompt == OFFICIAL and v.official.fallback is not None:
        fallback = _request(replace(v, prompt=v.official.fallback))
        if stored.get("asked") == fallback:
            return fallback
    values = asdict(v) | ({"prompt": str(v.official)} if v.prompt == OFFICIAL else {})
    return {name: values[name] for name in _REQUEST} | v.form()


def graded(run: Run, names: Sequence[str] = (), quiet: bool = False) -> pa.Table:
    """Read key, `outcome`, `box` and other columns of every grade, with verdicts where they decide.

    Column `ruled` is the rule grader's outcome, `judged` whether the verifier decides. Where it
    does, `layer` is "verifier", `reason` has both, and a missing verdict is a null outcome. With
    `RunConfig.point_weights` column `points` has all points for what the rules accept.

    Raises:
        Stale: see `ruled`.
        UserError: unless `quiet`, with judge=unmatched verdicts are missing; the other attempts,
            mostly those that the rules accept, are a biased sample.
    """
    judge, v, weights = run.cfg.dataset.judge, run.cfg.verifier, run.cfg.point_weights
    table = ruled(run, [*dict.fromkeys(["outcome", "box", *names])])
    rules = table["outcome"]
    decides = decided_by_verifier(judge, rules, table["box"])
    table = table.append_column("ruled", rules).append_column("judged", decides)
    if judge is None:
        return table
    keys, writes = rowkeys.encode(table, rowkeys.question_ids(run)), v.kind == "generate"
    columns = ["label", *["points"] * (weights is not None), *["votes"] * writes]
    verdicts = read_verdicts(run, columns, "hide" if quiet else "raise").table
    found = rowkeys.aligned(run, verdicts, keys)
    labels = found["label"]
    waiting = pc.sum(pc.and_(decides, labels.is_null())).as_py()  # undecided ones have a label
    if waiting and judge == "unmatched" and not quiet:
        raise UserError(
            f"{run.path}: {waiting} attempts wait for the verifier, which decides answers that the"
            f" rules do not accept (dataset.judge=unmatched); run `{PROGRAM} verify`"
        )
    of_labels = pa.array(_BY_LABEL.values()).take(pc.index_in(labels, pa.array(_BY_LABEL)))
    decided: dict[str, Any] = {"outcome": of_labels}
    if "layer" in names:
        decided["layer"] = pa.scalar("verifier")
    if "reason" in names:
        said = labels
        if writes:
            votes, most = pc.binary_join(found["votes"], " "), v.judgement.points
            said = pc.binary_join_element_wise(votes, f" of {most} points" if most else "", "")
            said = pc.if_else(pc.equal(votes, ""), "undecided", said)
        both = ("verifier: ", pc.coalesce(said, labels, "pending"), "; rule grader: ", rules)
        decided["reason"] = pc.binary_join_element_wise(*both, ", ", table["reason"], "")
    for name, values in decided.items():
        column = pc.if_else(decides, values, table[name])
        table = table.set_column(table.column_names.index(name), name, column)
    if weights is not None:
        by_rules = pc.if_else(pc.equal(rules, "correct"), len(weights) - 1, 0)
        points = pc.if_else(decides, found["points"], by_rules.cast(pa.int16()))
        table = table.append_column("points", points)
    return table
