"""The settings of the verbs about training: `trajectory`, `merge` and `prr`."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import AfterValidator, Field

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.checks import Above0, Amount, Folder, Named, Natural, one_of
from bayes_at_n.pipeline.config.scoring import Metrics, MetricsConfig
from bayes_at_n.pipeline.config.settle import Request, of_runs
from bayes_at_n.scoring.metrics import DEFAULT

# Settings that `trajectory` sets for each of its runs, and why.
_OWN = {
    "run_dir": "the runs go to runs/DATASET/MODEL; tag=NAME distinguishes protocols",
    "stages": "every model is prepared, sampled, graded and scored",
    "model.id": "checkpoints= names the folders of the weights",
    "model.checkpoint": "checkpoints= names them",
}
_LETTERS = r"_|[A-Za-z0-9][A-Za-z0-9_.-]*"
Windows = Annotated[list[Annotated[int, Field(ge=2)]], AfterValidator(lambda v: sorted({*v}))]
Draws = Annotated[int, Field(ge=2, le=1_000_000)]


@dataclass
class MergeSettings:
    """Which windows of checkpoints to merge."""

    windows: Windows = field(default_factory=lambda: [4])  # checkpoints per window; []: none
    keep: bool = True  # keep merged weights when their runs are complete


@dataclass
class PriceSettings:
    """Prices per million tokens in any currency; defaults: the paper's Table 6."""

    cache_miss: Amount = 1.25  # price per million uncached prompt tokens
    cache_hit: Amount = 0.125  # price per million cached prompt tokens
    output: Amount = 10.0  # price per million completion tokens


@dataclass
class ResearchConfig(MetricsConfig):
    """Settings that `trajectory` and `prr` share."""

    # metrics in addition to avg and bayes
    metrics: Metrics = field(default_factory=lambda: [*DEFAULT, "pass@16"])
    seed: Natural = 0  # seed of all draws
    prices: PriceSettings = field(default_factory=PriceSettings)
    out: Folder | None = None  # folder of results

    def problems(self) -> Iterator[str]:
        from bayes_at_n.scoring.metrics.table import parse_all

        for metric in parse_all(self.metrics):
            if metric.votes:
                yield f"metrics: {metric.name} needs answers, and this verb compares outcomes only"


@dataclass
class WatchSettings:
    """Evaluate checkpoints of a training that still runs, as they appear."""

    folder: Named | None = None  # folder in which they appear
    every: Above0 = 30.0  # seconds between looks; a checkpoint is complete if two looks are alike
    last: Natural | None = None  # stop after the checkpoint of this step; default: at the budget


@dataclass
class TrajectoryConfig(ResearchConfig):
    """Which checkpoints to evaluate, and how to measure their curves.

    Without `out` results go to runs/DATASET/_trajectory/MODEL[-TAG]; with several datasets, to
    runs/_trajectory/...
    """

    # folders, folders of folders, or globs; by training run if there are several
    checkpoints: dict[str, list[str]] = field(default_factory=dict)
    merge: MergeSettings = field(default_factory=MergeSettings)
    watch: WatchSettings = field(default_factory=WatchSettings)
    # map: MaP's fourteen benchmarks with its protocols, and merge=4,5 by default
    suite: Annotated[str, one_of("", "map")] = ""
    greedy: bool = True  # also sample a greedy attempt of every question
    replicates: Draws = 2000  # bootstrap draws of trials

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        for name, folders in self.checkpoints.items():
            if not re.fullmatch(_LETTERS, name):
                yield f"checkpoints.{name}: a name has letters, digits, - . and _ only"
            if not folders:
                yield f"checkpoints{f'.{name}' * (name != '_')}: needs folders, FIRST,SECOND"
        if not (self.checkpoints or self.watch.folder):
            yield "checkpoints: missing; write checkpoints=FOLDER, which holds them"
        if self.checkpoints and self.watch.folder:
            yield "checkpoints: leave it out; watch=FOLDER names them"
        if "_" in self.checkpoints and len(self.checkpoints) > 1:
            yield "checkpoints: each of several training runs needs a name"


@dataclass
class MergeConfig:
    """Which checkpoints to average, and where the result goes."""

    checkpoints: list[str] = field(default_factory=list)  # folders, folders of them, or globs
    last: Annotated[int, Field(ge=2)] | None = None  # average this many of the last; default: all
    out: str = ""  # folder to create; must not exist

    def problems(self) -> Iterator[str]:
        if not self.checkpoints:
            yield "checkpoints: missing; write checkpoints=[a,b,c], or a folder of them"
        if not self.out.strip():
            yield "out: missing; name the folder to create, such as out=mean"


@dataclass
class ReversalConfig(ResearchConfig):
    """Which runs to compare, and how to measure their reversals.

    Without `out` results go to _prr in the folder of the first run, such as runs/DATASET/_prr.
    """

    before: list[str] = field(default_factory=list)  # run folders, or globs of them
    after: list[str] = field(default_factory=list)  # runs of the same models, in the same order
    draws: Annotated[int, Field(ge=100, le=1_000_000)] = 4000  # posterior draws per side

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        for side in ("before", "after"):
            if not getattr(self, side):
                yield f"{side}: missing; write {side}=PATTERN, such as 'runs/demo/*-base'"


def load(arguments: Sequence[str]) -> Request[TrajectoryConfig]:
    """Read the verb's keys and those of `run`; dataset=a,b are two datasets.

    >>> request = load(["model=demo", "checkpoints=a,b", "merge=4,8", "dataset=x,y"])
    >>> request.cfg.checkpoints, request.cfg.merge.windows, request.models, request.datasets
    ({'': ['a', 'b']}, [4, 8], [['model=demo']], [['dataset=x'], ['dataset=y']])
    """
    request = of_runs(arguments, TrajectoryConfig, _OWN)
    if request.cfg.suite and not any(a.startswith(("merge=", "merge.windows=")) for a in arguments):
        request.cfg.merge.windows = [4, 5]  # of MaP's Tables 2 and 1
    checkpoints = request.cfg.checkpoints
    request.cfg.checkpoints = {"" if k == "_" else k: v for k, v in checkpoints.items()}
    if request.cfg.watch.folder:
        request.cfg.checkpoints = {"": [request.cfg.watch.folder]}  # of a dry run
    if len(request.models) > 1:
        key = next(a for a, b in zip(*request.models[:2], strict=True) if a != b).partition("=")[0]
        more = "; several training runs are checkpoints.NAME=FOLDER" * (key == "model")
        raise UserError(f"{key}: takes one value; only dataset= takes several{more}")
    return request
