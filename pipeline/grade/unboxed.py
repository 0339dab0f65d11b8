"""Where hardly any answer is boxed: which setting would read them, tried on some attempts."""

import shlex
from dataclasses import replace
from typing import Any

import numpy as np

from pipeline.base.console import warn
from pipeline.base.program import PROGRAM
from pipeline.config import overrides
from pipeline.grade.known import KnownGrades, attempt, whole
from pipeline.store import parquet, rowkeys
from pipeline.store.runfolder import Run

_LEAST = 0.9  # of the attempts that ended
_MOST = 256  # attempts that are tried
_TIMEOUT_S = 0.5  # of a comparison
_LAST_NUMBER = r"(-?[0-9][0-9.,/]*)[^0-9]*$"
_WAYS: list[dict[str, Any]] = [  # of equal use the first
    {"answer": "number"},
    {"answer": "choice"},
    {"answer": "exact"},
    {"boxes": "or_math"},
    {"answer": "regex", "pattern": _LAST_NUMBER},
]


def hint(run: Run) -> None:
    """Say which setting would read the answers of a graded run of which hardly any is boxed."""
    table, keys = rowkeys.keyed(run, "grades", ["box"], parquet.Damage())
    box = table["box"].to_numpy()
    lost = np.sort(keys[box == "no_box"])
    if whole(run.cfg) or not lost.size or lost.size < _LEAST * (box != "truncated").sum():
        return
    some = lost[np.linspace(0, lost.size - 1, min(_MOST, lost.size)).astype(int)]
    tried = []
    for i, text in rowkeys.responses(run, some, parquet.Damage()):
        question, trial = run.questions[some[i] >> 32], int(some[i] & 0xFFFFFFFF)
        tried.append(attempt(run.cfg, question, trial, text, False))
    best, found = {}, (0, 0)
    for way in _WAYS:
        if way.get("answer") == "choice" and not all(one.question["choices"] for one in tried):
            continue
        limits = replace(run.cfg.grading, timeout_s=_TIMEOUT_S)
        dataset = replace(run.cfg.dataset, **{"pattern": None, **way})
        cfg = replace(run.cfg, dataset=dataset, grading=limits)
        outcomes = [grade.outcome for _, grade in KnownGrades(cfg, None).attempts(tried)]
        counts = outcomes.count("correct"), len(outcomes) - outcomes.count("no_answer")
        if counts > found:
            best, found = way, counts
    share = f"{lost.size / len(box):.0%} of {len(box)} attempts have no box"
    if not best:
        return warn(f"{share}, and no other setting reads them: ask for one in prompt.template")
    settings = " ".join(
        shlex.quote(f"dataset.{key}={overrides.quoted(value)}") for key, value in best.items()
    )
    warn(
        f"{share}: {settings} reads {found[1]} of {len(tried)} that were tried, {found[0]} of them"
        f" correct: {PROGRAM} run {shlex.quote(str(run.path))} {settings}"
    )
