"""The runs of a trajectory: training runs, their windows of checkpoints, each evaluated.

A window is a few neighbouring checkpoints whose mean is one model; a window of one is a checkpoint.
"""

import functools
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.config.compose import quoted
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.config.settle import Request
from bayes_at_n.pipeline.config.trajectory import TrajectoryConfig
from bayes_at_n.pipeline.prepare import questions
from bayes_at_n.pipeline.prepare.questions import Question
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.training import checkpoints
from bayes_at_n.pipeline.training.checkpoints import Checkpoint

LEAST = 2  # checkpoints, or windows, without which nothing can go up or down
STAGES = "stages=[prepare,generate,grade,categorize,score]"  # confidence weighs votes
_STAND_IN = "NAME-OF-A-CHECKPOINT"  # where it turns up in model.name, a checkpoint's name goes
_GREEDY = {"temperature": 0.0, "top_p": 1.0, "trials": 1, "seed": None}  # of sampling
_EDGES = "-_./ "
_LONGEST = 60  # letters of what the whole is called


class Training(NamedTuple):
    """One training run."""

    name: str  # "" where there is one of no name
    checkpoints: list[Checkpoint]  # in the order of training
    steps: list[int]  # of each checkpoint


class Window(NamedTuple):
    """One model: a checkpoint, or the mean of several."""

    training: str
    size: int
    step: int  # of the newest checkpoint in it
    name: str  # of the newest checkpoint, "-merge4" behind it for a window of four
    path: Path
    sources: tuple[Path, ...]  # oldest first; a single checkpoint is its own


@dataclass(frozen=True)
class Evaluation:
    """One run: a model on a data set, sampled or greedy."""

    window: Window
    greedy: bool
    run: Run
    settings: list[str]  # of `python -m pipeline run`

    @property
    def dataset(self) -> str:
        return self.run.cfg.dataset.name


@dataclass(frozen=True)
class Series:
    """All runs of a trajectory, and where its results go."""

    label: str
    out: Path
    trainings: list[Training]
    datasets: list[str]
    evaluations: list[Evaluation]  # those of one model beside each other

    @functools.cached_property
    def questions(self) -> dict[str, list[Question]]:
        """Those of each data set."""
        configs = {e.dataset: e.run.cfg.dataset for e in self.evaluations}
        return {name: questions.load(cfg)[0] for name, cfg in configs.items()}


def plan(settings: Request[TrajectoryConfig]) -> Series:
    """Plan every evaluation that the settings request; nothing is written, no weights are read.

    Raises UserError: no checkpoints, too few for a window, two of one name; settings of the runs
    that cannot work; two data sets of one name; two evaluations with one run folder.
    """
    cfg = settings.cfg
    trainings = find(cfg.checkpoints, cfg.merge.windows)
    stand_in = f"{trainings[0].checkpoints[0].path.parent.resolve()}/{_STAND_IN}"
    probe = [f"model.checkpoint={_STAND_IN}", f"model.id={quoted(stand_in)}", STAGES]
    own = [[*settings.models[0], *of] for of in settings.datasets]  # settings by data set
    bases = [compose.load([*of, *probe]) for of in own]
    names = [base.dataset.name for base in bases]
    if judge := next((base.dataset.judge for base in bases if base.dataset.judge), None):
        raise UserError(f"dataset.judge={judge}: a trajectory asks no verifier; leave it out")
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(
            f"dataset: two of them are called {twice[0]}; dataset.name=NAME tells them apart"
        )
    label, pattern, family = _names(bases[0], trainings)
    root = Path(bases[0].run_dir).parent.parent
    evaluations = [
        _evaluation(window, base, of, pattern, greedy)
        for window in _windows(trainings, cfg.merge.windows, root / "_merged", family)
        for base, of in zip(bases, own, strict=True)
        for greedy in (False, True)[: 1 + cfg.greedy]
    ]
    models: dict[Path, Path] = {}  # by run folder
    for evaluation in evaluations:
        path, model = evaluation.run.path, evaluation.window.path
        if models.setdefault(path, model) != model:
            raise UserError(
                f"{path}: would be the run folder of {models[path]} and of {model}; rename the"
                " folder of that checkpoint"
            )
    parent = root if len(bases) > 1 else Path(bases[0].run_dir).parent
    folder = f"{label}-{bases[0].tag}" if bases[0].tag else label
    out = Path(cfg.out or parent / "_trajectory" / folder).expanduser()
    return Series(label, out, trainings, names, evaluations)


def find(patterns: Mapping[str, Sequence[str]], sizes: Sequence[int]) -> list[Training]:
    """Find the training runs that settings name, in the order named.

    `patterns` are folders or globs of checkpoints by training run, `sizes` those of the windows to
    be merged. Raises UserError: no checkpoint there, too few of them for a window, two of one name.
    """
    trainings = []
    for name, of in patterns.items():
        key, own = f"checkpoints.{name}" if name else "checkpoints", checkpoints.find(of)
        _check(key, own, sizes)
        trainings.append(Training(name, own, _steps(key, own)))
    if all(training.steps for training in trainings):
        return trainings
    return [t._replace(steps=[*range(1, len(t.checkpoints) + 1)]) for t in trainings]


def _check(key: str, own: Sequence[Checkpoint], sizes: Sequence[int]) -> None:
    paths: dict[str, Path] = {}
    for path, name, _ in own:
        if paths.setdefault(name, path) != path:
            raise UserError(
                f"{key}: {paths[name]} and {path} are both called {name}; training runs that share"
                " names are told apart by checkpoints.NAME=FOLDER"
            )
        if not re.fullmatch(r"[\w.+-]+", name):
            raise UserError(
                f"{path}: the folder's name becomes that of its run; rename it to letters, digits,"
                " - . + and _"
            )
    largest = len(own) + 1 - LEAST
    if largest < 1:
        raise UserError(f"{key}: holds {len(own)} checkpoint; a trajectory needs {LEAST} or more")
    if size := next((size for size in sizes if size > largest), None):
        remedy = f"merge={largest} leaves {LEAST}" if largest > 1 else "merge=[] leaves it out"
        raise UserError(
            f"merge={size}: {key} holds {len(own)} checkpoints, which is less than {LEAST} such"
            f" windows, and one point has no order of training to agree with; {remedy}"
        )


def _steps(key: str, own: Sequence[Checkpoint]) -> list[int]:
    """Return the steps in the folders' names; none, with a warning, where they give no order."""
    steps: list[int] = []
    for checkpoint in own:
        if checkpoint.step is None:
            problem = f"{checkpoint.name} has no step in its name"
        elif steps and checkpoint.step <= steps[-1]:
            before = own[len(steps) - 1].name
            problem = f"{checkpoint.name} comes after {before}, and its step is not larger"
        else:
            steps.append(checkpoint.step)
            continue
        warn(f"{key}: {problem}; they are numbered 1 to {len(own)} in the order given")
        return []
    return steps


def _names(base: RunConfig, trainings: Sequence[Training]) -> tuple[str, str, str | None]:
    """Name the whole; `model.name` with {} for a checkpoint's name; the model's family.

    A model whose name is the checkpoint's and nothing else is of no family and is called after its
    training run, or the folder above: many trainings have a "checkpoint-500".
    """
    name = base.model.name
    if _STAND_IN not in name:
        return name, f"{name}-{{}}", name
    if family := name.replace(_STAND_IN, "").strip(_EDGES):
        return family, name.replace(_STAND_IN, "{}"), family
    if trainings[0].name:
        return "-".join(training.name for training in trainings)[:_LONGEST], "{}", None
    above = trainings[0].checkpoints[0].path.resolve().parent.name or "model"
    return above, f"{above}-{{}}", above


def _windows(
    trainings: Sequence[Training], sizes: Sequence[int], merged: Path, family: str | None
) -> Iterator[Window]:
    """Yield every model: the single checkpoints of all trainings, then the windows of each size."""
    for size, training in itertools.product((1, *sizes), trainings):
        for first, step in enumerate(training.steps[size - 1 :]):
            window = training.checkpoints[first : first + size]
            sources = tuple(checkpoint.path.resolve() for checkpoint in window)
            name = f"{training.name}-{window[-1].name}" if training.name else window[-1].name
            path = sources[-1]
            if size > 1:
                name = f"{name}-merge{size}"
                path = (merged / (family or training.name) / name).resolve()
            yield Window(training.name, size, step, name, path, sources)


def _evaluation(
    window: Window, base: RunConfig, settings: list[str], pattern: str, greedy: bool
) -> Evaluation:
    name, tag, sampling = pattern.replace("{}", window.name), base.tag, base.sampling
    own = [
        f"model.id={quoted(str(window.path))}",
        f"model.checkpoint={quoted(window.name)}",
        f"model.name={quoted(name)}",
        STAGES,
    ]
    if greedy:
        tag = f"{tag}-greedy" if tag else "greedy"
        own += [f"sampling.{k}={'null' if v is None else v}" for k, v in _GREEDY.items()]
        own += [f"tag={quoted(tag)}"]
        sampling = replace(sampling, **_GREEDY)  # type: ignore[arg-type]
    folder = Path(base.run_dir).parent / (f"{name}-{tag}" if tag else name)
    model = replace(base.model, id=str(window.path), checkpoint=window.name, name=name)
    cfg = replace(base, model=model, sampling=sampling, tag=tag, run_dir=str(folder))
    return Evaluation(window, greedy, Run(cfg), [*settings, *own])
