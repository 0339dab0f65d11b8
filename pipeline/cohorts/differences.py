"""What is not alike among runs that are compared: a line for each thing, for people.

A difference is no fault. It is what a reader must know before believing that one number is larger
than another.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.store import heartbeat, runfolder
from pipeline.store.outcomes import OWED, Codes, Outcomes
from pipeline.store.runfolder import Run

_PROTOCOL = ("sampling.", "prompt.", "engine.")


@dataclass(frozen=True)
class GradedRun:
    """One run as it was read."""

    name: str
    run: Run
    graded: Outcomes
    positions: dict[str, int]  # of its questions, by hash


def protocol(run: Run) -> dict[str, Any]:
    """How a run was sampled: its settings of sampling, prompt and engine, by dotted key.

    Of imported records that do not say how they were sampled, the settings of sampling are None.
    """
    identity, known = runfolder.identity(run.cfg), _sampling_known(run)
    return {
        key: value if known or not key.startswith("sampling.") else None
        for key, value in identity.items()
        if key.startswith(_PROTOCOL)
    }


def _sampling_known(run: Run) -> bool:
    imported = runfolder.read_json(run.manifest).get("imported")
    return not isinstance(imported, dict) or imported.get("sampling_known") is not False


def lines(runs: Sequence[GradedRun], shared: int, codes: Codes) -> list[str]:
    """One line for each thing that is not alike among runs that are compared.

    Args:
        runs: L of them.
        shared: how many questions all of them hold.
        codes: their outcomes of these questions, (L, M, N).
    """
    trials = {run.name: run.graded.codes.shape[1] for run in runs}
    unlike = [
        f"questions: {run.name} has {len(run.positions)}, {shared} are compared"
        for run in runs
        if len(run.positions) > shared
    ]
    unlike += _unlike("trials", trials)
    for run, of_run in zip(runs, codes, strict=True):
        wanted = shared * trials[run.name]
        if owed := wanted - int((of_run != OWED).sum()):
            busy = " and is being generated now" * bool(heartbeat.alive(run.run.path))
            unlike.append(f"attempts: {run.name} lacks {owed} of {wanted}{busy}")
    blind = [run.name for run in runs if not _sampling_known(run.run)]
    if blind:
        unlike.append(f"sampling of {', '.join(blind)} is not known")
    settings = {run.name: protocol(run.run) | _grading(run.run) for run in runs}
    for key in dict.fromkeys(key for of_run in settings.values() for key in of_run):
        known = [name for name in trials if name not in blind or not key.startswith("sampling.")]
        unlike += _unlike(key, {name: settings[name].get(key, "not known") for name in known})
    return [*unlike, *_twice(runs, codes)]


def _grading(run: Run) -> dict[str, Any]:
    """What decides a grade: as its maker wrote it down, apart from the way to the final answer."""
    made = runfolder.read_json(run.grades / "_grader.json")
    return {f"grading.{key}": value for key, value in made.items() if key != "reasoning_end"}


def _unlike(key: str, values: Mapping[str, Any]) -> list[str]:
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
    return text if len(text) <= 60 else f"{text[:40]}… ({runfolder.short_hash(text)})"


def _twice(runs: Sequence[GradedRun], codes: Codes) -> list[str]:
    alike: dict[str, list[int]] = defaultdict(list)
    for i, run in enumerate(runs):
        model = run.run.cfg.model
        settings = runfolder.identity(run.run.cfg) | protocol(run.run)
        settings |= {"id": model.id, "revision": model.revision}
        alike[repr(sorted(settings.items()))].append(i)
    unlike = []
    for group in alike.values():
        if len(group) > 1:
            equal = any((codes[i] == codes[j]).all() for i in group for j in group if i < j)
            unlike.append(
                f"one model: {', '.join(runs[i].name for i in group)} are runs of"
                f" {runs[group[0]].run.cfg.model.name} with the same protocol, not several models"
                + (", and two of them have the same outcomes throughout" if equal else "")
            )
    return unlike
