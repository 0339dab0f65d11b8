"""One attempt a cell: the arrays of an NPZ as records.

Arrays are (models, questions, trials) or (questions, trials), a key a task; -1 and NaN are owed.
Names of models are those given, else the array `models`; ids of questions the array
`question_ids`. The `matrix.npz` of a run folder is such a file.
"""

import math
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np

from bayes_at_n.pipeline.base import foreign
from bayes_at_n.pipeline.base.console import counted, note
from bayes_at_n.pipeline.base.errors import UserError, one_line
from bayes_at_n.pipeline.records.plan import MOST_RUNS
from bayes_at_n.pipeline.records.source import Records, Source, Troubles

_MOST_CELLS = 20_000_000
_MOST_TEXTS = 1_000_000  # names of models, ids of questions


def read(source: Source, first: bool, troubles: Troubles) -> Records:
    """The cells of all arrays.

    Raises UserError: it is no such file, holds pickled objects, or the names do not fit.
    """
    cfg, arrays = source.cfg, _arrays(source.files[0])
    texts = {name: array for name, array in arrays.items() if array.dtype.kind in "US"}
    names, ids = (
        [str(text) for text in texts.get(key, np.array([])).ravel()]
        for key in ("models", "question_ids")
    )
    cubes = {
        name: array if array.ndim == 3 else array[None]
        for name, array in arrays.items()
        if array.dtype.kind in "biuf" and array.ndim in (2, 3)
    }
    for name in arrays.keys() - cubes.keys() - texts.keys() - {"names", "weights"}:
        troubles.add("arrays skipped, not (models, questions, trials)", name)
    if not cubes:
        raise UserError(f"{source.path}: holds no array of (models, questions, trials)")
    if sum(cube.size for cube in cubes.values()) > _MOST_CELLS:
        raise UserError(f"{source.path}: over {_MOST_CELLS} outcomes; split it")
    for name, cube in cubes.items():
        if len(cube) > MOST_RUNS:
            raise UserError(f"{source.path}: {name} says {len(cube)} models; at most {MOST_RUNS}")
        models = cfg.model or names or [f"model-{i + 1:02d}" for i in range(len(cube))]
        if len(models) != len(cube) or len(set(models)) < len(models):
            has = f"{counted(len(cube), 'model')} and {counted(len(set(models)), 'different name')}"
            raise UserError(f"{source.path}: {name} has {has}; give one each with model=a,b,...")
        fits = len(ids) == cube.shape[1] and len(set(ids)) == len(ids)
        task = cfg.dataset[0] if cfg.dataset and name in ("R", "arr_0") else name  # say nothing
        sampled = np.isfinite(cube) & (cube >= 0)
        labels = cfg.source.category_names or cfg.source.category_weights
        what = "category" if labels or (cube[sampled] > 1).any() else "outcome"
        if first and what == "category" and not labels:
            most = f"{cube[sampled].max():g}"
            note(f"import: {name}: values up to {most} are categories, of which {most} is correct")
        for at in map(int, np.flatnonzero(sampled)):  # not all places as Python's numbers at once
            model, question, trial = map(int, np.unravel_index(at, cube.shape))
            yield (
                f"{name}[{model}, {question}, {trial}]",
                {
                    "task": task,
                    "model": models[model],
                    "question": ids[question] if fits else question,
                    "trial": trial,
                    what: float(cube[model, question, trial]),
                    "reason": task,
                },
            )


def _arrays(path: Path) -> dict[str, Any]:
    """The arrays by name; each header is read, and what it says is counted, before its array."""
    read: Any = np.lib.format.read_array  # which loads no pickled objects
    try:
        with foreign.room(path.stat().st_size), zipfile.ZipFile(path) as file:
            size = sum(part.file_size for part in file.infolist())
            if size > 8 * _MOST_CELLS + (1 << 20):
                raise ValueError(f"unpacks to {size} bytes; split it")
            for part in file.infolist():
                with file.open(part) as data:
                    _check(part, data)
            return {
                part.filename.removesuffix(".npy"): read(file.open(part))
                for part in file.infolist()
            }
    except Exception as error:  # foreign parsers on hostile bytes raise whatever they like
        raise UserError(f"{path}: no NPZ that can be read: {one_line(error)}") from error


def _check(part: zipfile.ZipInfo, data: IO[bytes]) -> None:
    """Refuse a member that is no array, or another one than it says; ValueError says why."""
    if not part.filename.endswith(".npy"):
        raise ValueError(f"{part.filename} is no array (NAME.npy)")
    form: Any = np.lib.format
    version = form.read_magic(data)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"{part.filename} is of version {version}; save plain arrays")
    shape, _, kind = (form.read_array_header_1_0, form.read_array_header_2_0)[version[0] - 1](data)
    if kind.hasobject:
        raise ValueError(f"{part.filename}: save plain arrays: pickled objects are never loaded")
    cells = math.prod(max(length, 1) for length in shape)
    if cells > (_MOST_TEXTS if kind.kind in "US" else _MOST_CELLS):
        raise ValueError(f"{part.filename} says it is of shape {shape}; split it")
    if math.prod(shape) * kind.itemsize > part.file_size:
        raise ValueError(f"{part.filename} holds less than its shape {shape} says")
