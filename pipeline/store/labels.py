"""People's labels of a run's attempts: `labels/NAME.jsonl`, a file a person.

`labels/drawn.npz` is the sample that `label` drew, with the chance that every attempt had. Without
it a row's own `chance` counts; without that, attempts are taken as drawn at random.
"""

import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bayes_at_n.pipeline.base import atomic, untrusted
from bayes_at_n.pipeline.base.console import note
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.store import rowkeys
from bayes_at_n.pipeline.store.rowkeys import Ints
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.scoring.numerics.inputs import Floats

Row = dict[str, Any]


class Drawn(NamedTuple):
    """Which of n attempts were drawn to be labeled, in order, and with what chance each was to be.

    Chances are of all draws so far together.
    """

    keys: Ints  # (n,) `rowkeys.encode`
    chances: Floats  # (n,)
    order: Ints  # keys of the m drawn


class People(NamedTuple):
    """Labels of m attempts."""

    at: Ints  # (m,) indices in the keys that were asked for
    values: Floats  # (m,) 1 correct, 0 not; the mean of what several people say
    chances: Floats | None  # (m,) of each to have been drawn; None: at random
    by: dict[str, dict[int, float]]  # each person's labels, by key of the attempt


def files(run: Run) -> list[Path]:
    """Return the files of labels in a run's folder, one a person, in order of names."""
    return sorted((run.path / "labels").glob("*.jsonl"))


def keep(run: Run) -> None:
    """Copy the labels of `labels=FILE` that are of this run into its folder, as its person's.

    Rows have `question_id`, `trial` and `correct`: true, false, a number from 0 to 1, or null, and
    of several runs `run`, the name of the folder. Raises UserError: no such file, or no labels.
    """
    if run.cfg.labels.file is None:
        return
    path = Path(run.cfg.labels.file).expanduser()
    if not (kept := [row for row in rows(path, run).values() if row["correct"] is not None]):
        raise UserError(f"{path}: no row of this run has `correct` set to true or false")
    (run.path / "labels").mkdir(exist_ok=True)
    atomic.write_jsonl(
        run.path / "labels" / f"{re.sub('[^A-Za-z0-9_-]', '_', path.stem)}.jsonl", kept
    )


def drawn(run: Run) -> Drawn | None:
    """Return the sample that `label` drew; None without one."""
    path = run.path / "labels" / "drawn.npz"
    if not path.is_file():
        return None
    with np.load(path) as arrays:
        return Drawn(*(arrays[name] for name in Drawn._fields))


def read(run: Run, keys: Ints) -> People | None:
    """Read all labels of the attempts `keys` (`rowkeys.encode`, unique); None without any."""
    by = {path.stem: rows(path, run) for path in files(run)}
    known = sorted(set[int]().union(*by.values()))
    places = rowkeys.rows_of(np.array(known, np.int64), keys)
    sample, values, chances = drawn(run), list[float](), list[float]()
    chance = dict(zip(*sample[:2], strict=True)) if sample else {}
    at, strange = list[int](), 0
    for key, i in zip(known, places.tolist(), strict=True):
        said = [of[key] for of in by.values() if key in of]
        if i < 0 or (sample and key not in sample.order):
            strange += 1
            continue
        at.append(i)
        values.append(float(np.mean([row["correct"] for row in said])))
        chances.append(float(chance.get(key) or said[0]["chance"] or 0))
    if strange:
        note(f"{run.path}: {strange} labels are of attempts that were not drawn, or not graded")
    if not at:
        return None
    share = len(at) / len(sample.order) if sample else 1.0  # of the drawn, in random order
    uniform = min(chances) == 0
    of_people = {name: {k: float(r["correct"]) for k, r in of.items()} for name, of in by.items()}
    weighed = None if uniform else np.array(chances) * share
    return People(np.array(at), np.array(values), weighed, of_people)


def rows(path: Path, run: Run) -> dict[int, Row]:
    """Read the rows of a file that are of this run, by their keys; see `keep`.

    Raises UserError: one cannot be used, or the file is missing.
    """
    if not path.is_file():
        raise UserError(f"labels={path}: no such file; `{PROGRAM} label {run.path}` makes a page")
    ids = {row["question_id"]: i for i, row in enumerate(run.questions)}
    found = dict[int, Row]()
    for position, row in untrusted.json_lines(path):
        if row.get("run", run.path.name) != run.path.name:
            continue
        question, trial, correct = (row.get(key) for key in ("question_id", "trial", "correct"))
        number, chance = ids.get(str(question), -1), row.get("chance")
        key = number << 32 | trial if type(trial) is int and 0 <= trial < 1 << 31 else -1
        sound = all(
            v is None or (isinstance(v, float | int) and 0 <= v <= 1) for v in (correct, chance)
        )
        if number < 0 or key < 0 or key in found or not sound:
            needs = "question_id and trial of an attempt, each once, and `correct`: true, false"
            raise UserError(f"{path}, {position}: needs {needs}, 0 to 1 or null")
        own = {"question_id": question, "trial": trial, "chance": chance, "correct": correct}
        found[key] = own
    return found
