"""Labels of people: a sample to be labelled, and a score set right by it."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from bayes_at_n.pipeline.base import atomic, foreign
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

_END = 2000  # characters of a response's end


def people(run: Run) -> dict[str, Any]:
    """Draw `labels.sample` attempts into `labels.jsonl`; show and return what `labels.file` says.

    What it says is in `labels.json`, too. Raises UserError: a file that cannot be used.
    """
    cfg = run.cfg.labels
    if cfg.sample is None and cfg.file is None:
        return {}
    codes = outcomes.read(run, quiet=True).codes
    if (codes == OWED).all():
        raise UserError(f"{run.path}: nothing graded yet; run `{PROGRAM} grade` first")
    if cfg.sample is not None:
        _draw(run, _keys(codes), cfg.sample)
    return {} if cfg.file is None else _report(run, codes)


def labelled(run: Run) -> tuple[Ints, Ints]:
    """Read the keys of the attempts labelled in `labels.file`, and 1 for correct, 0 for not."""
    keys = _keys(outcomes.read(run, quiet=True).ruled)
    at, labels = _read(run, keys)
    return keys[at], labels.astype(np.int64)


def _keys(codes: outcomes.Codes) -> Ints:
    question, trial = np.nonzero(codes != OWED)
    return question.astype(np.int64) << 32 | trial


def _draw(run: Run, keys: Ints, size: int) -> None:
    """Write so many graded attempts, drawn without replacement, for a person to label."""
    path = run.path / "labels.jsonl"
    if path.exists():
        warn(f"labels.sample={size}: {path} is there and stays; move it to have another drawn")
        return
    rng = np.random.default_rng([run.cfg.sampling.seed or 0, keys.size])
    keys = keys[rng.permutation(keys.size)[:size]]
    ends = {i: text[-_END:] for i, text in rowkeys.responses(run, keys, parquet.Damage())}
    answers = graded.aligned(run, ["answer"], keys)["answer"].to_pylist()
    rows = []
    for i, key in enumerate(keys.tolist()):
        of = {name: run.questions[key >> 32][name] for name in ("question_id", "problem", "gold")}
        said = {"trial": key & 0xFFFFFFFF, "answer": answers[i], "end": ends.get(i, "")}
        rows.append({"correct": None} | of | said)
    atomic.write_jsonl(path, rows)
    note(
        f"verify: {len(rows)} attempts to label are in {path}: set each `correct` to true or false,"
        f" then `{PROGRAM} verify {run.path} labels={path}`"
    )


def _views(run: Run, codes: outcomes.Codes) -> dict[str, Floats]:
    """What the grader, and by its label the verifier, say of each graded attempt: 1 correct, 0 not.

    Where the grader cannot say, P(A) of the verifier stands for it. NaN without a verdict.
    """
    said = verdicts.aligned(run, ["a", "label"], _keys(codes))
    verifier = pc.fill_null(pc.equal(said["label"], "A").cast("float64"), np.nan).to_numpy()
    codes = codes[codes != OWED]
    unsure = pc.fill_null(said["a"], 0.0).to_numpy()
    grader = np.where(np.isin(codes, UNDECIDED), unsure, codes == CORRECT)
    return {"grader": np.clip(grader, 0, 1), "verifier": verifier}


def _report(run: Run, codes: outcomes.Codes) -> dict[str, Any]:
    keys, trials, level = _keys(codes), (codes != OWED).sum(axis=1), run.cfg.scoring.confidence
    weights = 1 / (trials[keys >> 32] * (trials > 0).sum())  # of an attempt in avg, sum 1
    at, labels = _read(run, keys)
    file = str(run.cfg.labels.file)
    found: dict[str, Any] = {"file": file, "labels": at.size, "confidence": level}
    rows = list[dict[str, Any]]()
    for who, view in _views(run, codes).items():
        if unseen := int(np.isnan(view).sum()):
            note(f"verify: labels: the {who} has no view of {unseen} attempts")
            continue
        corrected = prediction_powered(view, labels, at, weights, level)._asdict()
        confusion = [
            [int(((labels == label) & (view[at] == said)).sum()) for said in (1, 0)]
            for label in (1, 0)
        ]
        (kept, missed), (accepted, rejected) = confusion
        value = float(weights @ view)
        found[who] = {"value": value, "corrected": corrected, "confusion": confusion}
        errors = {"missed": f"{missed} of {kept + missed}"}
        errors["accepted"] = f"{accepted} of {accepted + rejected}"
        rows.append({"who": who, "value": value, **errors})
        rows.append({"who": f"{who}, set right", **_shown(corrected)})
    alone = prediction_powered(np.zeros(keys.size), labels, at, weights, level)._asdict()
    found["labels_alone"] = alone
    rows.append({"who": "labels alone", **_shown(alone)})
    heads = [*columns(align="left", who="score by"), *columns("{:.4f}", value="value")]
    heads += columns(interval=f"{level:.0%} interval", missed="missed", accepted="let pass")
    notes = ["missed: right ones called wrong; let pass: wrong ones called right"]
    show(Table(f"{at.size} labels of people, {keys.size} attempts", heads, rows, notes))
    runfolder.write_json(run.path / "labels.json", found)
    return found


def _shown(corrected: dict[str, float]) -> dict[str, Any]:
    ends = f"{corrected['low']:.4f} to {corrected['high']:.4f}"
    return {"value": corrected["value"], "interval": ends}


def _read(run: Run, keys: Ints) -> tuple[Ints, Floats]:
    """Positions in `keys` of the attempts that people labelled, and 1 for correct, 0 for not."""
    path = Path(run.cfg.labels.file or "").expanduser()
    if not path.is_file():
        raise UserError(f"labels={path}: no such file; labels.sample=60 writes one to fill in")
    ids = [q["question_id"] for q in run.questions]
    place = {(ids[key >> 32], key & 0xFFFFFFFF): i for i, key in enumerate(keys.tolist())}
    labels: dict[int, float] = {}
    for where, row in foreign.json_lines(path):
        if (correct := row.get("correct")) is None:
            continue
        trial = row.get("trial")
        at = place.get((str(row.get("question_id")), trial)) if type(trial) is int else None
        if at is None or at in labels or not isinstance(correct, bool):
            raise UserError(
                f"{path}, {where}: needs question_id and trial of a graded attempt, each once, and"
                " `correct`: true, false or null"
            )
        labels[at] = float(correct)
    if not labels:
        raise UserError(f"{path}: no row has `correct` set to true or false")
    return np.array(list(labels), np.int64), np.array(list(labels.values()))
