"""One attempt a cell: the arrays of an NPZ as rows."""

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.base.errors import UserError
from pipeline.config.imports import ImportConfig
from pipeline.imports.rows import MOST_CATEGORIES, Row
from pipeline.imports.source import Source
from pipeline.imports.troubles import Troubles

_MOST_CELLS = 20_000_000  # of an NPZ


def read_npz(
    source: Source, cfg: ImportConfig, task: str, models: list[str], troubles: Troubles
) -> Iterator[Row]:
    """Arrays (models, questions, trials) or (questions, trials), a key a task, -1 or NaN owed.

    Names of models are those given, else the array `models`; ids of questions the array
    `question_ids`. The `matrix.npz` of a run folder is such a file.

    Raises:
        UserError: it is no such file, holds pickled objects, or the names do not fit.
    """
    arrays = _arrays(source.files[0])
    labels = {n: [str(x) for x in arrays.pop(n).ravel()] for n in ("models", "question_ids")
              if n in arrays and arrays[n].dtype.kind in "US"}  # fmt: skip
    ids = labels.get("question_ids", [])
    words = {name: a for name, a in arrays.items() if a.dtype.kind in "US"}
    tensors = {name: a for name, a in arrays.items() if a.dtype.kind in "biuf" and a.ndim in (2, 3)}
    for name in arrays.keys() - tensors.keys() - words.keys() - {"names", "weights"}:
        troubles.add("arrays skipped, not (models, questions, trials)", name)
    if not tensors:
        raise UserError(f"{source.path}: holds no array of (models, questions, trials)")
    if sum(a.size for a in tensors.values()) > _MOST_CELLS:
        raise UserError(f"{source.path}: over {_MOST_CELLS} outcomes; split it")
    for name, array in tensors.items():
        cube = array if array.ndim == 3 else array[None]
        called = models or labels.get("models", [])
        called = called or [f"model-{i + 1:02d}" for i in range(len(cube))]
        if len(called) != len(cube) or len(set(called)) < len(called):
            raise UserError(
                f"{source.path}: {name} has {len(cube)} models and {len(called)} names; give one"
                " each with model=a,b,..."
            )
        fits = len(ids) == cube.shape[1] and len(set(ids)) == len(ids)
        own = name in ("R", "arr_0")  # names that say nothing
        yield from _cells(
            cube, task if own and task else name, called, ids if fits else [], cfg, troubles
        )


def _cells(
    cube: Any, task: str, models: list[str], ids: list[str], cfg: ImportConfig, troubles: Troubles
) -> Iterator[Row]:
    values = np.asarray(cube, np.float64)
    owed = ~np.isfinite(values) | (values < 0)
    most = len(cfg.category_names) or len(cfg.category_weights) or MOST_CATEGORIES
    as_category = bool(cfg.category_names or cfg.category_weights or (values[~owed] > 1).any())
    for at in zip(*np.nonzero(~owed), strict=True):
        model, question, trial = map(int, at)
        value = float(values[at])
        place = f"{task}[{model}, {question}, {trial}]"
        if not value.is_integer() or value >= most:
            troubles.add("values skipped, no outcome and no category", f"{place} = {value:g}")
            continue
        number: int | str = ids[question] if ids else question
        row = Row(task, models[model], number, place, trial=trial, metric=task)
        if as_category:
            row.category = int(value)
        else:
            row.outcome = "correct" if value else "wrong"
        yield row


def _arrays(path: Path) -> dict[str, Any]:
    try:
        with zipfile.ZipFile(path) as file:
            size = sum(one.file_size for one in file.infolist())
        if size > 8 * _MOST_CELLS + (1 << 20):
            raise UserError(f"{path}: unpacks to {size} bytes; split it")
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, EOFError, MemoryError) as error:
        why = " ".join(str(error).split())[:120]
        pickled = "allow_pickle" in why
        remedy = "save plain arrays: pickled objects are never loaded" if pickled else why
        raise UserError(f"{path}: no NPZ that can be read: {remedy}") from error
