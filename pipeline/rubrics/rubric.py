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
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from bayes_at_n.pipeline.rubrics.conditions import Condition, compile_condition, is_number
from bayes_at_n.pipeline.rubrics.variables import SIGNALS, THRESHOLDS, VARIABLES
from bayes_at_n.scoring.numerics.inputs import check_weights

Categories = npt.NDArray[np.int8]

MOST_CATEGORIES = 100


@dataclass(frozen=True)
class Category:
    """One category of a rubric: its index 0..C, its condition and its weight."""

    index: int
    name: str
    when: Condition
    weight: float


@dataclass(frozen=True)
class Rubric:
    """A checked rubric; `categories` in the order of their index, `order` as names."""

    name: str
    description: str
    categories: tuple[Category, ...]
    order: tuple[str, ...] = ()

    @property
    def weights(self) -> list[float]:
        """One weight a category, in the order of their index."""
        return [category.weight for category in self.categories]

    @property
    def names(self) -> frozenset[str]:
        """The names that the conditions need."""
        return frozenset[str]().union(*(category.when.names for category in self.categories))

    def definition(self) -> dict[str, Any]:
        """What :func:`parse` makes the rubric of, as JSON has it."""
        return {
            "name": self.name,
            "description": self.description,
            "order": list(self.order),
            "categories": [
                {"index": c.index, "name": c.name, "when": c.when.text, "weight": c.weight}
                for c in self.categories
            ],
        }


class Unsound(ValueError):
    """An attempt that has no category, or several; `example` is its position."""

    def __init__(self, message: str, example: int) -> None:
        super().__init__(message)
        self.example = example


def parse(definition: Any) -> Rubric:
    """Check a rubric as it comes from YAML or JSON.

    It is a mapping with name, description (may be left out), categories (a list of mappings with
    index, name, when and weight) and order (names of categories, may be left out). Conditions may
    name the signals, thresholds and variables of `variables.py`. Raises ValueError: naming the key
    and what is wrong with it.

    >>> rubric = parse({"name": "two", "order": ["bad"], "categories": [
    ...     {"index": 0, "name": "bad", "when": "wrong or token_ratio > 0.5", "weight": 0},
    ...     {"index": 1, "name": "good", "when": "correct", "weight": 1}]})
    >>> rubric.weights, sorted(rubric.names)
    ([0.0, 1.0], ['correct', 'token_ratio', 'wrong'])
    """
    rubric = _mapping(definition, "the rubric", {"name", "categories"}, {"description", "order"})
    name, description = _text(rubric, "name"), rubric.get("description", "")
    if not isinstance(description, str) or not _printable(description):
        raise ValueError("description: must be text that can be printed")
    rows = rubric["categories"]
    if not isinstance(rows, list) or not 2 <= len(rows) <= MOST_CATEGORIES:
        raise ValueError(f"categories: must be a list of 2 to {MOST_CATEGORIES}")
    categories = [_category(row, i) for i, row in enumerate(rows)]
    if sorted(c.index for c in categories) != list(range(len(rows))):
        indices = ", ".join(str(c.index) for c in categories)
        raise ValueError(
            f"categories: index must be 0 to {len(rows) - 1}, each once, not {indices}"
        )
    names = [category.name for category in categories]
    _once(names, "categories: name")
    order = [] if rubric.get("order") is None else rubric["order"]
    if not isinstance(order, list) or any(entry not in names for entry in order):
        raise ValueError(f"order: must be a list of names of categories ({', '.join(names)})")
    _once(order, "order:")
    categories.sort(key=lambda category: category.index)
    return Rubric(name, " ".join(description.split()), tuple(categories), tuple(order))


def with_weights(rubric: Rubric, weights: Any) -> Rubric:
    """The same rubric with other weights, one a category in the order of the index.

    Raises ValueError: not one finite number a category.
    """
    wrong = [w for w in weights if not is_number(w)] if isinstance(weights, list) else [weights]
    if wrong:
        raise ValueError(f"w has {_brief(wrong[0])}: pass a list of finite numbers, one a category")
    checked = check_weights(weights).tolist()
    if len(checked) != len(rubric.categories):
        names = ", ".join(category.name for category in rubric.categories)
        raise ValueError(
            f"{len(checked)} weights for the {len(rubric.categories)} categories {names}; pass one"
            " for each, in the order of their index"
        )
    pairs = zip(rubric.categories, checked, strict=True)
    return replace(rubric, categories=tuple(replace(c, weight=weight) for c, weight in pairs))


def assign(rubric: Rubric, values: Mapping[str, Any]) -> Categories:
    """The category of every attempt: indices 0..C, int8, shape (n,).

    `values` is what its conditions name: arrays of shape (n,), or numbers. Raises Unsound: an
    attempt with no category, or with several that `order` does not settle. ValueError: `values`
    lacks a name.

    >>> rubric = parse({"name": "exact", "categories": [
    ...     {"index": 0, "name": "wrong", "when": "wrong", "weight": 0},
    ...     {"index": 1, "name": "right", "when": "correct", "weight": 1}]})
    >>> assign(rubric, {"correct": np.array([True, False]), "wrong": np.array([False, True])})
    array([1, 0], dtype=int8)
    """
    missing = sorted(rubric.names - set(values))
    if missing:
        raise ValueError(f"{rubric.name}: there is no {', '.join(missing)} for these attempts")
    shapes = {np.shape(value) for value in values.values()} - {()}
    (n,) = np.broadcast_shapes(*shapes) if shapes else (1,)
    holds = np.array([np.broadcast_to(c.when.evaluate(values), n) for c in rubric.categories])
    index = {category.name: category.index for category in rubric.categories}
    first = [index.pop(name) for name in rubric.order]
    categories = np.full(n, -1, np.int8)
    for i in first:
        categories[holds[i] & (categories < 0)] = i
    left = categories < 0
    claims = holds[list(index.values())].sum(axis=0)
    for i in index.values():
        categories[holds[i] & left] = i
    if (bad := left & (claims > 1)).any():
        example = int(np.argmax(bad))
        names = " and ".join(name for name, i in index.items() if holds[i, example])
        problem = f"are in several categories that `order` does not settle: {names}"
    elif (bad := left & (claims == 0)).any():
        example, problem = int(np.argmax(bad)), "have no category: no condition holds"
    else:
        return categories
    example_values = {
        name: values[name][example] for name in sorted(rubric.names) if np.shape(values[name])
    }
    facts = ", ".join(
        f"{name} {str(value).lower() if isinstance(value, np.bool_) else f'{value:.6g}'}"
        for name, value in example_values.items()
    )
    raise Unsound(f"{bad.sum()} attempts {problem} (the first has {facts})", example)


def _category(row: Any, position: int) -> Category:
    where = f"categories[{position}]"
    category = _mapping(row, where, {"index", "name", "when", "weight"}, set())
    name = _text(category, "name", where)
    where = f"category {name}"
    index, weight = category["index"], category["weight"]
    if type(index) is not int:
        raise ValueError(f"{where}: index must be a whole number, not {_brief(index)}")
    if not is_number(weight):
        raise ValueError(f"{where}: weight must be a finite number, not {_brief(weight)}")
    try:
        when = compile_condition(_text(category, "when"), VARIABLES, (*SIGNALS, *THRESHOLDS))
        [weight] = check_weights([weight]).tolist()
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    return Category(index, name, when, weight)


def _mapping(value: Any, where: str, required: set[str], optional: set[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: must be a mapping with {', '.join(sorted(required))}")
    missing, unknown = required - set(value), set(map(str, value)) - required - optional
    if missing or unknown:
        what = f"{', '.join(sorted(missing))} missing" if missing else f"unknown {min(unknown)}"
        known = ", ".join(sorted(required | optional))
        raise ValueError(f"{where}: {what}; the keys are {known}")
    return value


def _text(mapping: dict[str, Any], key: str, where: str = "") -> str:
    value = mapping[key]
    place = f"{where}: {key}" if where else key
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{place} must be text, not {_brief(value)}; put it in quotation marks")
    if not _printable(value):
        raise ValueError(f"{place} holds characters that cannot be printed; take them out")
    return value.strip()


def _printable(text: str) -> bool:
    return " ".join(text.split()).isprintable()


def _brief(value: Any) -> str:
    """A value for a message; a container by its kind only, since it may hold anything."""
    if isinstance(value, list | dict | tuple | set):
        return f"a {type(value).__name__}"
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:60]}..."


def _once(names: list[str], where: str) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{where} {', '.join(twice)} is there twice")
