"""Find the run folders that settings name: `runs/DATASET/RUN`, or folders named outright."""

import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from bayes_at_n.pipeline.base import foreign
from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.analysis import SelectionConfig
from bayes_at_n.pipeline.config.folder import load_folder


def named(cfg: SelectionConfig) -> dict[str, list[Path]]:
    """Return run folders by data set, in the order named, each once.

    A folder named outright without a sound run is left out with a warning. Raises UserError: no
    sound run is left, or no such data set or model.
    """
    by_dataset: dict[str, dict[Path, Path]] = {}
    faults = []
    for text in cfg.folders:
        folder = Path(text).expanduser()
        try:
            runs = by_dataset.setdefault(load_folder(folder, []).dataset.name, {})
            runs[folder.resolve()] = folder
        except UserError as error:
            faults.append((folder, error))
    if cfg.dataset or not cfg.folders:
        for name, paths in _in_root(cfg).items():
            by_dataset.setdefault(name, {}).update({path.resolve(): path for path in paths})
    if not by_dataset:
        raise faults[0][1]
    for folder, fault in faults:
        if folder.name[:1] not in ("_", "."):  # nobody means those; a shell's * does
            warn(f"{foreign.printable(folder)} is left out: {fault}")
    return {name: list(runs.values()) for name, runs in by_dataset.items()}


def _in_root(cfg: SelectionConfig) -> dict[str, list[Path]]:
    root = Path(cfg.runs).expanduser()
    if not root.is_dir():
        raise UserError(f"runs={cfg.runs}: no such folder; run something first, or set runs=DIR")
    known = {path.name: _runs(path) for path in _folders(root)}
    for name in cfg.dataset:
        if not known.get(name):
            there = ", ".join(known) or "nothing"
            raise UserError(f"dataset={name}: no run of it in {root}, which holds {there}")
    chosen = {name: known[name] for name in cfg.dataset or known if known[name]}
    models = {model for runs in chosen.values() for model in runs}
    if not models:
        raise UserError(f"{root}: holds no run; run something first, or set runs=DIR")
    for model in cfg.model:
        if model not in models:
            there = ", ".join(sorted(models))
            raise UserError(f"model={model}: no such run folder in {root}; there are {there}")
    asked = cfg.model or sorted(models)
    found = {name: [runs[m] for m in asked if m in runs] for name, runs in chosen.items()}
    return {name: paths for name, paths in found.items() if paths}


def within(folder: Path) -> list[Path]:
    """Return the run folders in `runs` or `runs/DATASET`, or itself. Raises UserError: none."""
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder")
    if is_run(folder):
        return [folder]
    runs = list(_runs(folder).values())
    runs = runs or [run for part in _folders(folder) for run in _runs(part).values()]
    if not runs:
        raise UserError(f"{folder} is no run folder, and holds none")
    return runs


def is_run(folder: Path) -> bool:
    """Return whether a folder holds a run's configuration."""
    return os.path.lexists(folder / "config.yaml")


def _runs(dataset: Path) -> dict[str, Path]:
    return {path.name: path for path in _folders(dataset) if is_run(path)}


def _folders(root: Path) -> list[Path]:
    """List folders, but for those made from runs."""
    return sorted(path for path in root.iterdir() if path.is_dir() and path.name[0] not in "._")


def names(folders: Sequence[Path]) -> list[str]:
    """Name folders, with as many parents as tell them apart.

    >>> names([Path("/r/a/x"), Path("/r/b/x"), Path("/r/b/y")])
    ['a/x', 'b/x', 'y']
    """
    paths = [Path(foreign.printable(path.resolve())) for path in folders]
    tails = {path: [path.parts[-n:] for n in range(1, len(path.parts))] for path in paths}
    times = Counter(tail for of_one in tails.values() for tail in of_one)
    return [next(("/".join(t) for t in tails[p] if times[t] == 1), str(p)) for p in paths]


def natural(name: str) -> list[tuple[bool, int, str]]:
    """Return a sort key by which numbers count by value, and before letters.

    >>> sorted(["step-1000", "step-900"], key=natural)
    ['step-900', 'step-1000']
    >>> sorted(["final", "best", "checkpoint-20"], key=natural)
    ['best', 'checkpoint-20', 'final']
    """
    parts = re.split(r"(\d+)", name)
    return [(not p.isdecimal(), int(p) if p.isdecimal() else 0, p) for p in parts if p]
