"""Conditions of rubrics: a small language of comparisons, evaluated on NumPy arrays.

A condition is names, numbers, comparisons, ``and``, ``or``, ``not`` and parentheses, written as in
Python. Python's own parser makes a tree of it; only the node types below are then walked, so no
text of a user is ever executed, and there is nothing to call, index or compute with.
"""

import ast
import sys
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np

from bayes_at_n.pipeline.base.errors import did_you_mean
from bayes_at_n.scoring.numerics.inputs import Bools

LONGEST = 500  # characters of a condition
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
    ast.Eq: np.equal,
    ast.NotEq: np.not_equal,
}
_ALLOWED = "only names, numbers, < <= > >= == !=, and, or, not and parentheses are"


@dataclass(frozen=True)
class Condition:
    """A checked condition: its text, the names in it, and its tree."""

    text: str
    names: frozenset[str]
    tree: ast.expr

    def evaluate(self, values: Mapping[str, Any]) -> Bools:
        """Where it holds; `values`: of every name a boolean array, a number or an array of them."""
        return np.asarray(_evaluate(self.tree, values, True), dtype=np.bool_)


def compile_condition(
    text: str, booleans: Collection[str], numbers: Collection[str] = ()
) -> Condition:
    """Check a condition by evaluating it once; line breaks count as spaces.

    `booleans` are names that are true or false and stand alone, `numbers` those that are compared.
    Raises ValueError: naming the part that is wrong.
    """
    line = " ".join(text.split())
    if len(line) > LONGEST:
        raise ValueError(f"condition `{line[:40]}...` is longer than {LONGEST} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as of `1or x`; it parses
            tree = ast.parse(line, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = None
    if tree is None or "#" in line:  # Python takes the rest of the line for a comment
        raise ValueError(f"condition `{line[:80]}`: not understood; {_ALLOWED}")
    try:
        _evaluate(tree, dict.fromkeys(numbers, 0.0) | dict.fromkeys(booleans, True), True)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"condition `{line}`: {error}") from error
    names = frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    return Condition(line, names, tree)


def _evaluate(node: ast.expr, values: Mapping[str, Any], condition: bool) -> Any:
    """Evaluate a node that must be a condition, or else a number; ValueError of anything else."""
    value: Any
    match node:
        case ast.Name(id=name):
            if name not in values:
                raise ValueError(f"`{name}` is an unknown name, {did_you_mean(name, [*values])}")
            value = values[name]
        case ast.BoolOp(op=op, values=parts):
            join = np.logical_and if isinstance(op, ast.And) else np.logical_or
            value = reduce(join, [_evaluate(part, values, True) for part in parts])
        case ast.UnaryOp(op=ast.Not(), operand=part):
            value = np.logical_not(_evaluate(part, values, True))
        case ast.Compare(left=left, ops=ops, comparators=others) if all(
            type(op) in _COMPARE for op in ops
        ):
            sides = pairwise([_evaluate(part, values, False) for part in (left, *others)])
            compared = [_COMPARE[type(op)](*pair) for op, pair in zip(ops, sides, strict=True)]
            value = reduce(np.logical_and, compared)
        case _:
            value = _number(node)
            if value is None:
                raise ValueError(f"`{ast.unparse(node)}` is not allowed here; {_ALLOWED}")
    if (np.asarray(value).dtype == np.bool_) != condition:
        kinds = ("number", "condition") if condition else ("condition", "number")
        raise ValueError("`{}` is a {}, where a {} is needed".format(ast.unparse(node), *kinds))
    return value


def _number(node: ast.expr) -> float | None:
    """The value of a number that is written out, with or without a sign."""
    try:
        number = ast.literal_eval(node)
    except (ValueError, TypeError):
        return None
    return float(number) if is_number(number) else None


def is_number(value: Any) -> bool:
    """Whether a value from outside is a finite number that a float can hold; True is none."""
    return type(value) in (int, float) and abs(value) <= sys.float_info.max  # NaN is not
