"""What is not alike among runs that are compared: a line for each thing, for people.

A difference is no fault. It is what a reader must know before believing that one number is larger
than another.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.store import heartbeat, runfolder
from pipeline.store.runfolder import Run

_PROTOCOL = ("sampling.", "prompt.", "engine.")


@dataclass(frozen=True)
class Loaded:
    """One run as it was read: its questions by hash, and all of its outcomes."""

    name: str
    run: Run
    at: dict[str, int]  # hash to position; a hash that occurs again has its number behind it
    outcomes: npt.NDArray[np.int8]  # (M, N) codes
    truncated: npt.NDArray[np.int8]  # (M, N)


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


def found(kept: Sequence[Loaded], shared: int, codes: npt.NDArray[np.int8]) -> list[str]:
    """One line for each thing that is not alike among runs that are compared."""
    lines = []
    names = [one.name for one in kept]
    for one in kept:
        if len(one.at) > shared:
            lines.append(f"questions: {one.name} has {len(one.at)}, {shared} are compared")
    lines += _unlike("trials", dict(zip(names, (o.outcomes.shape[1] for o in kept), strict=True)))
    for i, one in enumerate(kept):
        owed = shared * one.outcomes.shape[1] - int((codes[i] >= 0).sum())
        if owed:
            busy = heartbeat.alive(one.run.path)
            lines.append(
                f"attempts: {one.name} lacks {owed} of {shared * one.outcomes.shape[1]}"
                + (" and is being generated now" if busy else "")
            )
    blind = {one.name for one in kept if not _sampling_known(one.run)}
    if blind:
        lines.append(f"sampling of {', '.join(n for n in names if n in blind)} is not known")
    told = {one.name: protocol(one.run) | _grading(one.run) for one in kept}
    for key in dict.fromkeys(key for part in told.values() for key in part):
        seen = [name for name in names if name not in blind or not key.startswith("sampling.")]
        lines += _unlike(key, {name: told[name].get(key, "not known") for name in seen})
    return [*lines, *_twice(kept, codes)]


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


def _twice(kept: Sequence[Loaded], codes: npt.NDArray[np.int8]) -> list[str]:
    same: dict[str, list[int]] = defaultdict(list)
    for i, one in enumerate(kept):
        model = one.run.cfg.model
        identity = runfolder.identity(one.run.cfg) | protocol(one.run)
        identity |= {"id": model.id, "revision": model.revision}
        same[repr(sorted(identity.items()))].append(i)
    lines = []
    for rows in same.values():
        if len(rows) > 1:
            equal = any((codes[i] == codes[j]).all() for i in rows for j in rows if i < j)
            lines.append(
                f"one model: {', '.join(kept[i].name for i in rows)} are runs of"
                f" {kept[rows[0]].run.cfg.model.name} with the same protocol, not several models"
                + (", and two of them have the same outcomes throughout" if equal else "")
            )
    return lines
