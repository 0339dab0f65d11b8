"""Plan the runs of a trajectory: training runs, their windows of checkpoints, an evaluation each.

A window is a few adjacent checkpoints whose mean is one model; a window of one is a checkpoint.

A suite has MaP's fourteen benchmarks with their protocols (Wang et al., 2025, section 3).
Generative ones are sampled, for Pass@k, and decoded greedily. Where a dataset has a column of
options the likeliest letter counts; MMLU and CMMLU are sampled, too, for Table 4. AGIEval is its
seven English parts that have a dataset here, as one list of questions.
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
from bayes_at_n.pipeline.config.multirun import Request, TrajectoryConfig
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.prepare import questions
from bayes_at_n.pipeline.prepare.questions import Question
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.training import checkpoints
from bayes_at_n.pipeline.training.checkpoints import Checkpoint


class Benchmark(NamedTuple):
    """A benchmark of MaP: its datasets here, and the kinds of their runs ("": sampled)."""

    datasets: Sequence[str]
    kinds: Sequence[str]
    trials: int = 16


_PARTS = "aqua-rat logiqa-en lsat-ar lsat-lr lsat-rc math sat-math"
_SAMPLED, _GREEDY, _CHOICE = ("", "greedy"), ("greedy",), ("likelihood",)
BENCHMARKS = {
    "AGIEval": Benchmark([f"agieval-{part}" for part in _PARTS.split()], _GREEDY),
    "RACE": Benchmark(["race"], _CHOICE),
    "SQuAD2.0": Benchmark(["squad2"], _GREEDY),
    "MMLU": Benchmark(["mmlu"], ("", "likelihood"), 4),
    "CMMLU": Benchmark(["cmmlu"], ("", "likelihood"), 4),
    "CEval": Benchmark(["ceval"], _CHOICE),
    "GSM8K": Benchmark(["gsm8k"], _SAMPLED),
    "MATH": Benchmark(["math"], _SAMPLED),
    "GSM-Plus": Benchmark(["gsm-plus"], _GREEDY),
    "CMATH": Benchmark(["cmath"], _GREEDY),
    "HumanEval": Benchmark(["humaneval"], _SAMPLED),
    "MBPP": Benchmark(["mbpp"], _SAMPLED),
    "MBPP-Plus": Benchmark(["mbpp-plus"], _GREEDY),
    "HumanEval-Plus": Benchmark(["humaneval-plus"], _GREEDY),
}
TABLE_1 = ("GSM8K", "MATH", "HumanEval", "MBPP")
TABLE_4 = {
    "Math (Gen)": TABLE_1[:2],
    "Code (Gen)": TABLE_1[2:],
    "Knowledge (MC)": ("MMLU", "CMMLU"),
}


def protocols(settings: Request[TrajectoryConfig]) -> Iterator[tuple[list[str], Sequence[str]]]:
    """Yield the settings of each dataset's runs, and their kinds.

    Raises UserError: a suite, and a dataset beside it.
    """
    [model], cfg = settings.models, settings.cfg
    if not cfg.suite:
        kinds = ("", "greedy")[: 1 + cfg.greedy]
        yield from (([*model, *dataset], kinds) for dataset in settings.datasets)
        return
    if any(settings.datasets):
        raise UserError(f"{settings.datasets[0][0]}: leave it out; suite={cfg.suite} has its own")
    for benchmark in BENCHMARKS.values():
        for name in benchmark.datasets:
            # Typed settings come last, so they replace the suite's.
            first = [f"dataset={name}", f"sampling.trials={benchmark.trials}"]
            yield [*first, *model], benchmark.kinds


def benchmark_of(dataset: str) -> str:
    """Return the benchmark that a dataset belongs to; itself if to none."""
    return next((name for name, of in BENCHMARKS.items() if dataset in of.datasets), dataset)


LEAST = 2  # checkpoints, or windows: one score cannot rise or fall
STAGES = "stages=[prepare,generate,grade,score]"
_PLACEHOLDER = "NAME-OF-A-CHECKPOINT"  # replaced in model.name by a checkpoint's name
_ONCE = [
    "sampling.temperature=0.0",
    "sampling.top_p=1.0",
    "sampling.trials=1",
    "sampling.seed=null",
]
_LIKELIHOOD = ["prompt=letter", "sampling.likelihood=options", "sampling.prompt_logprobs=false"]
# Settings of the runs whose answers are not sampled, by kind, which is also the end of their tag.
_KINDS = {"": [], "greedy": _ONCE, "likelihood": [*_ONCE, *_LIKELIHOOD]}
NAME = re.compile(r"[\w.+-]+")  # of a checkpoint's folder, which becomes that of its run
_EDGES = "-_./ "
_MAX_LABEL = 60  # characters


class Training(NamedTuple):
    """One training run."""

    name: str  # "" if the only one is unnamed
    checkpoints: list[Checkpoint]  # in the order of training
    steps: list[int]  # of each checkpoint


class Window(NamedTuple):
    """One model: a checkpoint, or the mean of several."""

    training: str
    size: int
    step: int  # of the newest checkpoint in it
    name: str  # of the newest checkpoint, followed by "-merge4" for a window of four
    path: Path
    sources: tuple[Path, ...]  # oldest first; of a single checkpoint itself


@dataclass(frozen=True)
class Evaluation:
    """One run: a model on a dataset."""

    window: Window
    kind: str  # "": sampled; "greedy", or "likelihood" of options
    run: Run
    settings: list[str]  # arguments of `python -m pipeline run`

    @property
    def dataset(self) -> str:
        return self.run.cfg.dataset.name


@dataclass(frozen=True)
class Series:
    """All runs of a trajectory, and the folder of its results."""

    label: str
    out: Path
    trainings: list[Training]
    datasets: list[str]
    evaluations: list[Evaluation]  # grouped by model

    @functools.cached_property
    def questions(self) -> dict[str, list[Question]]:
        """The questions of each dataset."""
        configs = {e.dataset: e.run.cfg.dataset for e in self.evaluations}
        return {name: questions.load(cfg)[0] for name, cfg in configs.items()}


def plan(settings: Request[TrajectoryConfig], trainings: Sequence[Training] = ()) -> Series:
    """Plan every evaluation that the settings request, without writing or reading weights.

    `trainings`: the checkpoints, if not those that the settings name. Raises UserError: no
    checkpoints, too few for a window, or two with one name; invalid settings of the runs; two
    datasets with one name; two evaluations with one run folder.
    """
    cfg = settings.cfg
    trainings = [*trainings] or find(cfg.checkpoints, cfg.merge.windows)
    placeholder = f"{trainings[0].checkpoints[0].path.parent.resolve()}/{_PLACEHOLDER}"
    probe = [f"model.checkpoint={_PLACEHOLDER}", f"model.id={quoted(placeholder)}", STAGES]
    parts, bases = list[tuple[str, list[str]]](), list[RunConfig]()
    for arguments, kinds in protocols(settings):
        for kind in kinds:
            base = compose.load([*(own := [*arguments, *_KINDS[kind]]), *probe])
            if kind != "greedy" or not base.sampling.likelihood:  # which has nothing to decode
                parts.append((kind, own))
                bases.append(base)
    names = [base.dataset.name for base in bases]
    if judge := next((base.dataset.judge for base in bases if base.dataset.judge), None):
        raise UserError(f"dataset.judge={judge}: trajectory does not verify; remove the setting")
    every = [(name, kind) for name, (kind, _) in zip(names, parts, strict=True)]
    if repeated := [name for name, kind in every if every.count((name, kind)) > 1]:
        raise UserError(f"dataset: two are called {repeated[0]}; rename one with dataset.name=NAME")
    label, pattern, family = _names(bases[0], trainings)
    root = Path(bases[0].run_dir).parent.parent
    evaluations = [
        _evaluation(window, base, arguments, pattern, kind)
        for window in _windows(trainings, cfg.merge.windows, root / "_merged", family)
        for base, (kind, arguments) in zip(bases, parts, strict=True)
    ]
    models: dict[Path, Path] = {}  # by run folder
    for evaluation in evaluations:
        path, model = evaluation.run.path, evaluation.window.path
        if models.setdefault(path, model) != model:
            raise UserError(
                f"{path}: would be the run folder of {models[path]} and of {model}; rename one of"
                " the checkpoint folders"
            )
    datasets = list(dict.fromkeys(names))
    parent = root if len(datasets) > 1 else Path(bases[0].run_dir).parent
    folder = f"{label}-{bases[0].tag}" if bases[0].tag else label
    out = Path(cfg.out or parent / "_trajectory" / folder).expanduser()
    return Series(label, out, trainings, datasets, evaluations)


def find(patterns: Mapping[str, Sequence[str]], sizes: Sequence[int]) -> list[Training]:
    """Find the checkpoints of training runs, in the order in which the settings name these.

    `patterns` are folders or globs of checkpoints by training run; `sizes` are those of the merged
    windows. Raises UserError: no checkpoint, too few for a window, or two with one name.
    """
    trainings = []
    for name, globs in patterns.items():
        key, found = f"checkpoints.{name}" if name else "checkpoints", checkpoints.find(globs)
        _check(key, found, sizes)
        trainings.append(Training(name, found, _steps(key, found)))
    if all(training.steps for training in trainings):
        return trainings
    return [t._replace(steps=[*range(1, len(t.checkpoints) + 1)]) for t in trainings]


def _check(key: str, checkpoints: Sequence[Checkpoint], sizes: Sequence[int]) -> None:
    paths: dict[str, Path] = {}
    for path, name, _ in checkpoints:
        if paths.setdefault(name, path) != path:
            raise UserError(
                f"{key}: {paths[name]} and {path} are both called {name}; name training runs that"
                " share names with checkpoints.NAME=FOLDER"
            )
        if not NAME.fullmatch(name):
            raise UserError(
                f"{path}: the folder's name becomes that of its run; rename it to letters, digits,"
                " - . + and _"
            )
    largest = max((1, *sizes))
    if len(checkpoints) < largest - 1 + LEAST:
        raise UserError(
            f"merge={largest}: {key} has {len(checkpoints)} checkpoints, too few for {LEAST} such"
            " windows, and a single window has no order; merge=[] merges none"
        )


def _steps(key: str, checkpoints: Sequence[Checkpoint]) -> list[int]:
    """Return the steps in the folders' names; none, with a warning, if they do not increase."""
    steps = [checkpoint.step for checkpoint in checkpoints if checkpoint.step is not None]
    if len(steps) == len(checkpoints) and all(a < b for a, b in itertools.pairwise(steps)):
        return steps
    warn(
        f"{key}: the numbers at the ends of the names are not those of increasing steps; they are"
        f" numbered 1 to {len(checkpoints)} in the order given"
    )
    return []


def _names(base: RunConfig, trainings: Sequence[Training]) -> tuple[str, str, str | None]:
    """Return the trajectory's label, `model.name` with {} for a checkpoint's name, and the family.

    A model name that is only the checkpoint's has no family, so training run or parent folder names
    the model: many training runs have a "checkpoint-500".
    """
    name = base.model.name
    if _PLACEHOLDER not in name:
        return name, f"{name}-{{}}", name
    if family := name.replace(_PLACEHOLDER, "").strip(_EDGES):
        return family, name.replace(_PLACEHOLDER, "{}"), family
    if trainings[0].name:
        return "-".join(training.name for training in trainings)[:_MAX_LABEL], "{}", None
    parent = trainings[0].checkpoints[0].path.resolve().parent.name or "model"
    return parent, f"{parent}-{{}}", parent


def _windows(
    trainings: Sequence[Training], sizes: Sequence[int], merged: Path, family: str | None
) -> Iterator[Window]:
    """Yield every model: the checkpoints of all training runs, then the windows of each size."""
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
    window: Window, base: RunConfig, settings: list[str], pattern: str, kind: str
) -> Evaluation:
    name = pattern.replace("{}", window.name)
    tag = f"{base.tag}-{kind}" if base.tag and kind else base.tag or kind or None
    overrides = [
        f"model.id={quoted(str(window.path))}",
        f"model.checkpoint={quoted(window.name)}",
        f"model.name={quoted(name)}",
        *[f"tag={quoted(tag or '')}"] * bool(kind),
        STAGES,
    ]
    folder = Path(base.run_dir).parent / (f"{name}-{tag}" if tag else name)
    model = replace(base.model, id=str(window.path), checkpoint=window.name, name=name)
    cfg = replace(base, model=model, tag=tag, run_dir=str(folder))
    return Evaluation(window, kind, Run(cfg), [*settings, *overrides])
