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

from collections.abc import Callable, Mapping
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
    """
    rubric = _checked(definition, "the rubric", {"name", "categories"}, {"description", "order"})
    categories = [_category(row, f"categories[{i}]") for i, row in enumerate(rubric["categories"])]
    categories.sort(key=lambda category: category.index)
    indices, names = [c.index for c in categories], [c.name for c in categories]
    if indices != list(range(len(indices))):
        raise ValueError(f"categories: index must be 0 to {len(indices) - 1}, each once: {indices}")
    order = rubric.get("order") or []
    if any(entry not in names for entry in order):
        raise ValueError(f"order: must be a list of names of categories ({', '.join(names)})")
    for where, listed in (("categories: name", names), ("order:", order)):
        if twice := sorted({entry for entry in listed if listed.count(entry) > 1}):
            raise ValueError(f"{where} {', '.join(twice)} is there twice")
    description = " ".join(rubric.get("description", "").split())
    return Rubric(rubric["name"].strip(), description, tuple(categories), tuple(order))


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
    if missing := sorted(rubric.names - set(values)):
        raise ValueError(f"{rubric.name}: there is no {', '.join(missing)} for these attempts")
    shapes = {np.shape(value) for value in values.values()} - {()}
    (n,) = np.broadcast_shapes(*shapes) if shapes else (1,)
    holds = np.array([np.broadcast_to(c.when.evaluate(values), n) for c in rubric.categories])
    rest = {category.name: category.index for category in rubric.categories}
    first = [rest.pop(name) for name in rubric.order]
    categories = np.full(n, -1, np.int8)
    for i in first:
        categories[holds[i] & (categories < 0)] = i
    left = categories < 0
    claims = holds[list(rest.values())].sum(axis=0)
    for i in rest.values():
        categories[holds[i] & left] = i
    several, none = left & (claims > 1), left & (claims == 0)
    if not (bad := several if several.any() else none).any():
        return categories
    example = int(np.argmax(bad))
    names = " and ".join(name for name, i in rest.items() if holds[i, example])
    problem = f"are in several categories that `order` does not settle: {names}"
    if not several.any():
        problem = "have no category: no condition holds"
    seen = {name: values[name][example] for name in sorted(rubric.names) if np.shape(values[name])}
    facts = ", ".join(
        f"{name} {str(value).lower() if isinstance(value, np.bool_) else f'{value:.6g}'}"
        for name, value in seen.items()
    )
    raise Unsound(f"{bad.sum()} attempts {problem} (the first has {facts})", example)


def _category(row: Any, where: str) -> Category:
    category = _checked(row, where, {"index", "name", "when", "weight"}, set())
    name = category["name"].strip()
    try:
        when = compile_condition(category["when"], VARIABLES, (*SIGNALS, *THRESHOLDS))
        [weight] = check_weights([category["weight"]]).tolist()
    except ValueError as error:
        raise ValueError(f"category {name}: {error}") from None
    return Category(category["index"], name, when, weight)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and " ".join(value.split()).isprintable()


_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("name", "when"), (lambda x: _is_text(x) and x.strip() != "", "text")),
    "description": (_is_text, "text that can be printed"),
    "index": (lambda x: type(x) is int, "a whole number"),
    "weight": (is_number, "a finite number"),
    "order": (lambda x: x is None or isinstance(x, list), "a list of names of categories"),
    "categories": (
        lambda x: isinstance(x, list) and 2 <= len(x) <= MOST_CATEGORIES,
        f"a list of 2 to {MOST_CATEGORIES}",
    ),
}


def _checked(value: Any, where: str, required: set[str], optional: set[str]) -> dict[str, Any]:
    """A mapping with these keys, whose values are what they should be."""
    if not isinstance(value, dict):
        raise ValueError(f"{where}: must be a mapping with {', '.join(sorted(required))}")
    missing, unknown = required - set(value), set(map(str, value)) - required - optional
    if missing or unknown:
        what = f"{', '.join(sorted(missing))} missing" if missing else f"unknown {min(unknown)}"
        known = ", ".join(sorted(required | optional))
        raise ValueError(f"{where}: {what}; the keys are {known}")
    for key, (fits, kind) in _KINDS.items():
        if key in value and not fits(value[key]):
            raise ValueError(f"{where}: {key} must be {kind}, not {_brief(value[key])}")
    return value


def _brief(value: Any) -> str:
    """A value for a message; a container by its kind only, since it may hold anything."""
    return f"a {type(value).__name__}" if isinstance(value, list | dict) else f"{value!r:.60}"
