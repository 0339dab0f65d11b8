"""Pair each model's run before with its run after, by patterns and names."""

import glob
import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.multirun import ReversalConfig
from bayes_at_n.pipeline.store import selection
from bayes_at_n.pipeline.store.selection import natural
from bayes_at_n.pipeline.training.protocols import TWIN


class Pairs(NamedTuple):
    """The run folders of L models, before and after, in one order."""

    before: list[Path]
    after: list[Path]


def pair(cfg: ReversalConfig) -> Pairs:
    """Pair the runs that settings name, one by one.

    Patterns keep their order. The matches of one pattern are in natural order of their names
    without the words at either end that all share, so `a-base`, `a-m-base` come in the same order
    as `a-tuned`, `a-m-tuned`. Raises UserError: no such folder, no run, different numbers of runs,
    only one model, a run on both sides.
    """
    before, after = _side("before", cfg.before), _side("after", cfg.after)
    if both := {path.resolve() for path in before} & {path.resolve() for path in after}:
        raise UserError(f"{min(both)}: is in before= and in after=; name a run in only one")
    if len(before) != len(after):
        names = [", ".join(folder.name for folder in side) for side in (before, after)]
        raise UserError(
            f"before= names {len(before)} runs ({names[0]}) and after= {len(after)} ({names[1]});"
            " name the same models on both sides"
        )
    if len(before) < 2:
        raise UserError(f"before= names one run, {before[0].name}; a ranking needs 2 or more")
    return Pairs(before, after)


def _side(key: str, patterns: Sequence[str]) -> list[Path]:
    """List the run folders of one side, each once."""
    runs: dict[Path, Path] = {}  # by real path
    for pattern in patterns:
        folders = _matching(key, pattern)
        names = distinct([str(folder) for folder in folders])
        for _, folder in sorted(zip(names, folders, strict=True), key=lambda f: natural(f[0])):
            runs.setdefault(folder.resolve(), folder)
    return list(runs.values())


def _matching(key: str, pattern: str) -> list[Path]:
    """List the run folders that match a pattern, without the greedy twins of others."""
    path = Path(pattern).expanduser()
    if path.is_dir():
        folders = selection.runs_in(path)
    elif glob.has_magic(pattern):
        folders = [Path(name) for name in glob.glob(str(path)) if selection.is_run(Path(name))]
        if not folders:
            raise UserError(f"{key}={pattern}: matches no run folder")
    else:
        raise UserError(f"{key}={pattern}: no such folder; name run folders, or a glob of them")
    twins = {run.with_name(run.name + TWIN) for run in (f.resolve() for f in folders)}
    return [folder for folder in folders if folder.resolve() not in twins]


def distinct(names: Sequence[str]) -> list[str]:
    """Strip from names the words at either end that all of them share.

    >>> distinct(["demo-constant-base", "demo-cosine-to-zero-base"])
    ['constant', 'cosine-to-zero']
    >>> distinct(["a-base", "a-m-base"]), distinct(["same", "same"])
    (['a', 'a-m'], ['same', 'same'])
    """
    words = [re.split(r"(?<=[-_./ ])|(?=[-_./ ])", name) for name in names]
    last = _common([part[::-1] for part in words])
    first = _common([part[: len(part) - last] for part in words])
    for start, end in ((first, last), (0, last), (_common(words), 0)):
        cut = ["".join(part[start : len(part) - end]).strip("-_./ ") for part in words]
        if all(cut):
            return cut
    return list(names)


def _common(words: Sequence[list[str]]) -> int:
    """Count the leading words that all names share."""
    columns = zip(*words, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda column: len(set(column)) == 1, columns))
