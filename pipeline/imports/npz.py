"""One attempt a cell: the arrays of an NPZ as records.

Arrays are (models, questions, trials) or (questions, trials), a key a task; -1 and NaN are owed.
Names of models are those given, else the array `models`; ids of questions the array
`question_ids`. The `matrix.npz` of a run folder is such a file.
"""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.base.errors import UserError, one_line
from pipeline.imports.source import Records, Source, Troubles

_MOST_CELLS = 20_000_000


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
        models = cfg.model or names or [f"model-{i + 1:02d}" for i in range(len(cube))]
        if len(models) != len(cube) or len(set(models)) < len(models):
            raise UserError(
                f"{source.path}: {name} has {len(cube)} models and {len(models)} names; give one"
                " each with model=a,b,..."
            )
        fits = len(ids) == cube.shape[1] and len(set(ids)) == len(ids)
        task = cfg.dataset[0] if cfg.dataset and name in ("R", "arr_0") else name  # say nothing
        sampled = np.isfinite(cube) & (cube >= 0)
        labels = cfg.source.category_names or cfg.source.category_weights
        what = "category" if labels or (cube[sampled] > 1).any() else "outcome"
        for model, question, trial in np.argwhere(sampled).tolist():
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
    try:
        with zipfile.ZipFile(path) as file:
            size = sum(part.file_size for part in file.infolist())
        if size <= 8 * _MOST_CELLS + (1 << 20):
            with np.load(path, allow_pickle=False) as file:
                return {name: file[name] for name in file.files}
    except Exception as error:  # foreign parsers on hostile bytes raise whatever they like
        why = one_line(error)
        if "allow_pickle" in why:
            why = "save plain arrays: pickled objects are never loaded"
        raise UserError(f"{path}: no NPZ that can be read: {why}") from error
    raise UserError(f"{path}: unpacks to {size} bytes; split it")
