"""How outcomes become scores: metrics, priors, rubrics and their thresholds."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, Field

from bayes_at_n.pipeline.config.checks import Level, Named, Points, Positive, must, one_of
from bayes_at_n.scoring.metrics import DEFAULT, OWN
from bayes_at_n.scoring.ranking import Method, Rule


def _metrics(names: list[str]) -> list[str]:
    if not {*names} <= {*DEFAULT}:
        from bayes_at_n.scoring.metrics.table import parse_all  # SciPy

        parse_all(names)
    return names


def own_metrics(names: list[str]) -> list[str]:
    """Return the files of the user's own metrics, FILE.py:function, among `names`."""
    return [own[1] for name in names if (own := re.fullmatch(OWN, name.strip()))]


Metrics = Annotated[list[str], AfterValidator(_metrics)]
_CAPS = re.compile("auto|(0*[1-9][0-9]{0,8},)*0*[1-9][0-9]{0,8}|")
Caps = Annotated[list[str], must("numbers, or auto", lambda v: _CAPS.fullmatch(",".join(v)))]


@dataclass
class MetricsConfig:
    """Metrics and intervals of all score tables."""

    confidence: Level = 0.95  # level of two-sided intervals
    # names such as bayes, avg, pass@8, g-pass@8:0.5, or FILE.py:function
    metrics: Metrics = field(default_factory=lambda: [*DEFAULT])


@dataclass
class CapsConfig(MetricsConfig):
    """The headline, and scores of the same attempts under smaller limits of tokens."""

    # prior of Bayes@N: estimated from each run's questions, or uniform, as in the paper
    prior: Annotated[str, one_of("estimated", "uniform")] = "estimated"
    # score under these token limits, too: 2048,4096; auto: powers of 2
    caps: Caps = field(default_factory=list)


@dataclass
class ScoringConfig(CapsConfig):
    """What the score table of a run shows."""

    # estimate the score at this larger max_tokens, from the lengths of the attempts
    forecast: Annotated[int, Field(ge=1, lt=10**9)] | None = None


@dataclass
class ComparisonConfig(CapsConfig):
    """How models are scored, when two of them are alike, and when the paper's rules tie them."""

    margin: Points = 1.0  # models within so many points of accuracy count as equal
    # threshold of `rule`: adjacent models whose z is below it share a rank
    z: Annotated[float, Field(gt=0, le=8)] = 1.645
    # consecutive_z: adjacent models with a small z tie; overlap: those whose intervals overlap
    rule: Annotated[str, one_of(*get_args(Rule))] = "consecutive_z"
    # how ties are numbered; dense: 1, 2, 2, 3; competition: 1, 2, 2, 4
    method: Annotated[str, one_of(*get_args(Method))] = "dense"


@dataclass
class PriorConfig:
    """Another run, possibly of other questions, whose first trials are the prior R0."""

    run: str | None = None  # run folder, or a folder of runs with one of the same name
    trials: Positive | None = None  # use only this many of its first trials; default: all
    weight: Annotated[float, Field(gt=0, le=10**6)] | None = None  # weight of the prior, in trials

    def problems(self) -> Iterator[str]:
        for key in ("trials", "weight"):
            if self.run is None and (value := getattr(self, key)) is not None:
                yield f"{key}={value:g} needs prior=RUN, the run folder to use"


@dataclass
class RubricConfig:
    """Rubrics, and weights that replace those of their files."""

    # names in configs/rubric, or files; default: all
    names: list[Named] = field(default_factory=list)
    # weights by rubric name: a list with one per category
    weights: dict[str, Any] = field(default_factory=dict)


@dataclass
class ThresholdsConfig:
    """The quantiles that rubrics compare with: computed, or frozen in a file."""

    file: Named | None = None  # a thresholds.json that `categorize` wrote
    # quantiles of each model, or of all runs of the dataset (cohort)
    scope: Annotated[str, one_of("model", "cohort")] = "cohort"
    include_invalid: bool = True  # include invalid attempts in the quantiles
