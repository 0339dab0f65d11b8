"""The settings of verbs about training: `trajectory` and the runs that it makes, `merge`, `prr`."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import AfterValidator, Field

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.checks import Amount, Named, Natural
from bayes_at_n.pipeline.config.scoring import Metrics, MetricsConfig
from bayes_at_n.pipeline.config.settle import Asked, of_runs
from bayes_at_n.scoring.metrics import DEFAULT

# What the verb says itself about each of its runs.
_OWN = {
    "run_dir": "there are many runs, in runs/DATASET/MODEL; tag=NAME tells several kinds apart",
    "stages": "every model is prepared, sampled, graded and scored, with signals",
    "model.id": "checkpoints= says where the weights are",
    "model.checkpoint": "checkpoints= says which ones",
}
_LETTERS = r"_|[A-Za-z0-9][A-Za-z0-9_.-]*"
Windows = Annotated[list[Annotated[int, Field(ge=2)]], AfterValidator(lambda v: sorted({*v}))]
Draws = Annotated[int, Field(ge=2, le=1_000_000)]


@dataclass
class MergeSettings:
    """Which windows of checkpoints are merged."""

    windows: Windows = field(default_factory=lambda: [4])  # checkpoints in one; []: none
    keep: bool = True  # merged weights after their runs are complete; false: delete them


@dataclass
class PriceSettings:
    """Prices per million tokens, in any currency; defaults: the paper's Table 6."""

    cache_miss: Amount = 1.25  # of a prompt the first time
    cache_hit: Amount = 0.125  # of the same prompt again
    output: Amount = 10.0


@dataclass
class ResearchConfig(MetricsConfig):
    """What `trajectory` and `prr` share: metrics, the seed of their draws, prices, a folder."""

    metrics: Metrics = field(default_factory=lambda: [*DEFAULT, "pass@16"])  # and avg, bayes
    seed: Natural = 0
    prices: PriceSettings = field(default_factory=PriceSettings)
    out: Named | None = None


@dataclass
class TrajectoryConfig(ResearchConfig):
    """Which checkpoints are evaluated, and how their curves are judged.

    Without `out` results go to runs/DATASET/_trajectory/MODEL[-TAG]; of several data sets to
    runs/_trajectory/...
    """

    # Folders, folders of folders, or globs, by training run; "" where there is one of no name.
    checkpoints: dict[str, list[str]] = field(default_factory=dict)
    merge: MergeSettings = field(default_factory=MergeSettings)
    greedy: bool = True  # a greedy attempt of every question, too
    replicates: Draws = 2000  # bootstrap over trials

    def problems(self) -> Iterator[str]:
        for name, folders in self.checkpoints.items():
            if not re.fullmatch(_LETTERS, name):
                yield f"checkpoints.{name}: a training run's name is letters, digits, - . and _"
            if not folders:
                yield f"checkpoints{f'.{name}' * (name != '_')}: takes folders, FIRST,SECOND"
        if not self.checkpoints:
            yield "checkpoints: none named; write checkpoints=FOLDER, which holds them"
        if "_" in self.checkpoints and len(self.checkpoints) > 1:
            yield "checkpoints: give every training run a name, or none to the only one"


@dataclass
class MergeConfig:
    """Which checkpoints to average, and where the mean goes."""

    checkpoints: list[str] = field(default_factory=list)  # folders, folders of them, or globs
    last: Annotated[int, Field(ge=2)] | None = None  # the mean of the last so many, not of all
    out: str = ""  # the folder to make; must not exist

    def problems(self) -> Iterator[str]:
        if not self.checkpoints:
            yield "checkpoints: name what to average: checkpoints=[a,b,c], or a folder of them"
        if not self.out.strip():
            yield "out: name the folder to make, such as out=mean"


@dataclass
class ReversalConfig(ResearchConfig):
    """Which runs are compared, and how their reversals are judged.

    Without `out` results go to _prr beside the first run, as in runs/DATASET/_prr.
    """

    before: list[str] = field(default_factory=list)  # run folders, or globs of them
    after: list[str] = field(default_factory=list)  # of the same models, in the same order
    draws: Annotated[int, Field(ge=100, le=1_000_000)] = 4000  # from the posterior of each side

    def problems(self) -> Iterator[str]:
        from bayes_at_n.scoring.metrics.table import parse_all

        for metric in parse_all(self.metrics):
            if metric.votes:
                yield f"metrics: {metric.name} takes answers, and prr compares outcomes only"
        for side in ("before", "after"):
            if not getattr(self, side):
                yield f"{side}: names no run; write {side}=PATTERN, such as 'runs/demo/*-base'"


def load(arguments: Sequence[str]) -> Asked[TrajectoryConfig]:
    """Read own keys, and keys of `run`, where dataset=a,b is two data sets.

    Raises UserError: an unknown key or a value that cannot work, in one line.

    >>> asked = load(["model=demo", "checkpoints=a,b", "merge=4,8", "dataset=x,y"])
    >>> asked.cfg.checkpoints, asked.cfg.merge.windows, asked.models, asked.datasets
    ({'': ['a', 'b']}, [4, 8], [['model=demo']], [['dataset=x'], ['dataset=y']])
    """
    asked = of_runs(arguments, TrajectoryConfig, _OWN)
    named = {"" if name == "_" else name: of for name, of in asked.cfg.checkpoints.items()}
    asked.cfg.checkpoints = named
    if len(asked.models) > 1:
        key = next(a for a, b in zip(*asked.models[:2], strict=True) if a != b).partition("=")[0]
        more = "; several training runs are checkpoints.NAME=FOLDER" * (key == "model")
        raise UserError(f"{key}: takes one value; only dataset= takes several{more}")
    return asked
