"""Labels of people: a sample to be labelled, and a score set right by it."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc

from bayes_at_n.pipeline.base import atomic, jsonl
from bayes_at_n.pipeline.base.console import note, warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.display.table import Table, columns, show
from bayes_at_n.pipeline.store import graded, outcomes, parquet, rowkeys, runfolder, verdicts
from bayes_at_n.pipeline.store.outcomes import CORRECT, OWED, UNDECIDED
from bayes_at_n.pipeline.store.rowkeys import Ints
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.scoring import prediction_powered
from bayes_at_n.scoring.numerics.inputs import Floats

_FEW = 20  # labels below which an interval says little
_END = 2000  # characters of a response's end


class Views(NamedTuple):
    """What is said of each graded attempt: n of them."""

    keys: Ints  # (n,)
    weights: Floats  # (n,) of an attempt in avg, sum 1
    grader: Floats  # (n,) 1 correct, 0 not; P(A) where the grader cannot say and a verifier can
    verifier: Floats  # (n,) 1 where its label is A, else 0; NaN without a verdict


def people(run: Run) -> dict[str, Any]:
    """Draw `labels.sample` attempts into `labels.jsonl`; show and return what `labels.file` says.

    What it says is in `labels.json`, too. Raises UserError: a file that cannot be used.
    """
    cfg = run.cfg.labels
    if cfg.sample is not None:
        _draw(run, cfg.sample)
    return {} if cfg.file is None else _report(run, Path(cfg.file).expanduser())


def _keys(codes: outcomes.Codes) -> Ints:
    question, trial = np.nonzero(codes != OWED)
    return question.astype(np.int64) << 32 | trial


def _views(run: Run) -> Views:
    there = outcomes.read(run, quiet=True).codes
    if (there == OWED).all():
        raise UserError(f"{run.path}: nothing graded yet; run `{PROGRAM} grade` first")
    keys, trials = _keys(there), (there != OWED).sum(axis=1)
    codes = there[there != OWED]
    said = verdicts.aligned(run, ["a", "label"], keys)
    verifier = pc.fill_null(pc.equal(said["label"], "A").cast("float64"), np.nan).to_numpy()
    unsure = np.isin(codes, UNDECIDED)
    grader = np.where(unsure, pc.fill_null(said["a"], 0.0).to_numpy(), codes == CORRECT)
    weights = 1 / (trials[keys >> 32] * (trials > 0).sum())
    return Views(keys, weights, np.clip(grader, 0, 1), verifier)


def _draw(run: Run, size: int) -> None:
    """Write so many graded attempts, drawn without replacement, for a person to label."""
    path, views = run.path / "labels.jsonl", _views(run)
    if path.exists():
        warn(f"labels.sample={size}: {path} is there and stays; move it to have another drawn")
        return
    rng = np.random.default_rng([run.cfg.sampling.seed or 0, views.keys.size])
    at = rng.permutation(views.keys.size)[:size]
    keys, ends = views.keys[at], [""] * at.size
    for i, text in rowkeys.responses(run, keys, parquet.Damage()):
        ends[i] = text[-_END:]
    answers = graded.aligned(run, ["answer"], keys)["answer"].to_pylist()
    rows = [
        {
            "correct": None,
            **{name: run.questions[key >> 32][name] for name in ("question_id", "problem", "gold")},
            "trial": key & 0xFFFFFFFF,
            "answer": answer,
            "end": end,
        }
        for key, end, answer in zip(keys.tolist(), ends, answers, strict=True)
    ]
    atomic.write_jsonl(path, rows)
    note(
        f"verify: {len(rows)} attempts to label are in {path}: set each `correct` to true or false,"
        f" then `{PROGRAM} verify {run.path} labels={path}`"
    )


def labelled(run: Run) -> tuple[Ints, Ints]:
    """Read the keys of the attempts labelled in `labels.file`, and 1 for correct, 0 for not."""
    keys = _keys(outcomes.read(run, quiet=True).ruled)
    at, labels = _read(run, Path(run.cfg.labels.file or "").expanduser(), keys)
    return keys[at], labels.astype(np.int64)


def _report(run: Run, path: Path) -> dict[str, Any]:
    views = _views(run)
    at, labels = _read(run, path, views.keys)
    level, n = run.cfg.scoring.confidence, views.keys.size
    found: dict[str, Any] = {"file": str(path), "labels": at.size, "confidence": level}
    rows = list[dict[str, Any]]()
    for who, view in {"grader": views.grader, "verifier": views.verifier}.items():
        if unseen := int(np.isnan(view).sum()):
            note(f"verify: labels: the {who} has no view of {unseen} attempts")
            continue
        corrected = prediction_powered(view, labels, at, views.weights, level)._asdict()
        pairs = [*zip(labels.tolist(), view[at].tolist(), strict=True)]
        confusion = [[pairs.count((label, said)) for said in (1, 0)] for label in (1, 0)]
        (kept, missed), (accepted, rejected) = confusion
        value = float(views.weights @ view)
        found[who] = {"value": value, "corrected": corrected, "confusion": confusion}
        errors = {"missed": f"{missed} of {kept + missed}"}
        errors["accepted"] = f"{accepted} of {accepted + rejected}"
        rows.append({"who": who, "value": value, **errors})
        rows.append({"who": f"{who}, set right", **_shown(corrected)})
    alone = prediction_powered(np.zeros(n), labels, at, views.weights, level)._asdict()
    found["labels_alone"] = alone
    rows.append({"who": "labels alone", **_shown(alone)})
    heads = [*columns(align="left", who="score by"), *columns("{:.4f}", value="value")]
    heads += columns(interval=f"{level:.0%} interval", missed="missed", accepted="let pass")
    notes = ["missed: right ones called wrong; let pass: wrong ones called right"]
    show(Table(f"{at.size} labels of people, {n} attempts", heads, rows, notes))
    if at.size < _FEW:
        warn(f"{path}: {at.size} labels say little; label {_FEW} or more")
    target = run.path / "labels.json"
    runfolder.write_json(target, found)
    note(f"verify: saved {target}; it holds for labels of attempts drawn at random")
    return found


def _shown(corrected: dict[str, float]) -> dict[str, Any]:
    ends = f"{corrected['low']:.4f} to {corrected['high']:.4f}"
    return {"value": corrected["value"], "interval": ends}


def _read(run: Run, path: Path, keys: Ints) -> tuple[Ints, Floats]:
    """Positions in `keys` of the attempts that people labelled, and 1 for correct, 0 for not."""
    if not path.is_file():
        raise UserError(f"labels={path}: no such file; labels.sample=60 writes one to fill in")
    known = {q["question_id"]: i for i, q in enumerate(run.questions)}
    place = {key: i for i, key in enumerate(keys.tolist())}
    labels: dict[int, float] = {}
    for where, row in jsonl.read(path):
        name, trial, correct = (row.get(key) for key in ("question_id", "trial", "correct"))
        if correct is None:
            continue
        if not isinstance(correct, bool) or type(trial) is not int:
            raise UserError(
                f"{path}, {where}: `correct` must be true, false or null, `trial` whole"
            )
        at = place.get(known.get(str(name), -1) << 32 | trial)
        if at is None or at in labels:
            why = "no graded attempt of this run" if at is None else "labelled twice"
            raise UserError(f"{path}, {where}: {name}, trial {trial}: {why}")
        labels[at] = float(correct)
    if not labels:
        raise UserError(f"{path}: no row has `correct` set to true or false")
    return np.array(list(labels), np.int64), np.array(list(labels.values()))
