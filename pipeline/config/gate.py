"""The settings of a gate: what a new model must show on each data set before it goes out."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import yaml  # type: ignore[import-untyped]
from pydantic import Field

from bayes_at_n.pipeline.base.errors import UserError, one_line
from bayes_at_n.pipeline.config.analysis import AnalysisConfig
from bayes_at_n.pipeline.config.checks import Named, Points, Positive, validated
from bayes_at_n.pipeline.config.resources import BudgetConfig


@dataclass
class GateConfig:
    """The policy that the second model is held to, and whether sampling goes on to decide it."""

    # A YAML file of what the second model must show: datasets: {aime25: {no_worse: 1}}.
    policy: Named | None = None
    settle: bool = False  # sample until the policy is decided or the budget is spent

    def problems(self) -> Iterator[str]:
        if self.settle and self.policy is None:
            yield "settle=true without gate=FILE: name the policy that is to be decided"


@dataclass
class CompareConfig(AnalysisConfig):
    """What is compared, and the gate that the second model must pass."""

    gate: GateConfig = field(default_factory=GateConfig)
    budget: BudgetConfig = field(default_factory=BudgetConfig)  # of settle=true, for all runs

    def problems(self) -> Iterator[str]:
        if self.budget.given and not self.gate.settle:
            yield "budget: of settle=true only; comparing samples nothing"


@dataclass
class Requirement:
    """What NEW must show on one data set, in points of accuracy: one of the two."""

    no_worse: Points | None = None  # NEW - BASE is above minus so many
    better: Annotated[float, Field(ge=0, lt=100)] | None = None  # it is above so many

    def problems(self) -> Iterator[str]:
        if (self.no_worse is None) == (self.better is None):
            yield "no_worse: write this or `better`, one of the two, in points"

    @property
    def bound(self) -> float:
        """What NEW - BASE must exceed, as a share."""
        return ((self.better or 0.0) - (self.no_worse or 0.0)) / 100


@dataclass
class Policy:
    """Requirements by data set, and how surely all of them together are decided."""

    datasets: dict[str, Any]  # of `Requirement`
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
    trials: Positive = 80  # of a question and model, the most that settle=true samples


def load(path: str) -> Policy:
    """Read a policy.

    Raises UserError: one line with the file, the key and what it must be.
    """
    key = ""
    try:
        values = yaml.safe_load(Path(path).expanduser().read_text(encoding="utf-8"))
        if not isinstance(values, dict) or not isinstance(values.get("datasets"), dict):
            raise UserError("datasets: write datasets: {NAME: {no_worse: 1}}")
        policy = validated(Policy, {str(name): of for name, of in values.items()})
        for name, of in policy.datasets.items():
            key = f"datasets.{name}."
            if not isinstance(of, dict):
                raise UserError(f"{of}: write {{no_worse: POINTS}}")
            policy.datasets[name] = validated(Requirement, {str(k): v for k, v in of.items()})
    except (OSError, ValueError, yaml.YAMLError, UserError) as error:
        raise UserError(f"gate={path}: {key}{one_line(error)}") from error
    return policy
