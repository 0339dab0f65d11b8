"""What is not alike among runs that are compared: a line for each thing.

A difference is no fault. It is what a reader must know before believing that one number is larger
than another.
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from bayes_at_n.pipeline.base.console import joined
from bayes_at_n.pipeline.config.checks import keys
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.store import outcomes, provenance, runfolder
from bayes_at_n.pipeline.store.outcomes import PENDING, Codes
from bayes_at_n.pipeline.store.runfolder import Run

# Settings that say how a run was sampled.
PROTOCOL = ("sampling.", "prompt.", "engine.", "model.quantization", "model.reasoning_parser")
_SECRET = re.compile("key|token|secret|passw|auth|credential|cookie", re.I)


def flat(values: Mapping[str, Any], dot: str = ".") -> Iterator[tuple[str, Any]]:
    """Yield the values in groups within groups, by their full keys."""
    for name, value in values.items():
        inside = flat(value, dot) if isinstance(value, Mapping) and value else None
        yield from ((f"{name}{dot}{k}", v) for k, v in inside) if inside else [(name, value)]


def public(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by full key, without free keys and environment variables named secret."""
    secrets = [v for k, v in os.environ.items() if _SECRET.search(k) and len(v) >= 8]
    named = ((k, v) for k, v in flat(values) if k in keys(RunConfig) or not _SECRET.search(k))
    return {k: v for k, v in named if not any(text in str(v) for text in secrets)}


def protocol(run: Run) -> dict[str, Any]:
    """Return a run's settings of sampling, prompt and engine, by dotted key; no secret.

    Of imported records that do not say how they were sampled, the settings of sampling are None.
    """
    identity, known = provenance.identity(run.cfg), sampling_known(run) is not False
    made = runfolder.read_json(run.manifest).get("identity", {})
    identity["prompt.shots_hash"] = made.get("prompt.shots_hash")  # of the examples themselves
    return {
        key: value if known or not key.startswith("sampling.") else None
        for key, value in public(identity).items()
        if key.startswith(PROTOCOL)
    }


def sampling_known(run: Run) -> bool | None:
    """Say whether settings tell how a run was sampled; None: seeds of imported records do."""
    imported = runfolder.read_json(run.manifest).get("imported")
    if not isinstance(imported, dict):
        return True
    return False if imported.get("sampling_known") is False else None


def differences(runs: Mapping[str, Run], codes: Codes) -> list[str]:
    """Write a line for each thing that is not alike among L runs that are compared, by name.

    `codes` are their outcomes of the questions that all of them hold, (L, M, N).
    """
    shared = codes.shape[1]
    trials = {name: run.cfg.sampling.trials for name, run in runs.items()}
    unlike = [
        f"questions: {name} has {len(run.questions)}, {shared} are compared"
        for name, run in runs.items()
        if len(run.questions) > shared
    ]
    unlike += unequal("trials", trials)
    lacking, cut = list[str](), list[str]()
    for (name, run), of_run in zip(runs.items(), codes, strict=True):
        requested = shared * trials[name]
        if pending := requested - int((of_run != PENDING).sum()):
            busy = " and is still being sampled" * bool(runfolder.alive(run.path))
            lacking.append(f"{name} lacks {pending} of {requested}{busy}")
        if short := len(runfolder.continuing(run)):
            cut.append(f"{short} of {name}")
    if lacking:
        unlike.append(f"attempts: {joined(lacking, 3)}")
    if cut:
        unlike.append(f"attempts truncated below the present max_tokens: {joined(cut, 3)}")
    unknown = [name for name, run in runs.items() if sampling_known(run) is False]
    if len(unknown) < len(runs):  # of none is nothing to compare
        unlike += [f"sampling settings of {name} are unknown" for name in unknown]
    settings = {name: protocol(run) | _grading(run) for name, run in runs.items()}
    imported = [name for name in runs if "grading.imported" in settings[name]]
    if len({of_run.get("grading.imported") for of_run in settings.values()}) > 1:
        of = ", ".join(imported) if len(imported) < len(runs) else "all"
        unlike.append(f"grades of {of} come from imported records")
    silent = {"sampling": unknown, "grading": imported}  # runs that do not say these settings
    for key in dict.fromkeys(key for of_run in settings.values() for key in of_run):
        group = "" if key == "grading.judge" else key.partition(".")[0]
        known = [name for name in runs if name not in silent.get(group, [])]
        default = provenance.DEFAULTS.get(key, "unknown")
        unlike += unequal(key, {name: settings[name].get(key, default) for name in known})
    return unlike


def _grading(run: Run) -> dict[str, Any]:
    """Return what decides a grade: as its maker recorded it, but for the way to the answer."""
    v, judge = run.cfg.verifier, outcomes.judge_settings(run)
    by = judge and f"{judge['judge']} by {v.name} ({provenance.short_hash(str(judge))[:6]})"
    made = outcomes.grades_made_by(run) | {"judge": by}
    return {f"grading.{key}": value for key, value in made.items() if key != "reasoning_end"}


def unequal(key: str, values: Mapping[str, Any]) -> list[str]:
    """Write a line where the values of a key, by the name of the run, are not all the same.

    >>> unequal("dtype", {"a": "bfloat16", "b": "float32"}), unequal("dtype", {"a": 1, "b": 1})
    (['dtype: b float32; all others bfloat16'], [])
    """
    groups: dict[str, list[str]] = defaultdict(list)
    for name, value in values.items():
        groups[_short(value)].append(name)
    if len(groups) < 2:
        return []
    # The most frequent value needs no names: it is that of all the others.
    common = max(groups, key=lambda value: len(groups[value]))
    rest = [f"{', '.join(names)} {value}" for value, names in groups.items() if value != common]
    return [f"{key}: {'; '.join(rest)}; all others {common}"]


def _short(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 60 else f"{text[:40]}… ({provenance.short_hash(text)})"
