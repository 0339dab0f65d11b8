"""Where hardly any answer is boxed: which setting would read them, tried on some attempts."""

import shlex
from dataclasses import replace
from typing import Any

import numpy as np

from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.config import overrides
from bayes_at_n.pipeline.grade.known import KnownGrades, attempt, find, whole
from bayes_at_n.pipeline.store import parquet, rowkeys, runfolder
from bayes_at_n.pipeline.store.columns import cut_off
from bayes_at_n.pipeline.store.graded import ruled
from bayes_at_n.pipeline.store.runfolder import Run

_LEAST, _MOST = 0.9, 256  # of the attempts that ended; attempts that are tried
_LONGEST = 1 << 20  # characters of one
_TIMEOUT_S = 0.5  # of a comparison
_WAYS: list[dict[str, Any]] = [  # of equal use the first
    {"answer": "number"},
    {"answer": "choice"},
    {"answer": "exact"},
    {"boxes": "or_math"},
    {"answer": "regex", "pattern": r"(-?[0-9][0-9.,/]*)[^0-9]*$"},  # the last number
]


def hint(run: Run, verb: str = "run") -> None:
    """Say which setting would read the answers of a run of which hardly any is boxed.

    Grades tell how many are; of imported ones that do not, some texts are looked at. `verb` is the
    one that grades with the setting.
    """
    if whole(run.cfg) or not run.attempts.is_dir():
        return
    table = ruled(run, ["box"])
    keys = rowkeys.encode(table, rowkeys.question_ids(run))
    box = table["box"].to_numpy()
    lost, ended, total = keys[box == "no_box"], (box != "truncated").sum(), len(box)
    if verb != "run" and not table["box"].drop_null():
        ends, keys = rowkeys.keyed(run, "attempts", ["finish_reason"], parquet.Damage())
        lost = keys[~cut_off(ends["finish_reason"]).fill_null(False).to_numpy()]
        ended, total = lost.size, len(keys)
    if not lost.size or lost.size < _LEAST * ended:
        return
    some = np.sort(lost)[np.linspace(0, lost.size - 1, min(_MOST, lost.size)).astype(int)]
    tried = [
        attempt(run.cfg, run.questions[some[i] >> 32], int(some[i] & 0xFFFFFFFF), text, False)
        for i, text in rowkeys.responses(run, some, parquet.Damage())
        if len(text) <= _LONGEST
    ]
    unread = [one for one in tried if one.gold and find(run.cfg, one).reason == "no_box"]
    if not unread or len(unread) < _LEAST * len(tried):
        return
    best, counts = dict[str, Any](), (0, 0)
    for way in _WAYS:
        if way.get("answer") == "choice" and not all(one.question["choices"] for one in unread):
            continue
        dataset = replace(run.cfg.dataset, **{"pattern": None, **way})
        cfg = replace(
            run.cfg, dataset=dataset, grading=replace(run.cfg.grading, timeout_s=_TIMEOUT_S)
        )
        outcomes = [grade.outcome for _, grade in KnownGrades(cfg).attempts(unread)]
        found = outcomes.count("correct"), len(outcomes) - outcomes.count("no_answer")
        if found > counts:
            best, counts = way, found
    imported = "imported" in runfolder.read_json(run.manifest)
    if best:
        pairs = [f"dataset.{key}={overrides.quoted(value)}" for key, value in best.items()]
        command = [PROGRAM, "grade" if imported else verb, str(run.path), *pairs]
        read = f"reads {counts[1]} of {len(unread)} that were tried, {counts[0]} of them correct"
        told = f"{shlex.join(pairs)} {read}: {shlex.join(command)}"
    else:
        told = "no other setting reads them" + "; see prompt.template" * (not imported)
    share = len(unread) / len(tried) * lost.size / total
    warn(f"{run.path}: {share:.0%} of {total} attempts have no box; {told}")
