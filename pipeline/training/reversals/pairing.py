"""Which runs belong together: the same model before and after, found by patterns and by names."""

import glob
import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bayes_at_n.pipeline.base.console import console, warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.compare import cohort as cohorts
from bayes_at_n.pipeline.compare import differences
from bayes_at_n.pipeline.compare.cohort import Cohort
from bayes_at_n.pipeline.config.analysis import AnalysisConfig
from bayes_at_n.pipeline.config.trajectory import ReversalConfig
from bayes_at_n.pipeline.store import find, shards
from bayes_at_n.pipeline.store.find import natural
from bayes_at_n.pipeline.store.runfolder import opened

GREEDY = "-greedy"  # the name of a greedy twin ends with it


class Pairs(NamedTuple):
    """The run folders of L models, before and after, in one order."""

    before: list[Path]
    after: list[Path]


def pair(cfg: ReversalConfig) -> Pairs:
    """The runs that settings name, paired one by one.

    What one pattern finds is in natural order of names, without the words at both ends that all of
    them share: `a-base`, `a-m-base` come in the same order as `a-tuned`, `a-m-tuned`. Patterns keep
    the order in which they were written. Raises UserError: no such folder, no run, different
    numbers, one model only, a run on both sides.
    """
    before, after = _side("before", cfg.before), _side("after", cfg.after)
    if both := {path.resolve() for path in before} & {path.resolve() for path in after}:
        raise UserError(f"{min(both)}: named by before= and by after=; a run has one side")
    if len(before) != len(after):
        names = [", ".join(folder.name for folder in side) for side in (before, after)]
        raise UserError(
            f"before= names {len(before)} runs ({names[0]}) and after= {len(after)} ({names[1]});"
            " name the same models on both sides"
        )
    if len(before) < 2:
        raise UserError(f"before= names one run, {before[0].name}; an order needs 2 models or more")
    return Pairs(before, after)


def _side(key: str, patterns: Sequence[str]) -> list[Path]:
    """The run folders of one side, each once."""
    sides: dict[Path, Path] = {}
    for pattern in patterns:
        folders = _find(key, pattern)
        names = distinct([str(folder) for folder in folders])
        for _, folder in sorted(zip(names, folders, strict=True), key=lambda f: natural(f[0])):
            sides.setdefault(folder.resolve(), folder)
    return list(sides.values())


def _find(key: str, pattern: str) -> list[Path]:
    """Run folders that a pattern finds, without greedy twins of others among them."""
    place = Path(pattern).expanduser()
    if place.is_dir():
        folders = find.within(place)
    elif glob.has_magic(pattern):
        folders = [Path(path) for path in glob.glob(str(place)) if find.is_run(Path(path))]
        if not folders:
            raise UserError(
                f"{key}={pattern}: no run folder is called so; see what there is with ls"
            )
    else:
        raise UserError(f"{key}={pattern}: no such folder; name run folders, or a glob of them")
    twins = {path.with_name(path.name + GREEDY) for path in (f.resolve() for f in folders)}
    return [folder for folder in folders if folder.resolve() not in twins]


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


def _alike(words: Sequence[list[str]]) -> int:
    """How many first words are the same in all."""
    columns = zip(*words, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda column: len(set(column)) == 1, columns))


def doubt(before: Sequence[str], after: Sequence[str]) -> str | None:
    """Why a pairing looks wrong, by the parts of the names that tell models apart; else None.

    >>> doubt(["a-base", "b-base"], ["a-tuned", "b-tuned"])
    >>> doubt(["a-base", "b-base"], ["b-tuned", "a-tuned"])
    'by their names a-base belongs to a-tuned, and is paired with b-tuned'
    """
    models, others = distinct(before), distinct(after)
    for model, other, name, paired in zip(models, others, before, after, strict=True):
        if model != other and model in others:
            own = after[others.index(model)]
            return f"by their names {name} belongs to {own}, and is paired with {paired}"
    return None


def greedy_twins(of: Sequence[Path]) -> list[Path] | None:
    """The greedy runs beside these run folders; None unless each has one that is graded."""
    folders = [path.with_name(path.name + GREEDY) for path in of]
    if not all(map(find.is_run, folders)):
        return None
    runs = [opened(folder) for folder in folders]
    heats = [differences.protocol(run)["sampling.temperature"] for run in runs]  # None: imported
    greedy = all(not heat for heat in heats) and all(shards.files(run.grades) for run in runs)
    return folders if greedy else None


def stacked(folders: Sequence[Path], like: Cohort | None = None) -> Cohort:
    """Runs as one stack of outcomes, in the order of their folders.

    `like`: what must be of the same questions. Raises UserError: runs of several data sets; a run
    that cannot be read, is not graded, or holds other questions than the others.
    """
    with console.capture():  # what is left out is an error here, and one line is enough
        stacks = cohorts.load(AnalysisConfig(folders=[str(folder) for folder in folders]))
    if len(stacks) > 1:
        raise UserError(
            f"the runs are of several data sets ({', '.join(stack.dataset for stack in stacks)});"
            " name runs of one"
        )
    [stack] = stacks
    if left_out := [line for line in stack.warnings if " is left out: " in line]:
        raise UserError(left_out[0])
    first = (like or stack).members[0].run
    for run in (member.run for member in stack.members):
        own, others = ({row["question_hash"] for row in of.questions} for of in (run, first))
        if own != others:
            raise UserError(
                f"{run.path}: of its {len(own)} questions {len(own & others)} are among the"
                f" {len(others)} of {first.path}; evaluate all models on the same questions"
            )
    for line in stack.warnings:
        warn(line)
    return stack
