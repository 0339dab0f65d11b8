"""The settings of `settle`: what is to be decided, how surely, and between which runs."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Generic, NamedTuple

from pydantic import Field

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.config.checks import (
    Above0,
    Named,
    Natural,
    Points,
    Positive,
    Trust,
    must,
    one_of,
)
from bayes_at_n.pipeline.config.resources import BudgetConfig
from bayes_at_n.pipeline.config.settings import RunConfig

_FORMS = "best, top:K, order, above:MODEL or width:W, such as top:3, above:qwen3-4b, width:0.02"
_UNTIL = re.compile(r"best|order|top:[1-9]\d*|above:.+|width:0?\.\d*[1-9]\d*", re.DOTALL)
# What the verb says itself about each of its runs.
_OWN = {
    "run_dir": "there are several runs, in runs/DATASET/MODEL; tag=NAME tells several kinds apart",
    "stages": "every model is prepared, sampled and graded; `run` makes the rest",
}


class Until(NamedTuple):
    """What sampling goes on until."""

    kind: str  # best, top, order, above or width
    k: int = 1  # of top
    model: str = ""  # of above: the baseline
    width: float = 0.0  # of width: of each model's interval, as a share


def until(text: str) -> Until:
    """Read a valid `Decision.until`.

    >>> until("top:3"), until("width:0.02").width
    (Until(kind='top', k=3, model='', width=0.0), 0.02)
    """
    kind, _, of = text.partition(":")
    if kind == "top":
        return Until(kind, k=int(of))
    return Until(kind, width=float(of)) if kind == "width" else Until(kind, model=of)


@dataclass
class Decision:
    """What is to be decided, and how surely."""

    until: Annotated[str, must(_FORMS, _UNTIL.fullmatch)] = "best"
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95  # of all that is decided, together
    margin: Points = 1.0  # points of accuracy that make no difference
    # anytime: the error holds however often one looks; looks: planned looks, asymptotic
    method: Annotated[str, one_of("anytime", "looks")] = "anytime"
    # What is independent: every attempt, or only trials, whose attempts may share luck. The second
    # bets on whole rounds: it holds for any such luck, and takes far more of them.
    independent: Annotated[str, one_of("attempts", "trials")] = "attempts"
    block: Positive | None = None  # trials between looks; default: after 3, 6, 10, 15...; replay 1
    seed: Natural = 0  # of permutations and simulations

    def problems(self) -> Iterator[str]:
        if self.independent == "trials" and self.method != "anytime":
            yield f"method={self.method}: independent=trials is of method=anytime"


@dataclass
class Assumed:
    """What a forecast goes by where no run tells it."""

    # Of each model in their order, as shares. How they spread over questions is assumed, too.
    accuracies: list[Annotated[float, Field(ge=0, le=1)]] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)  # graded runs of models of the same names
    tokens: list[Above0] = field(default_factory=list)  # of an attempt, mean: one, or one a model
    speed: list[Above0] = field(default_factory=list)  # tokens a second on one GPU: as tokens
    price: Above0 | None = None  # of a million sampled tokens

    def problems(self) -> Iterator[str]:
        if self.accuracies and self.folders:
            yield f"accuracies={self.accuracies}: not with folders of runs, which have their own"


@dataclass
class SettleConfig(Decision):
    """What is to be decided, and when sampling stops.

    Without `out` results and the table of looks go to runs/DATASET/_settle/UNTIL; of several data
    sets to runs/_settle/UNTIL.
    """

    folders: list[str] = field(default_factory=list)  # a folder of `settle`, to go on with
    replay: list[str] = field(default_factory=list)  # folders of complete runs, as if sampled now
    permutations: Annotated[int, Field(ge=0, le=10**6)] = 0  # of a replay: orders of trials to try
    assume: Assumed = field(default_factory=Assumed)  # of --dry-run
    out: Named | None = None
    trust: Trust = "false"  # use what a folder of `settle` says

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.permutations and not self.replay:
            yield f"permutations={self.permutations}: of replay=FOLDER only"
        if len(self.folders) > 1 or (self.replay and self.folders):
            yield f"{' '.join(self.folders)}: name one folder that `settle` made, or replay=FOLDER"


@dataclass
class PlanConfig(Decision, Assumed):
    """What to expect of a `settle`, from graded runs or from assumptions, within one budget."""

    questions: Positive = 30  # of assumed accuracies
    trials: Positive = 80  # of a question, the most
    budget: BudgetConfig = field(default_factory=BudgetConfig)

    def problems(self) -> Iterator[str]:
        yield from Decision.problems(self)
        yield from Assumed.problems(self)
        if not self.accuracies and not self.folders:
            yield "accuracies=[]: name folders of graded runs, or write accuracies=[0.6,0.5]"
        if self.budget.until or len(self.budget.given) > 1:
            yield "budget: a plan has one, of gpu_hours, tokens or money"


class Asked(NamedTuple, Generic[compose.Config]):
    """What a verb that makes many runs is asked for."""

    cfg: compose.Config  # its own settings
    models: list[list[str]]  # the settings that choose each model, and all others of its runs
    datasets: list[list[str]]  # the settings that choose each data set
    arguments: list[str]  # as given


def of_key(key: str, settings: Sequence[str]) -> list[str]:
    """Return the settings that a key is given by, as until= and stages=."""
    return [setting for setting in settings if setting.startswith(f"{key}=")]


def load(arguments: Sequence[str]) -> Asked[SettleConfig]:
    """Read own keys, and keys of `run`: model=a,b are two models, dataset=x,y two data sets.

    Raises UserError: an unknown key or a value that cannot work.

    >>> load(["model=a,b", "dataset=x,y", "until=order"])[1:3]
    ([['model=a'], ['model=b']], [['dataset=x'], ['dataset=y']])
    """
    asked = of_runs(arguments, SettleConfig, _OWN)
    others = [*asked.models[0], *asked.datasets[0]]
    if others and (asked.cfg.replay or asked.cfg.folders):
        raise UserError(f"{' '.join(others)}: not with folders, whose runs are there")
    return asked


def of_runs(
    arguments: Sequence[str], kind: type[compose.Config], own: Mapping[str, str]
) -> Asked[compose.Config]:
    """Part the settings of a verb from those of the runs that it makes.

    `own`: settings of runs that the verb says itself, and why; but a `run_dir` may tell runs apart.
    Raises UserError.
    """
    mine, others = compose.parted(arguments, kind, RunConfig)
    for setting in others:
        key = compose.parse(setting).key_or_group
        if (why := own.get(key)) and not (key == "run_dir" and "${model.name}" in setting):
            raise UserError(f"{setting}: leave it out; {why}")
    datasets = [setting for setting in others if re.match(r"dataset\b", setting)]
    models = [setting for setting in others if setting not in datasets]
    many = compose.expand(models), compose.expand(datasets)
    return Asked(compose.load_as(kind, mine), *many, list(arguments))
