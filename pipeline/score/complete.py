"""What a run was made of, stage by stage, so that the same command has nothing to do.

`complete.json` in the run folder holds a hash for every stage: of the settings and of files outside
the folder that it rests on, and of names, sizes and times of what it wrote. It is written where
nothing is owed, and only if no stage rests on what has changed since the stage began.
"""

import contextlib
import itertools
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bayes_at_n.pipeline.base.program import PACKAGES, ROOT
from bayes_at_n.pipeline.config.settings import STAGES
from bayes_at_n.pipeline.prepare.questions import find_local
from bayes_at_n.pipeline.store import origin, parquet, runfolder
from bayes_at_n.pipeline.store.graded import settings as grader
from bayes_at_n.pipeline.store.runfolder import Run

_FILE = "complete.json"
_MOST = 20_000  # files that settings name; more are no model and no data set
_FOLDERS = ("id", "path", "tokenizer")  # keys of which a bare word may be one; else it is a name
# What a stage writes, and the settings that nothing before it reads; `prepare` has all others.
_WRITTEN = {
    "generate": ("questions.parquet", "attempts"),
    "grade": ("grades",),
    "verify": ("verdicts",),
    "signals": ("signals", "means"),
    "categorize": ("categories", "thresholds.json"),
    "score": ("config.yaml", "scores.json", "matrix.npz", "caps"),
}
_READ = {
    "verify": ("verifier", "labels"),
    "categorize": ("rubric", "thresholds"),
    "score": ("scoring", "prior"),
}
_PROGRAM = ("pipeline", "prompts", "scoring", "verifiers", "configs")
State = Mapping[str, str]


def state(run: Run) -> State:
    """The hash of what each stage rests on and has written, as it is now."""
    settings = asdict(run.cfg) | dict.fromkeys(("track", "run_dir", "trust"))
    named = [_files(path) for path in _named(settings)]
    parts: dict[str, list[Any]] = {stage: [] for stage in STAGES}
    for stage, groups in _READ.items():
        parts[stage] += [settings.pop(group) for group in groups]
    for stage, names in _WRITTEN.items():
        parts[stage] += [_files(run.path / name) for name in names]
    made = runfolder.read_json(run.manifest).get(origin.IDENTITY)
    program = [_files(root / name) for root in (PACKAGES, ROOT) for name in _PROGRAM]
    parts["prepare"] += [settings, made, grader(run.cfg), program, named]
    if run.cfg.thresholds.scope == "cohort":
        beside = run.path.parent.glob("*/signals/signals.parquet")
        parts["categorize"] += [_files(path) for path in sorted(beside)]
    return {
        stage: runfolder.short_hash(json.dumps(part, default=str)) for stage, part in parts.items()
    }


def first_owed(run: Run) -> str | None:
    """The first stage whose part is another now; None: all is as a finished `run` left it."""
    done = runfolder.read_json(run.path / _FILE)
    now = state(run) if done else {}
    return next((stage for stage in STAGES if done.get(stage) != now.get(stage, "")), None)


def seal(run: Run, began: Mapping[str, State]) -> None:
    """Remember that all is done, if it is; `began`: the state in which stages found the folder."""
    scores, now = runfolder.read_json(run.path / "scores.json"), state(run)
    whole = scores.get("attempts") == len(run.questions) * run.cfg.sampling.trials
    if whole and all(
        then[before] == now[before]
        for stage, then in began.items()
        for before in STAGES[: STAGES.index(stage)]
    ):
        runfolder.write_json(run.path / _FILE, now)


def _named(value: Any, key: str = "") -> Iterator[Path]:
    """Local files and folders that settings name; no folder that is called as a data set is."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _named(part, key)
    elif isinstance(value, list):
        for part in value:
            yield from _named(part, key)
    elif isinstance(value, str) and "\0" not in value:
        for text in {value, *value.split(":")[1:2]} - {""}:  # python:FILE.py:function
            with contextlib.suppress(OSError, RuntimeError):  # too long, or nobody's home
                path = find_local(text)
                if path and ("/" in text or key in _FOLDERS or not path.is_dir()):
                    yield path


def _files(path: Path) -> Sequence[str]:
    """Name, size and time of a file, or of all in a folder and its folders; not what marks them."""
    if not path.is_dir():
        return [parquet.fingerprint(path)]
    found = itertools.chain(path.glob("*"), path.glob("*/*"), path.glob("*/*/*"))
    listed = list(itertools.islice(found, _MOST))
    if len(listed) == _MOST:
        return [str(time.time_ns())]  # never the same
    files = (p for p in listed if p.suffix not in (".pyc", ".sound") and not p.is_dir())
    return sorted(f"{p.relative_to(path)} {parquet.fingerprint(p)}" for p in files)
