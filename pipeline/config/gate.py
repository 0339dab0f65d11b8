"""The settings of a gate: what a new model must achieve on each dataset to be released."""

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
    """The policy for the second model, and whether to sample until it is decided."""

    # YAML file with what the second model must achieve: datasets: {aime25: {no_worse: 1}}
    policy: Named | None = None
    settle: bool = False  # sample until the policy is decided or the budget is spent

    def problems(self) -> Iterator[str]:
        if self.settle and self.policy is None:
            yield "settle=true: needs gate=FILE, the policy to decide"


@dataclass
class CompareConfig(AnalysisConfig):
    """The models to compare, and the gate that the second one must pass."""

    gate: GateConfig = field(default_factory=GateConfig)
    budget: BudgetConfig = field(default_factory=BudgetConfig)  # for settle=true, over all runs

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.budget.given and not self.gate.settle:
            yield "budget: needs settle=true; without it nothing is sampled"


@dataclass
class Requirement:
    """A requirement on NEW for one dataset, in points of accuracy: one of the two."""

    no_worse: Points | None = None  # NEW - BASE is above minus this
    better: Annotated[float, Field(ge=0, lt=100)] | None = None  # NEW - BASE is above this

    def problems(self) -> Iterator[str]:
        if (self.no_worse is None) == (self.better is None):
            yield "no_worse: set either this or `better`, in points"

    @property
    def bound(self) -> float:
        """The bound that NEW - BASE must exceed, as a share."""
        return ((self.better or 0.0) - (self.no_worse or 0.0)) / 100


@dataclass
class Policy:
    """Requirements by dataset, with the confidence of all of them together."""

    datasets: dict[str, Any]  # `Requirement` by dataset
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
    trials: Positive = 80  # limit per question and model with settle=true


def load(path: str) -> Policy:
    """Read a policy.

    Raises UserError: one line with the file, the key and what it must be.
    """
    if not Path(path).expanduser().is_file():
        raise UserError(f"gate={path}: no such file; docs/compare.md shows a policy")
    key = ""
    try:
        values = yaml.safe_load(Path(path).expanduser().read_text(encoding="utf-8"))
        named = values.get("datasets") if isinstance(values, dict) else None
        if not isinstance(named, dict) or not named:
            raise UserError("datasets: write datasets: {NAME: {no_worse: 1}}")
        policy = validated(Policy, {str(name): value for name, value in values.items()})
        for name, value in policy.datasets.items():
            key = f"datasets.{name}"
            if not isinstance(value, dict):
                raise UserError(f"={value}: write {{no_worse: POINTS}} or {{better: POINTS}}")
            key += "."
            policy.datasets[name] = validated(Requirement, {str(k): v for k, v in value.items()})
    except (OSError, ValueError, yaml.YAMLError, UserError) as error:
        raise UserError(f"gate={path}: {key}{one_line(error)}") from error
    return policy
