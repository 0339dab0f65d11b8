"""Which run folders settings name: `runs/DATASET/RUN`, or folders named outright."""

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
    """Run folders by data set, in the order named, each once.

    Folders whose names start with "_" or "." hold what is made from runs, and are none.

    A folder named outright that holds no sound run is left out with a warning. Raises UserError: no
    such folder, or no run in it; nothing sound among the folders named outright.
    """
    by_dataset: dict[str, list[Path]] = {}
    faults = []
    for text in cfg.folders:
        folder = Path(text).expanduser()
        try:
            by_dataset.setdefault(load_folder(folder, []).dataset.name, []).append(folder)
        except UserError as error:
            faults.append((text, error))
    if cfg.dataset or not cfg.folders:
        for name, runs in _in_root(cfg).items():
            by_dataset.setdefault(name, []).extend(runs)
    if not by_dataset:
        raise faults[0][1]
    for text, fault in faults:
        if Path(text).name[:1] not in ("_", "."):  # nobody means those; a shell's * does
            warn(f"{foreign.printable(Path(text))} is left out: {fault}")
    return {
        name: list({p.resolve(): p for p in paths}.values()) for name, paths in by_dataset.items()
    }


def _in_root(cfg: SelectionConfig) -> dict[str, list[Path]]:
    root = Path(cfg.runs).expanduser()
    if not root.is_dir():
        raise UserError(f"runs={cfg.runs}: no such folder; run something first, or set runs=DIR")
    known = {path.name: _runs(path) for path in _folders(root)}
    for name in cfg.dataset:
        if name not in known:
            names = ", ".join(known) or "nothing"
            raise UserError(f"dataset={name}: no such folder; {root} holds {names}")
        if not known[name]:
            raise UserError(f"dataset={name}: {root / name} holds no run; run something first")
    chosen = {name: known[name] for name in cfg.dataset or known if known[name]}
    models = {model for runs in chosen.values() for model in runs}
    if not models:
        raise UserError(f"{root}: holds no run; run something first, or set runs=DIR")
    for model in cfg.model:
        if model not in models:
            names = ", ".join(sorted(models))
            raise UserError(f"model={model}: no such run folder in {root}; there are {names}")
    folders = {
        name: [runs[model] for model in cfg.model or runs if model in runs]
        for name, runs in chosen.items()
    }
    return {name: paths for name, paths in folders.items() if paths}


def within(folder: Path) -> list[Path]:
    """The run folders in a folder: in `runs/DATASET`, in `runs` with its data sets; or itself.

    Raises UserError: there is none.
    """
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
    """Whether a folder holds a run's configuration."""
    return os.path.lexists(folder / "config.yaml")


def _runs(dataset: Path) -> dict[str, Path]:
    return {path.name: path for path in _folders(dataset) if is_run(path)}


def _folders(root: Path) -> list[Path]:
    return sorted(path for path in root.iterdir() if path.is_dir() and path.name[0] not in "._")


def names(folders: Sequence[Path]) -> list[str]:
    """Folder names; with as many of the folders above as it takes to tell them apart.

    >>> names([Path("/r/a/x"), Path("/r/b/x"), Path("/r/b/y")])
    ['a/x', 'b/x', 'y']
    """
    paths = [Path(foreign.printable(path.resolve())) for path in folders]
    depths = range(1, 1 + max((len(path.parts) for path in paths), default=0))
    ends = Counter(path.parts[-depth:] for depth in depths for path in {*paths})

    def name(path: Path) -> str:
        tails = (path.parts[-depth:] for depth in range(1, len(path.parts)))
        return next(("/".join(tail) for tail in tails if ends[tail] == 1), str(path))

    return [name(path) for path in paths]


def natural(name: str) -> list[tuple[bool, int, str]]:
    """A sort key by which numbers count by their value, and before letters.

    Folders without a number are sorted by name among the others, whenever they were saved.

    >>> sorted(["step-1000", "step-900"], key=natural)
    ['step-900', 'step-1000']
    >>> sorted(["final", "best", "checkpoint-20"], key=natural)
    ['best', 'checkpoint-20', 'final']
    """
    parts = re.split(r"(\d+)", name)
    return [(not p.isdecimal(), int(p) if p.isdecimal() else 0, p) for p in parts if p]
