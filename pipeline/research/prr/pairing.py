"""Which runs belong together: the same model before and after, found by patterns and by names."""

import glob
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pipeline.base.errors import UserError
from pipeline.config.compose import load_folder
from pipeline.config.prr import ReversalConfig
from pipeline.research.checkpoints.folders import natural
from pipeline.store import find as whichruns
from pipeline.store import shards
from pipeline.store.runfolder import Run

GREEDY = "-greedy"  # the name of a greedy twin ends with it


class Pairs(NamedTuple):
    """The run folders of L models, before and after, in one order."""

    before: list[Path]
    after: list[Path]


def find(cfg: ReversalConfig) -> Pairs:
    """The runs that settings name, paired one by one.

    What one pattern finds is in natural order of names, without the words at both ends that all of
    them share: `a-base`, `a-m-base` come in the same order as `a-tuned`, `a-m-tuned`. Patterns keep
    the order in which they were written.

    Raises:
        UserError: no such folder, no run, different numbers, one model only, a run on both sides, a
            run that is not graded, other questions.
    """
    before, after = _side("before", cfg.before), _side("after", cfg.after)
    known = {path.resolve() for path in before}
    for path in after:
        if path.resolve() in known:
            raise UserError(f"{path}: named by before= and by after=; a run has one side")
    if len(before) != len(after):
        raise UserError(
            f"before= names {len(before)} {_runs(before)} and after= {len(after)} {_runs(after)};"
            " name the same models on both sides"
        )
    if len(before) < 2:
        raise UserError(f"before= names one run, {before[0].name}; an order needs 2 models or more")
    _check(_opened([*before, *after]))
    return Pairs(before, after)


def _runs(folders: Sequence[Path]) -> str:
    names = [folder.name for folder in folders]
    shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    return f"{'run' if len(names) == 1 else 'runs'} ({shown})"


def _side(key: str, patterns: Sequence[str]) -> list[Path]:
    """The run folders of one side, each once."""
    found: dict[Path, Path] = {}
    for pattern in patterns:
        for folder in _ordered(_find(key, pattern)):
            found.setdefault(folder.resolve(), folder)
    return list(found.values())


def _find(key: str, pattern: str) -> list[Path]:
    place = Path(pattern).expanduser()
    if place.is_dir():
        folders = whichruns.within(place)
    elif glob.has_magic(pattern):
        folders = [Path(path) for path in glob.glob(str(place)) if whichruns.is_run(Path(path))]
        if not folders:
            raise UserError(
                f"{key}={pattern}: no run folder is called so; see what there is with ls"
            )
    else:
        raise UserError(f"{key}={pattern}: no such folder; name run folders, or a glob of them")
    names = {folder.resolve() for folder in folders}
    return [f for f in folders if not _is_twin(f) or _of_twin(f.resolve()) not in names]


def _is_twin(folder: Path) -> bool:
    return folder.name.endswith(GREEDY)


def _of_twin(folder: Path) -> Path:
    return folder.with_name(folder.name.removesuffix(GREEDY))


def _ordered(folders: Sequence[Path]) -> list[Path]:
    names = distinct([str(folder) for folder in folders])
    order = sorted(range(len(folders)), key=lambda i: natural(names[i]))
    return [folders[i] for i in order]


def distinct(names: Sequence[str]) -> list[str]:
    """Names without the words at both ends that all of them share.

    >>> distinct(["demo-constant-base", "demo-cosine-to-zero-base"])
    ['constant', 'cosine-to-zero']
    >>> distinct(["a-base", "a-m-base"]), distinct(["same", "same"])
    (['a', 'a-m'], ['same', 'same'])
    """
    words = [re.split(r"(?<=[-_./ ])|(?=[-_./ ])", name) for name in names]
    last = _alike([part[::-1] for part in words])
    first = _alike([part[: len(part) - last] for part in words])
    for start, end in ((first, last), (0, last), (_alike(words), 0)):
        cut = ["".join(part[start : len(part) - end]).strip("-_./ ") for part in words]
        if all(cut):
            return cut
    return list(names)


def _alike(words: Sequence[Sequence[str]]) -> int:
    """How many first words are the same in all."""
    for i, column in enumerate(zip(*words, strict=False)):
        if len(set(column)) > 1:
            return i
    return min(map(len, words), default=0)


def doubt(before: Sequence[str], after: Sequence[str]) -> str | None:
    """Why a pairing looks wrong, by the parts of the names that tell models apart; else None.

    >>> doubt(["a-base", "b-base"], ["a-tuned", "b-tuned"])
    >>> doubt(["a-base", "b-base"], ["b-tuned", "a-tuned"])
    'by their names a-base belongs to a-tuned, and is paired with b-tuned'
    """
    one, other = distinct(before), distinct(after)
    for i, name in enumerate(one):
        if other[i] != name and name in other:
            j = other.index(name)
            return (
                f"by their names {before[i]} belongs to {after[j]}, and is paired with {after[i]}"
            )
    return None


def twins(folders: Sequence[Path]) -> list[Path] | None:
    """The greedy twins beside run folders; None unless every run has one that is graded.

    Raises:
        UserError: a twin that answers other questions.
    """
    found = [folder.with_name(folder.name + GREEDY) for folder in folders]
    if not all(whichruns.is_run(twin) for twin in found):
        return None
    runs = _opened(found)
    if not all(run.cfg.sampling.temperature == 0 and shards.files(run.grades) for run in runs):
        return None
    _check([*_opened(folders[:1]), *runs])
    return found


def _opened(folders: Sequence[Path]) -> list[Run]:
    return [Run(load_folder(folder, [])) for folder in folders]


def _check(runs: Sequence[Run]) -> None:
    """Every run is graded, and all have the same questions."""
    first: Counter[str] | None = None
    for run in runs:
        if not shards.files(run.grades):
            raise UserError(
                f"{run.path}: nothing graded yet; run `python -m pipeline grade {run.path}` first"
            )
        hashes = Counter(str(row["question_hash"]) for row in run.questions)
        first = hashes if first is None else first
        if hashes != first:
            shared = (hashes & first).total()
            raise UserError(
                f"{run.path}: of its {hashes.total()} questions {shared} are among the"
                f" {first.total()} of {runs[0].path}; evaluate all models on the same questions"
            )
