"""Rubrics: every attempt becomes one of C + 1 categories, so that a matrix of them can be scored.

A rubric is a list of categories with a condition each. Which category an attempt gets is a total
and exclusive function:

1. The categories that `order` names are tried first, one after the other; the first whose condition
   holds takes the attempt. This is how an overlap is declared.
2. All other categories are tried together, on what is left. Exactly one condition must hold: two
   are an overlap that nobody declared, none is a hole. Either is an error with an example.

The index of a category, by which its weight is found, has nothing to do with that order.

Source: arXiv 2510.04265, appendix D and Table 5 for the categories.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from bayes_at_n.pipeline.rubrics.conditions import Condition, compile_condition
from bayes_at_n.pipeline.rubrics.variables import SIGNALS, THRESHOLDS, VARIABLES
from bayes_at_n.scoring.numerics.inputs import LARGEST_WEIGHT

Categories = npt.NDArray[np.int8]

MOST_CATEGORIES = 100
_STRICT = ConfigDict(extra="forbid", strict=True, frozen=True, arbitrary_types_allowed=True)


def _line(value: str) -> str:
    line = " ".join(value.split())
    if not line.isprintable():
        raise ValueError("must be text that can be printed")
    return line


def _condition(value: Any) -> Condition:
    if not isinstance(value, str):
        raise ValueError("must be text")
    return compile_condition(value, VARIABLES, (*SIGNALS, *THRESHOLDS))


Line = Annotated[str, AfterValidator(_line)]
Name = Annotated[Line, Field(min_length=1)]
When = Annotated[Condition, BeforeValidator(_condition), PlainSerializer(lambda c: c.text)]
Weight = Annotated[float, Field(ge=-LARGEST_WEIGHT, le=LARGEST_WEIGHT, allow_inf_nan=False)]


class Category(BaseModel):
    """One category of a rubric: its index 0..C, its condition and its weight."""

    model_config = _STRICT
    index: int
    name: Name
    when: When
    weight: Weight


class Rubric(BaseModel):
    """A checked rubric; `categories` in the order of their index, `order` as names."""

    model_config = _STRICT
    name: Name
    description: Line = ""
    order: list[str] = Field(default_factory=list)
    categories: list[Category] = Field(min_length=2, max_length=MOST_CATEGORIES)

    @field_validator("categories")
    @classmethod
    def _sorted(cls, categories: list[Category], others: ValidationInfo) -> list[Category]:
        categories = sorted(categories, key=lambda category: category.index)
        names, order = [c.name for c in categories], others.data.get("order", [])
        if [c.index for c in categories] != list(range(len(names))):
            raise ValueError(f"index must be 0 to {len(names) - 1}, each once")
        if unknown := {*order} - {*names}:
            raise ValueError(f"`order` names {min(unknown)}, which is none of {', '.join(names)}")
        for listed in (names, order):
            if len({*listed}) < len(listed):
                raise ValueError(f"a name is there twice in {', '.join(listed)}")
        return categories

    @property
    def weights(self) -> list[float]:
        """One weight a category, in the order of their index."""
        return [category.weight for category in self.categories]

    @property
    def names(self) -> frozenset[str]:
        """The names that the conditions need."""
        return frozenset[str]().union(*(category.when.names for category in self.categories))


class Unsound(ValueError):
    """An attempt that has no category, or several; `example` is its position."""

    def __init__(self, message: str, example: int) -> None:
        super().__init__(message)
        self.example = example


def parse(definition: Any) -> Rubric:
    """Check a rubric as it comes from YAML or JSON.

    Conditions may name the signals, thresholds and variables of `variables.py`. Raises ValueError:
    naming the first key that is wrong, and why.
    """
    try:
        return Rubric.model_validate(definition)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)[0]
    key = ".".join(map(str, found["loc"])) or "the rubric"
    why = found["msg"].removeprefix("Value error, ").replace("Input should", "must")
    raise ValueError(f"{key}: {why}")


def with_weights(rubric: Rubric, weights: Any) -> Rubric:
    """Return the same rubric with other weights, one a category in the order of the index.

    Raises ValueError: not one finite number a category.
    """
    if not isinstance(weights, list) or len(weights) != len(rubric.categories):
        names = ", ".join(category.name for category in rubric.categories)
        raise ValueError(f"must be {len(rubric.categories)} numbers, one for each of {names}")
    definition = rubric.model_dump()
    for row, weight in zip(definition["categories"], weights, strict=True):
        row["weight"] = weight
    return parse(definition)


def assign(rubric: Rubric, values: Mapping[str, Any]) -> Categories:
    """Return the category of every attempt: indices 0..C, int8, shape (n,).

    `values` is what its conditions name: arrays of shape (n,), or numbers. Raises Unsound: an
    attempt with no category, or with several that `order` does not settle.
    """
    (n,) = np.broadcast_shapes(*map(np.shape, values.values()))
    holds = np.array([np.broadcast_to(c.when.evaluate(values), n) for c in rubric.categories])
    rest = {category.name: category.index for category in rubric.categories}
    first = [rest.pop(name) for name in rubric.order]
    categories = np.full(n, -1, np.int8)
    for i in first:
        categories[holds[i] & (categories < 0)] = i
    left = categories < 0
    bad = left & (holds[list(rest.values())].sum(axis=0) != 1)
    for i in rest.values():
        categories[holds[i] & left] = i
    if not bad.any():
        return categories
    example = int(np.argmax(bad))
    names = " and ".join(name for name, i in rest.items() if holds[i, example]) or "none"
    asked = (name for name in sorted(rubric.names) if np.shape(values[name]))
    facts = ", ".join(f"{name} {values[name][example]}" for name in asked)
    raise Unsound(
        f"{bad.sum()} attempts do not have exactly one category after `order`;"
        f" the first has {names} ({facts})",
        example,
    )
