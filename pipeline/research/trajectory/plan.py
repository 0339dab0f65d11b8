"""Every model to evaluate as an ordinary run: its name, weights, folder and settings."""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from pipeline.base.errors import UserError
from pipeline.config import compose
from pipeline.config.settings import RunConfig
from pipeline.config.trajectory import Settings
from pipeline.research.checkpoints import folders
from pipeline.research.trajectory.trainings import Training
from pipeline.store.runfolder import Run

STAGES = "stages=[prepare,generate,grade,score]"
_STAND_IN = "NAME-OF-A-CHECKPOINT"  # where it turns up in model.name, a checkpoint's name goes
_GREEDY = ("sampling.temperature=0", "sampling.top_p=1.0", "sampling.trials=1")
_EDGES = "-_./ "
_WORDS = ("null", "none", "true", "false", "inf", "nan")  # that Hydra takes for no texts
_LONGEST = 60  # letters of what the whole is called


class Weights(NamedTuple):
    """One model: a checkpoint, or the mean of a window."""

    training: str
    window: int
    step: int  # of the newest checkpoint in it
    name: str  # of the checkpoint, "-merge4" behind it for a window of four
    path: Path
    sources: tuple[Path, ...]  # the window, oldest first; one checkpoint is its own


@dataclass(frozen=True)
class Evaluation:
    """One run: a model on a data set, sampled or greedy."""

    weights: Weights
    greedy: bool
    run: Run
    settings: list[str]  # of `python -m pipeline run`

    @property
    def dataset(self) -> str:
        return self.run.cfg.dataset.name


@dataclass(frozen=True)
class Plan:
    """All of a trajectory: what is evaluated, and where results go."""

    label: str
    out: Path
    trainings: list[Training]
    datasets: list[str]
    evaluations: list[Evaluation]  # those of one model beside each other


def make(settings: Settings, trainings: list[Training]) -> Plan:
    """Every evaluation that the settings ask for; nothing is written, no weights are read.

    Raises:
        UserError: settings of the runs that cannot work; two data sets of one name; two evaluations
            with one run folder.
    """
    stand_in = f"{trainings[0].checkpoints[0].path.parent.resolve()}/{_STAND_IN}"
    probe = [f"model.checkpoint={_STAND_IN}", f"model.id={_quoted(stand_in)}", STAGES]
    bases = [compose.load([*settings.run, *of, *probe]) for of in settings.datasets]
    names = [base.dataset.name for base in bases]
    for name in names:
        if names.count(name) > 1:
            raise UserError(
                f"dataset: two of them are called {name}; dataset.name=NAME tells them apart"
            )
    label, pattern, family = _names(bases[0], trainings)
    root = Path(bases[0].run_dir).parent.parent
    evaluations = [
        _evaluation(weights, base, [*settings.run, *of], pattern, greedy)
        for weights in _weights(trainings, settings.cfg.merge.windows, root / "_merged", family)
        for base, of in zip(bases, settings.datasets, strict=True)
        for greedy in ((False, True) if settings.cfg.greedy else (False,))
    ]
    _check_folders(evaluations)
    beside = root if len(bases) > 1 else Path(bases[0].run_dir).parent
    called = f"{label}-{bases[0].tag}" if bases[0].tag else label
    out = Path(settings.cfg.out or beside / "_trajectory" / called).expanduser()
    return Plan(label, out, trainings, names, evaluations)


def _check_folders(evaluations: Sequence[Evaluation]) -> None:
    """No two evaluations may write into one run folder."""
    seen: dict[Path, Evaluation] = {}
    for one in evaluations:
        other = seen.setdefault(one.run.path, one)
        if other is not one:
            raise UserError(
                f"{one.run.path}: would be the run folder of {_described(other)} and of"
                f" {_described(one)}; rename the folder of that checkpoint"
            )


def _described(one: Evaluation) -> str:
    weights = one.weights
    kind = "the checkpoint" if weights.window == 1 else f"merge={weights.window},"
    return f"{kind} {weights.name}" + " (greedy)" * one.greedy


def _names(base: RunConfig, trainings: Sequence[Training]) -> tuple[str, str, str | None]:
    """What the whole is called; `model.name` with {} for a checkpoint's name; the model's family.

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
    above = _above(trainings[0])
    return above, f"{above}-{{}}", above


def _above(training: Training) -> str:
    return training.checkpoints[0].path.resolve().parent.name or "model"


def _weights(
    trainings: Sequence[Training], sizes: Sequence[int], merged: Path, family: str | None
) -> list[Weights]:
    """Every model: the single checkpoints of all trainings, then the windows of each size."""
    found = []
    for size, training in itertools.product((1, *sizes), trainings):
        steps = training.steps[size - 1 :]
        windows = folders.windows(training.checkpoints, size)
        for step, window in zip(steps, windows, strict=True):
            sources = tuple(one.path.resolve() for one in window)
            name = window[-1].name if size == 1 else f"{window[-1].name}-merge{size}"
            own = f"{training.name}-{name}" if training.name else name
            path = (merged / (family or training.name) / own).resolve()
            found.append(
                Weights(training.name, size, step, own, sources[-1] if size == 1 else path, sources)
            )
    return found


def _evaluation(
    weights: Weights, base: RunConfig, settings: list[str], pattern: str, greedy: bool
) -> Evaluation:
    name = pattern.replace("{}", weights.name)
    tag = base.tag
    own = [
        f"model.id={_quoted(str(weights.path))}",
        f"model.checkpoint={_quoted(weights.name)}",
        f"model.name={_quoted(name)}",
        STAGES,
    ]
    sampling = base.sampling
    if greedy:
        tag = f"{tag}-greedy" if tag else "greedy"
        own += [*_GREEDY, "sampling.seed=null", f"tag={_quoted(tag)}"]
        sampling = replace(sampling, temperature=0.0, top_p=1.0, trials=1, seed=None)
    folder = Path(base.run_dir).parent / (f"{name}-{tag}" if tag else name)
    model = replace(base.model, id=str(weights.path), checkpoint=weights.name, name=name)
    cfg = replace(base, model=model, sampling=sampling, tag=tag, run_dir=str(folder))
    return Evaluation(weights, greedy, Run(cfg), [*settings, *own])


def _quoted(text: str) -> str:
    r"""A text as Hydra takes it, whatever is in it; plain where nothing in it could be more.

    >>> print(_quoted("it's"), _quoted("models/step-10"), _quoted("10"), _quoted("nan"))
    'it\'s' models/step-10 '10' 'nan'
    """
    if re.fullmatch(r"/?[A-Za-z_][A-Za-z0-9_./-]*", text) and text.lower() not in _WORDS:
        return text
    return "'" + re.sub(r"(\\*)'", r"\1\1\'", text) + "'"
