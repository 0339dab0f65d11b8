"""The settings of verbs about training: `trajectory` and the runs that it makes, `merge`, `prr`."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, Field

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.config.checks import Amount, Named, Natural
from bayes_at_n.pipeline.config.scoring import Metrics, MetricsConfig
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.config.settle import check_own
from bayes_at_n.scoring.metrics import DEFAULT

# What the verb says itself about each of its runs.
_OWN = {
    "run_dir": "there are many runs, in runs/DATASET/MODEL; tag=NAME tells several kinds apart",
    "stages": "every model is prepared, sampled, graded and scored, with signals",
    "model.id": "checkpoints= says where the weights are",
    "model.checkpoint": "checkpoints= says which ones",
}
_LETTERS = r"[A-Za-z0-9][A-Za-z0-9_.-]*"


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

    # avg and bayes are always there.
    metrics: Metrics = field(default_factory=lambda: [*DEFAULT, "pass@16"])
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
    # From the posterior of each side.
    draws: Annotated[int, Field(ge=100, le=1_000_000)] = 4000

    def problems(self) -> Iterator[str]:
        from bayes_at_n.scoring.metrics.table import parse_all

        for metric in parse_all(self.metrics):
            if metric.votes:
                yield f"metrics: {metric.name} takes answers, and prr compares outcomes only"
        for side in ("before", "after"):
            if not getattr(self, side):
                yield f"{side}: names no run; write {side}=PATTERN, such as 'runs/demo/*-base'"


class Settings(NamedTuple):
    """What was asked for."""

    cfg: TrajectoryConfig
    run: list[str]  # settings of every run, without the data sets
    datasets: list[list[str]]  # the settings that choose each data set


def load(arguments: Sequence[str]) -> Settings:
    """Settings from the command line.

    `arguments`: KEY=VALUE; own keys, and any key of `run`, where dataset=a,b is two data sets.
    Raises UserError: an unknown key or a value that cannot work, in one line.

    >>> asked = load(["model=demo", "checkpoints=a,b", "merge=4,8", "dataset=x,y"])
    >>> asked.cfg.checkpoints, asked.cfg.merge.windows, asked.run, asked.datasets
    ({'': ['a', 'b']}, [4, 8], ['model=demo'], [['dataset=x'], ['dataset=y']])
    """
    mine, others = compose.parted(arguments, TrajectoryConfig, RunConfig)
    cfg = compose.load_as(TrajectoryConfig, mine)
    cfg.checkpoints = {"" if name == "_" else name: of for name, of in cfg.checkpoints.items()}
    for name, patterns in cfg.checkpoints.items():
        if not re.fullmatch(f"({_LETTERS})?", name):
            letters = "the name of a training run is letters, digits, - . and _"
            raise UserError(f"checkpoints.{name}: {letters}")
        if not isinstance(patterns, list) or not patterns:
            raise UserError(f"checkpoints{f'.{name}' * bool(name)}: takes folders, FIRST,SECOND")
    if not cfg.checkpoints:
        raise UserError("checkpoints: none named; write checkpoints=FOLDER, which holds them")
    if "" in cfg.checkpoints and len(cfg.checkpoints) > 1:
        raise UserError("checkpoints: give every training run a name, or none to the only one")
    check_own(others, _OWN)
    datasets = [a for a in others if re.match(r"dataset\b", a)]
    combinations = compose.expand([a for a in others if a not in datasets])
    if len(combinations) > 1:
        first, second, *_ = combinations
        [key, *_] = [
            compose.parse(a).key_or_group for a, b in zip(first, second, strict=True) if a != b
        ]
        more = "; several training runs are checkpoints.NAME=FOLDER" * (key == "model")
        raise UserError(f"{key}: takes one value; only dataset= takes several{more}")
    return Settings(cfg, combinations[0], compose.expand(datasets))
