"""Human labels of a run's attempts: `labels/NAME.jsonl`, one file per person.

`labels/drawn.npz` is the sample that `label` drew, with the probability of each attempt. Without
it a row's own `chance` counts; without that, attempts are taken as drawn uniformly at random.
"""

import re
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bayes_at_n.pipeline.base import atomic, untrusted
from bayes_at_n.pipeline.base.console import note, plural
from bayes_at_n.pipeline.base.errors import UserError, one_line
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.store import rowkeys
from bayes_at_n.pipeline.store.rowkeys import Ints
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.scoring.numerics.inputs import Floats

Row = dict[str, Any]


class Drawn(NamedTuple):
    """Attempts drawn for labeling, of n attempts in R draws, with inclusion probabilities.

    Within a draw the order is random, so that whoever stops early has labeled a random part of it.
    """

    keys: Ints  # (n,) `rowkeys.encode`
    chances: Floats  # (R, n) in each draw, had the attempt not been drawn before
    order: Ints  # (m,) keys of the drawn attempts
    draws: Ints  # (m,) the draw of each, 0..R-1


class People(NamedTuple):
    """Labels of m attempts."""

    at: Ints  # (m,) indices in the keys that were asked for
    values: Floats  # (m,) 1 correct, 0 not; of several people the mean
    chances: Floats | None  # (m,) inclusion probabilities; None: uniform
    by: dict[str, dict[int, float]]  # each person's labels, by key of the attempt


def files(run: Run) -> list[Path]:
    """Return the files of labels in a run's folder, one per person, in order of names."""
    return sorted((run.path / "labels").glob("*.jsonl"))


def keep(run: Run) -> None:
    """Copy this run's labels in `labels=FILE` into its folder, under the file's name.

    Rows have `question_id`, `trial` and `correct`: true, false, a number from 0 to 1, or null, and
    of several runs `run`, the name of the folder. Raises UserError: no such file, or no labels.
    """
    if run.cfg.labels.file is None:
        return
    path = Path(run.cfg.labels.file).expanduser()
    if not (kept := [*rows(path, run).values()]):
        raise UserError(f"{path}: no row of this run has `correct` set to true or false")
    (run.path / "labels").mkdir(exist_ok=True)
    name = re.sub("[^A-Za-z0-9_-]", "_", path.stem)
    atomic.write_jsonl(run.path / "labels" / f"{name}.jsonl", kept)


def drawn(run: Run) -> Drawn | None:
    """Return the sample that `label` drew; None without one. Raises UserError: it is damaged."""
    path = run.path / "labels" / "drawn.npz"
    if not path.is_file():
        return None
    try:
        with np.load(path) as arrays:
            return Drawn(*(arrays[name] for name in Drawn._fields))
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: {one_line(error)}; delete it to draw again") from error


def read(run: Run, keys: Ints) -> People | None:
    """Read all labels of the attempts `keys` (`rowkeys.encode`, unique); None without any."""
    by = {path.stem: rows(path, run) for path in files(run)}
    known = np.array(sorted(set[int]().union(*by.values())), np.int64)
    sample, places = drawn(run), rowkeys.rows_of(known, keys)
    usable = (places >= 0) & np.isin(known, known if sample is None else sample.order)
    if not usable.all():
        lost = plural(int((~usable).sum()), "label")
        note(f"{run.path}: left out: {lost} of attempts that were not drawn, or have no outcome")
    if not usable.any():
        return None
    done, known, places = known, known[usable], places[usable]
    said = [[of[key] for of in by.values() if key in of] for key in known.tolist()]
    values = np.array([np.mean([row["correct"] for row in of]) for of in said])
    of_rows = np.array([of[0]["chance"] or 0.0 for of in said])
    chances: Floats | None = of_rows if of_rows.all() else None
    if sample is not None:  # of each draw a random part is labeled
        part = np.bincount(sample.draws, np.isin(sample.order, done)) / np.bincount(sample.draws)
        of_draws = sample.chances[:, rowkeys.rows_of(known, sample.keys)]
        chances = 1 - np.prod(1 - part[:, None] * of_draws, axis=0)
    of_people = {name: {k: float(r["correct"]) for k, r in of.items()} for name, of in by.items()}
    return People(places, values, chances, of_people)


def rows(path: Path, run: Run) -> dict[int, Row]:
    """Read the labels of this run in a file, by their keys; see `keep`.

    Raises UserError: one cannot be used, or the file is missing.
    """
    if not path.is_file():
        raise UserError(f"labels={path}: no such file; `{PROGRAM} label {run.path}` makes a page")
    ids = {row["question_id"]: i for i, row in enumerate(run.questions)}
    found = dict[int, Row]()
    for position, row in untrusted.json_lines(path):
        if row.get("run", run.path.name) != run.path.name:
            continue
        own = {key: row.get(key) for key in ("question_id", "trial", "chance", "correct")}
        number, trial = ids.get(str(own["question_id"]), -1), own["trial"]
        key = number << 32 | trial if type(trial) is int and 0 <= trial < 1 << 31 else -1
        shares = [value for value in (own["chance"], own["correct"]) if value is not None]
        sound = all(isinstance(value, float | int) and 0 <= value <= 1 for value in shares)
        if key < 0 or key in found or not sound:
            needs = "question_id and trial of an attempt, each once, and `correct`: true, false"
            raise UserError(f"{path}, {position}: needs {needs}, 0 to 1 or null")
        if own["correct"] is not None:
            found[key] = own
    return found
