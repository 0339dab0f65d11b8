"""The verdicts of a run on the disk: what made them, baselines, and calibrating them again.

verdicts/*.parquet          one row an attempt (tables.VERDICTS)
verdicts/_verifier.json     what made them, and the calibration that is applied
verdicts/_baselines.jsonl   log-probs of the labels for every question and content-free text
verdicts/_disagreements.jsonl  where verifier and grader differ, for a person
_verdicts-HASH/             those of another verifier or prompt, taken back when it is asked again
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.base import atomic
from pipeline.base.console import note
from pipeline.config.settings import RunConfig
from pipeline.prepare import models
from pipeline.prepare.questions import find_local
from pipeline.store import rowkeys, runfolder, shards, workernames
from pipeline.store.columns import GRADES, KEY, VERDICTS
from pipeline.store.runfolder import Run
from verifiers.judge import calibration

Array = npt.NDArray[np.float64]
LABELS = ("A", "B", "C")
_VERSION = 1  # of how prompts are written and encoded; another one makes other verdicts


def folder(run: Run) -> Path:
    """Where the verdicts are."""
    return run.path / "verdicts"


def identity(cfg: RunConfig, as_model: RunConfig, template: str) -> dict[str, Any]:
    """Everything that decides a log-prob; none of it needs the model itself."""
    v = cfg.verifier
    local = find_local(str(v.id))
    chat = local / "chat_template.jinja" if local else None
    return {
        "prompts": _VERSION,
        "engine": cfg.engine.name,  # two engines round otherwise
        "weights": models.fingerprint(as_model.model) if local else f"{v.id}@{v.revision}",
        "chat_template": runfolder.short_hash(chat.read_text("utf-8"))
        if chat and chat.is_file()
        else "",
        "chat_template_kwargs": dict(v.chat_template_kwargs),
        "template": runfolder.short_hash(template),
        "labels": [v.labels.correct, v.labels.incorrect, v.labels.invalid],
        "dtype": v.dtype,
        "context": v.context,
    }


def temperature(run: Run) -> float:
    """T to calibrate with before any fit: the one fitted last where a fit is asked for."""
    v, applied = run.cfg.verifier, remembered(run, "calibration")
    fitted = applied.get("temperature") if isinstance(applied, dict) else None
    return fitted if v.fit_temperature and isinstance(fitted, float) else v.temperature


def made_otherwise(run: Run, asked: dict[str, Any]) -> bool:
    """Whether there are verdicts, or baselines, of other settings than `asked`."""
    found = remembered(run, "settings")
    some = any(folder(run).glob("*.parquet")) or (found is not None and _baselines(run).exists())
    return some and found != asked


def put_aside(run: Run, asked: dict[str, Any]) -> None:
    """Make room for verdicts made with these settings, or take back those that once were.

    Whole folders change their names, each at once, so no crash can mix two verifiers' verdicts.
    """
    here = folder(run)
    path = here / "_verifier.json"
    found = runfolder.read_json(path).get("settings")
    if found == asked:
        return
    if made_otherwise(run, asked):
        away = _aside(run, found)
        away = away if not away.exists() else run.path / f"{away.name}-{workernames.worker_id()}"
        here.rename(away)
        known = found if isinstance(found, dict) else {}
        changed = sorted(k for k in asked if known.get(k) != asked[k])
        note(
            f"verify: the verdicts so far were made otherwise ({', '.join(changed)}); they are kept"
            f" in {away.name}"
        )
    back = _aside(run, asked)
    if back.exists() and not any(here.glob("*.parquet")):
        if here.exists():
            shutil.rmtree(here)
        back.rename(here)
        note(f"verify: verdicts made so before are taken back from {back.name}")
        return
    here.mkdir(parents=True, exist_ok=True)
    runfolder.write_json(path, {"settings": asked})


def _aside(run: Run, made_by: Any) -> Path:
    return run.path / f"_verdicts-{runfolder.short_hash(json.dumps(made_by, sort_keys=True))}"


def remember(run: Run, **values: Any) -> None:
    """Write more into _verifier.json, beside the settings."""
    path = folder(run) / "_verifier.json"
    runfolder.write_json(path, runfolder.read_json(path) | values)


def remembered(run: Run, key: str) -> Any:
    """A value of _verifier.json, None without it."""
    return runfolder.read_json(folder(run) / "_verifier.json").get(key)


def _baselines(run: Run) -> Path:
    return folder(run) / "_baselines.jsonl"


def read_baselines(run: Run) -> dict[tuple[str, str], list[float]]:
    """Log-probs of the labels by question id and content-free text; damaged lines are owed."""
    try:
        lines = _baselines(run).read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return {}
    found = {}
    for line in lines:
        try:
            row = json.loads(line)
            logprobs = [float(x) for x in row["logprobs"]]
            if len(logprobs) == len(LABELS) and np.isfinite(logprobs).all():
                found[row["question_id"], row["text"]] = logprobs
        except (ValueError, KeyError, TypeError):
            continue
    return found


def judged(run: Run, columns: list[str]) -> pa.Table:
    """Columns of every verdict on the run's questions, with the grader's `outcome` and `answer`."""
    table = rowkeys.streamed(folder(run), VERDICTS, [*KEY, *columns], "verify")
    ids = rowkeys.question_ids(run)
    keys = rowkeys.encode(table, ids)
    table = table.filter(pa.array(keys >= 0)).combine_chunks()
    names = ["outcome", "answer"]
    grades = rowkeys.aligned(run.grades, GRADES, names, keys[keys >= 0], ids, "grade")
    for name in names:
        table = table.append_column(name, grades[name])
    return table


def write_baselines(run: Run, found: dict[tuple[str, str], list[float]]) -> None:
    """Replace the file of baselines."""
    rows = ({"question_id": q, "text": t, "logprobs": v} for (q, t), v in found.items())
    atomic.write_jsonl(_baselines(run), rows)


def question_baselines(
    cfg: RunConfig, found: dict[tuple[str, str], list[float]]
) -> dict[str, Array]:
    """Per question the baseline [3] over all content-free texts, on the log scale."""
    texts, average = cfg.verifier.content_free, cast(Any, cfg.verifier.average)
    ids = {q for q, _ in found}
    return {
        q: np.asarray(calibration.baseline(np.array([found[q, t] for t in texts]), average))
        for q in ids
        if all((q, t) in found for t in texts)
    }


def columns(logprobs: npt.NDArray[Any], bases: npt.NDArray[Any], temperature: float) -> pa.Table:
    """The columns of VERDICTS that follow from log-probs [n, 3] and baselines [n, 3]."""
    logprobs = np.asarray(logprobs, dtype=np.float64)
    raw = np.exp(logprobs)
    calibrated = calibration.calibrate(logprobs, bases, temperature)
    many = {
        "logprob_": logprobs,
        "base_": bases,
        "raw_": raw,
        "direct_": calibration.direct(logprobs),
        "": calibrated,
    }
    made = {
        f"{name}{label.lower()}": values[:, i].astype(np.float32)
        for name, values in many.items()
        for i, label in enumerate(LABELS)
    }
    made["mass"] = raw.sum(axis=1).astype(np.float32)
    made["label"] = np.array(LABELS)[calibrated.argmax(axis=1)]
    return pa.table(made)


def recalibrate(run: Run, temperature: float) -> None:
    """Apply a calibration to every stored verdict, from its log-probs; nothing if it is applied."""
    v = run.cfg.verifier
    asked = {
        "temperature": temperature,
        "average": v.average,
        "content_free": list(v.content_free),
    }
    if remembered(run, "calibration") == asked:
        return
    bases = question_baselines(run.cfg, read_baselines(run))
    # Not of one calibration until all parts are; a crash on the way is noticed by this.
    remember(run, calibration=None)

    def anew(table: pa.Table) -> pa.Table:
        kept = np.array([q in bases for q in table["question_id"].to_pylist()], dtype=bool)
        table = table.filter(pa.array(kept))
        if not table.num_rows:
            return table
        logprobs = np.stack([table[f"logprob_{x.lower()}"].to_numpy() for x in LABELS], axis=1)
        base = np.stack([bases[q] for q in table["question_id"].to_pylist()])
        made = columns(logprobs, base, temperature)
        for name in made.column_names:
            table = table.set_column(table.column_names.index(name), name, made[name])
        return table

    changed = rewrite(run, anew)
    remember(run, calibration=asked)
    if changed:
        note(f"verify: {changed} verdicts calibrated anew from their log-probs, {_words(asked)}")


def _words(asked: dict[str, Any]) -> str:
    return f"T={asked['temperature']:g}, average={asked['average']}"


def rewrite(run: Run, change: Callable[[pa.Table], pa.Table]) -> int:
    """Replace every part by what `change` makes of it; returns the rows that are left."""
    rows = 0
    for path in sorted(folder(run).glob("*.parquet")):
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            table = change(file.read().cast(VERDICTS))
        rows += table.num_rows
        if table.num_rows:
            shards.write_part(path, table.cast(VERDICTS))
        else:
            path.unlink()
    return rows
