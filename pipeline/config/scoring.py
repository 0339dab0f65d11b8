"""How outcomes become scores: metrics, priors, rubrics and their thresholds."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, get_args

from bayes_at_n.pipeline.config.checks import AUTO, limited
from bayes_at_n.scoring.metrics.table import DEFAULT, parse_all
from bayes_at_n.scoring.ranking.ranks import Method, Rule


@dataclass
class MetricsConfig:
    """What every table of scores shows."""

    confidence: float = limited(0.95, "(0, 1)")  # of all intervals, two-sided
    metrics: list[str] = limited([*DEFAULT])  # of scoring/metrics/table.py

    def problems(self) -> Iterator[str]:
        try:
            parse_all(self.metrics)
        except ValueError as error:
            yield f"metrics: {error}"


@dataclass
class CapsConfig(MetricsConfig):
    """Scores of the same attempts under smaller limits of tokens."""

    # Which score comes first and orders models; the other stands beside it (docs/scoring.md).
    headline: str = limited("avg", one_of=("avg", "bayes"))
    caps: list[str] = limited([])  # such as 2048,4096; auto: powers of two up to max_tokens

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        bad = [cap for cap in self.caps if not re.fullmatch("0*[1-9][0-9]{0,8}", cap)]
        if bad and self.caps != [AUTO]:
            yield f"caps={','.join(self.caps)}: {bad[0]} is no number of tokens; or write caps=auto"


@dataclass
class ScoringConfig(CapsConfig):
    """What the score table of a run shows."""

    # Of the score at a larger max_tokens than that of the run, from the lengths of its attempts.
    forecast: int | None = limited(None, "[1, 999999999]")
    plots: bool = False  # draw category shares and, with caps, the curve


@dataclass
class ComparisonConfig(CapsConfig):
    """How models are scored, and when two of them share a rank."""

    z: float = limited(1.645, "(0, 8]")  # neighbours below it share a rank; 1.645: one-sided 95 %
    rule: str = limited("consecutive_z", one_of=get_args(Rule))  # overlap: of intervals of z sigma
    method: str = limited("dense", one_of=get_args(Method))  # 1, 2, 2, 3; competition: 1, 2, 2, 4


@dataclass
class PriorConfig:
    """Another run whose first `trials` trials act as the prior R0, of other questions, too."""

    run: str | None = None  # or a folder of runs, of which the one of the same name counts
    trials: int | None = limited(None, "[1, inf)")
    weight: float | None = limited(None, "(0, 1000000]")  # how many trials of a question they count

    def problems(self) -> Iterator[str]:
        for key, value in (("trials", self.trials), ("weight", self.weight)):
            if value is not None and self.run is None:
                yield f"{key}={value:g} without prior=RUN: name the run folder to use"


@dataclass
class RubricConfig:
    """The rubrics that attempts are mapped into, and weights other than those of their files."""

    names: list[str] = limited([], named=True)  # names in configs/rubric or files; none: all
    weights: dict[str, Any] = field(default_factory=dict)  # per name a list, one a category


@dataclass
class ThresholdsConfig:
    """The quantiles that rubrics compare with: of which attempts, or frozen in a file."""

    file: str | None = limited(None, named=True)  # a thresholds.json that `categorize` wrote
    scope: str = limited("cohort", one_of=("model", "cohort"))  # all runs beside; this run alone
    include_invalid: bool = True  # whether invalid attempts enter the quantiles
