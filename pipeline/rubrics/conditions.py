"""Conditions of rubrics: a small language of comparisons, compiled to NumPy, never executed.

A condition is names, numbers, comparisons, ``and``, ``or``, ``not`` and parentheses, written as in
Python. Python's own parser makes a tree of it; only the node types below are then walked, so no
text of a user is ever evaluated, and there is nothing to call, index or compute with.
"""

import ast
import operator
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

Read = Callable[[Mapping[str, Any]], Any]  # the value of a part, from those of the names

LONGEST = 500  # characters of a condition
MOST_NODES = 200  # of its tree: enough for forty comparisons
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_ALLOWED = "only names, numbers, < <= > >= == !=, and, or, not and parentheses are"


@dataclass(frozen=True)
class Condition:
    """A checked condition: its text, the names in it, and how it is read from their values."""

    text: str
    names: frozenset[str]
    read: Read

    def evaluate(self, values: Mapping[str, Any]) -> Bools:
        """Where it holds; `values`: of every name a boolean array, a number or an array of them."""
        return np.asarray(self.read(values), dtype=np.bool_)


def compile_condition(
    text: str, booleans: Collection[str], numbers: Collection[str] = ()
) -> Condition:
    """Check a condition and make it ready for arrays; line breaks count as spaces.

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
    nodes = list(ast.walk(tree))
    if len(nodes) > MOST_NODES:
        raise ValueError(f"condition `{line[:40]}...` has too many parts; write several categories")
    known = dict.fromkeys(numbers, False) | dict.fromkeys(booleans, True)
    names = frozenset(node.id for node in nodes if isinstance(node, ast.Name))
    return Condition(line, names, _compiled(tree, line, known, True))


def _compiled(node: ast.expr, line: str, known: Mapping[str, bool], condition: bool) -> Read:
    """Compile a node that must be a condition, or else a number; anything else raises.

    `known` says of every name whether it is true or false, and no number.
    """

    def wrong(why: str) -> ValueError:
        return ValueError(f"condition `{line}`: `{ast.get_source_segment(line, node)}` {why}")

    def parts(nodes: list[ast.expr], conditions: bool) -> list[Read]:
        return [_compiled(part, line, known, conditions) for part in nodes]

    read: Read
    is_condition = True
    match node:
        case ast.Name(id=name):
            if name not in known:
                raise wrong(f"is an unknown name, {did_you_mean(name, sorted(known))}")
            is_condition, read = known[name], operator.itemgetter(name)
        case ast.BoolOp(op=op, values=nodes):
            join = operator.and_ if isinstance(op, ast.And) else operator.or_
            reads = parts(nodes, True)
            read = lambda values: reduce(join, (part(values) for part in reads))  # noqa: E731
        case ast.UnaryOp(op=ast.Not(), operand=part):
            [operand] = parts([part], True)
            read = lambda values: np.logical_not(operand(values))  # noqa: E731
        case ast.Compare(left=left, ops=ops, comparators=others) if {*map(type, ops)} <= {
            *_COMPARE
        }:
            sides = pairwise(parts([left, *others], False))
            steps = [(_COMPARE[type(op)], a, b) for op, (a, b) in zip(ops, sides, strict=True)]
            read = lambda values: reduce(  # noqa: E731
                operator.and_, (compare(a(values), b(values)) for compare, a, b in steps)
            )
        case _:
            number = _number(node)
            if number is None:
                raise wrong(f"is not allowed here; {_ALLOWED}")
            is_condition, read = False, lambda values: number
    if is_condition != condition:
        kinds = ("condition", "number") if is_condition else ("number", "condition")
        raise wrong("is a {}, where a {} is needed".format(*kinds))
    return read


def _number(node: ast.expr) -> np.float64 | None:
    """The value of a number that is written out, with or without a sign."""
    try:
        number = ast.literal_eval(node)
    except (ValueError, TypeError):
        return None
    return np.float64(number) if is_number(number) else None


def is_number(value: Any) -> bool:
    """Whether a value from outside is a finite number that a float can hold; True is none."""
    return type(value) in (int, float) and abs(value) <= sys.float_info.max  # NaN is not
