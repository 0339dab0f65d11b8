"""Labels of people: a sample to be labelled, and a score that is right whatever graders get wrong.

`labels.sample=K` draws attempts at random into `labels.jsonl` of the run folder, without what
grader and verifier said; `labels=FILE` reads such a file and sets the run's score right by it.
"""

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
    """Draw a sample for people, or show what their labels say: as `labels` asks, else nothing.

    Writes `labels.jsonl` or `labels.json`, and returns what that holds. Raises UserError: a file
    that is there already, or that cannot be used.
    """
    cfg = run.cfg.labels
    if cfg.sample is not None:
        _draw(run, cfg.sample)
    if cfg.file is not None:
        return _report(run, Path(cfg.file).expanduser())
    return {}


def _views(run: Run) -> Views:
    there = outcomes.read(run, quiet=True).codes
    if (there == OWED).all():
        raise UserError(f"{run.path}: nothing graded yet; run `{PROGRAM} grade` first")
    question, trial = np.nonzero(there != OWED)
    trials, codes = (there != OWED).sum(axis=1), there[question, trial]
    keys = question.astype(np.int64) << 32 | trial
    said = verdicts.aligned(run, ["a", "label"], keys)
    label, a = said["label"], said["a"]
    verifier = pc.fill_null(pc.equal(label, "A").cast("float64"), np.nan).to_numpy()
    unsure = np.isin(codes, UNDECIDED)
    grader = np.where(unsure, pc.fill_null(a, 0.0).to_numpy(), codes == CORRECT)
    weights = 1 / (trials[question] * (trials > 0).sum())
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
    rows = []
    for key, end, answer in zip(keys.tolist(), ends, answers, strict=True):
        question = run.questions[key >> 32]
        shown = {name: question[name] for name in ("question_id", "problem", "gold")}
        rows.append(
            {"correct": None, **shown, "trial": key & 0xFFFFFFFF, "answer": answer, "end": end}
        )
    atomic.write_jsonl(path, rows)
    note(
        f"verify: {len(rows)} attempts to label are in {path}: set each `correct` to true or false,"
    )
    note(f"        then `{PROGRAM} verify {run.path} labels={path}`")


def labelled(run: Run) -> tuple[Ints, Ints]:
    """Keys of the attempts that people labelled in `labels.file`, and 1 for correct, 0 for not."""
    views = _views(run)
    at, labels = _read(run, Path(run.cfg.labels.file or "").expanduser(), views)
    return views.keys[at], labels.astype(np.int64)


def _report(run: Run, path: Path) -> dict[str, Any]:
    views = _views(run)
    at, labels = _read(run, path, views)
    level = run.cfg.scoring.confidence
    found: dict[str, Any] = {"file": str(path), "labels": at.size, "confidence": level}
    said = {"grader": views.grader, "verifier": views.verifier}
    rows = []
    for who, view in said.items():
        if np.isnan(view).any():
            note(f"verify: labels: the {who} has no view of {int(np.isnan(view).sum())} attempts")
            continue
        corrected = prediction_powered(view, labels, at, views.weights, level)._asdict()
        sure = np.isin(view[at], (0, 1))
        table = np.zeros((2, 2), np.int64)
        np.add.at(table, (1 - labels[sure].astype(int), 1 - view[at][sure].astype(int)), 1)
        found[who] = {"value": float(views.weights @ view), "corrected": corrected,
                      "confusion": table.tolist()}  # fmt: skip
        rows.append({"who": who, "value": found[who]["value"]})
        rows.append({"who": f"{who}, set right", **_shown(corrected)})
        (kept, missed), (accepted, _) = table.tolist()
        rows[-2] |= {"missed": f"{missed} of {kept + missed}",
                     "accepted": f"{accepted} of {sum(table[1].tolist())}"}  # fmt: skip
    alone = prediction_powered(np.zeros(views.keys.size), labels, at, views.weights, level)
    found["labels_alone"] = alone._asdict()
    rows.append({"who": "labels alone", **_shown(found["labels_alone"])})
    heads = [*columns(align="left", who="score by"), *columns("{:.4f}", value="value")]
    heads += columns(interval=f"{level:.0%} interval", missed="missed", accepted="let pass")
    notes = ["missed: right ones called wrong; let pass: wrong ones called right"]
    title = f"{at.size} labels of people, {views.keys.size} attempts"
    show(Table(title, heads, rows, notes))
    if at.size < _FEW:
        warn(f"{path}: {at.size} labels say little; label {_FEW} or more")
    runfolder.write_json(run.path / "labels.json", found)
    note(
        f"verify: saved {run.path / 'labels.json'}; it holds for labels of attempts drawn at random"
    )
    return found


def _shown(corrected: dict[str, float]) -> dict[str, Any]:
    ends = f"{corrected['low']:.4f} to {corrected['high']:.4f}"
    return {"value": corrected["value"], "interval": ends}


def _read(run: Run, path: Path, views: Views) -> tuple[Ints, Floats]:
    """Positions in `views` of the attempts that people labelled, and 1 for correct, 0 for not."""
    if not path.is_file():
        raise UserError(f"labels={path}: no such file; labels.sample=60 writes one to fill in")
    known = {q["question_id"]: i for i, q in enumerate(run.questions)}
    place = {key: i for i, key in enumerate(views.keys.tolist())}
    labels: dict[int, float] = {}
    for where, row in jsonl.read(path):
        name, trial, correct = (row.get(key) for key in ("question_id", "trial", "correct"))
        if correct is None:
            continue
        if not isinstance(correct, bool) or type(trial) is not int:
            raise UserError(
                f"{path}, {where}: `correct` must be true, false or null, and `trial` a number"
            )
        at = place.get(known.get(str(name), -1) << 32 | trial)
        if at is None:
            raise UserError(
                f"{path}, {where}: {name}, trial {trial}: no graded attempt of this run"
            )
        if at in labels:
            raise UserError(f"{path}, {where}: {name}, trial {trial} is labelled twice")
        labels[at] = float(correct)
    if not labels:
        raise UserError(f"{path}: no row has `correct` set to true or false")
    return np.array(list(labels), np.int64), np.array(list(labels.values()))
