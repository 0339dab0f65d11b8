"""Arrays of an NPZ as records, one attempt per cell.

Arrays are (models, questions, trials) or (questions, trials), one per task, under its name; -1 and
NaN are pending. Models are named by `model=`, else by the array `models`; questions by the array
`question_ids`. The `matrix.npz` of a run folder is such a file.
"""

from pathlib import Path
from typing import Any

import numpy as np

from bayes_at_n.pipeline.base import untrusted
from bayes_at_n.pipeline.base.console import note, plural
from bayes_at_n.pipeline.base.errors import UserError, one_line
from bayes_at_n.pipeline.records.runs import MOST_RUNS
from bayes_at_n.pipeline.records.source import Records, Source, archive

_MOST_CELLS = 20_000_000


def read(source: Source) -> Records:
    """Yield the cells of all arrays.

    Raises UserError: the file is invalid or holds pickled objects, or the names do not fit.
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
        source.skipped.add("arrays skipped, not (models, questions, trials)", name)
    if not cubes:
        raise UserError(f"{source.path}: holds no array of (models, questions, trials)")
    if sum(cube.size for cube in cubes.values()) > _MOST_CELLS:
        raise UserError(f"{source.path}: over {_MOST_CELLS} outcomes; split it")
    for name, cube in cubes.items():
        if len(cube) > MOST_RUNS:
            raise UserError(f"{source.path}: {name} has {len(cube)} models; at most {MOST_RUNS}")
        models = cfg.model or names or [f"model-{i + 1:02d}" for i in range(len(cube))]
        if len(models) != len(cube) or len(set(models)) < len(models):
            has = f"{plural(len(cube), 'model')} and {plural(len(set(models)), 'different name')}"
            raise UserError(f"{source.path}: {name} has {has}; give one each with model=a,b,...")
        fits = len(ids) == cube.shape[1] and len(set(ids)) == len(ids)
        task = cfg.dataset[0] if cfg.dataset and name in ("R", "arr_0") else name  # name nothing
        sampled = np.isfinite(cube) & (cube >= 0)
        labels = cfg.source.category_names or cfg.source.category_weights
        what = "category" if labels or (cube[sampled] > 1).any() else "outcome"
        if what == "category" and not labels:
            most = f"{cube[sampled].max():g}"
            note(f"import: {name}: values up to {most} are categories, of which {most} is correct")
        for number in np.flatnonzero(sampled):  # lazily, to save memory
            model, question, trial = at = tuple(map(int, np.unravel_index(number, cube.shape)))
            key = {"task": task, "model": models[model], "trial": trial, "reason": task}
            key["question"] = ids[question] if fits else question
            yield f"{name}{list(at)}", key | {what: float(cube[at])}


def _arrays(path: Path) -> dict[str, Any]:
    """Return the arrays by name, within `untrusted.memory_limit`, whatever headers declare."""
    try:
        with untrusted.memory_limit(path.stat().st_size), archive(path) as file:
            if other := [name for name in file.namelist() if not name.endswith(".npy")]:
                raise ValueError(f"{other[0]} is not an array (NAME.npy)")
            read: Any = np.lib.format.read_array  # which loads no pickled objects
            return {name.removesuffix(".npy"): read(file.open(name)) for name in file.namelist()}
    except Exception as error:  # parsers may raise anything on hostile bytes
        raise UserError(f"{path}: not a readable NPZ: {one_line(error)}") from error
