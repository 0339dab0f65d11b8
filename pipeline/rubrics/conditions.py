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
_ALLOWED = "only names, numbers, comparisons, and, or, not and parentheses are"


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
    Raises ValueError: saying at which character (from 1) what is wrong.

    >>> condition = compile_condition("correct and not bits > 0.5", {"correct"}, {"bits"})
    >>> condition.evaluate({"correct": np.array([True, True]), "bits": np.array([0.4, 0.6])})
    array([ True, False])
    >>> sorted(condition.names)
    ['bits', 'correct']
    """
    line = " ".join(text.split())
    if len(line) > LONGEST:
        raise ValueError(f"condition `{line[:40]}...` is longer than {LONGEST} characters")
    if "#" in line:  # Python would take the rest of the line for a comment
        raise _error(line, line.index("#"), f"not understood; {_ALLOWED}")
    tree = _parse(line)
    nodes = list(ast.walk(tree))
    if len(nodes) > MOST_NODES:
        raise ValueError(f"condition `{line[:40]}...` has too many parts; write several categories")
    known = dict.fromkeys(numbers, False) | dict.fromkeys(booleans, True)
    is_condition, read = _compiled(tree, line, known)
    if not is_condition:
        raise _error(line, tree, "a number where a condition is needed; compare it with something")
    return Condition(line, frozenset(n.id for n in nodes if isinstance(n, ast.Name)), read)


def _parse(line: str) -> ast.expr:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as of `1or x`; it parses
            return ast.parse(line, mode="eval").body
    except SyntaxError as error:
        at = min(error.offset or len(line) + 1, len(line) + 1)  # 0 is the end
        raise _error(
            line, at - 1, f"not understood; {_ALLOWED}" if line else "it is empty"
        ) from None
    except (ValueError, RecursionError, MemoryError):  # a zero byte; nesting without end
        raise ValueError(f"condition `{line[:80]}`: not understood; {_ALLOWED}") from None


def _error(line: str, at: ast.expr | int, why: str) -> ValueError:
    if isinstance(at, ast.expr):  # which counts in bytes
        at = len(line.encode()[: at.col_offset].decode(errors="ignore"))
    return ValueError(f"condition `{line}`, character {at + 1}: {why}")


def _compiled(node: ast.expr, line: str, known: Mapping[str, bool]) -> tuple[bool, Read]:
    """Whether a node is a condition (else a number), and how it is read; anything else raises.

    `known` says of every name whether it is true or false, and no number.
    """

    def read_parts(nodes: list[ast.expr], conditions: bool, problem: str) -> list[Read]:
        parts = [(part, *_compiled(part, line, known)) for part in nodes]
        for part, is_condition, _ in parts:
            if is_condition != conditions:
                raise _error(line, part, problem)
        return [read for *_, read in parts]

    if (number := _number(node)) is not None:
        return False, lambda values: number
    match node:
        case ast.Name(id=name):
            if name not in known:
                hint = did_you_mean(name, sorted(known))
                raise _error(line, node, f"unknown name {name}, {hint}")
            return known[name], operator.itemgetter(name)
        case ast.BoolOp(op=op, values=nodes):
            word, join = ("and", operator.and_) if isinstance(op, ast.And) else ("or", operator.or_)
            reads = read_parts(nodes, True, f"a number, where `{word}` needs a condition")
            return True, lambda values: reduce(join, (read(values) for read in reads))
        case ast.UnaryOp(op=ast.Not(), operand=part):
            [read] = read_parts([part], True, "a number, where `not` needs a condition")
            return True, lambda values: np.logical_not(read(values))
        case ast.Compare(left=left, ops=ops, comparators=others):
            if any(type(op) not in _COMPARE for op in ops):
                raise _error(line, node, "only < <= > >= == and != compare")
            problem = "is true or false, no number; leave the comparison out"
            sides = pairwise(read_parts([left, *others], False, problem))
            steps = [(_COMPARE[type(op)], a, b) for op, (a, b) in zip(ops, sides, strict=True)]
            return True, lambda values: reduce(
                operator.and_, (compare(a(values), b(values)) for compare, a, b in steps)
            )
    raise _error(line, node, f"not allowed here; {_ALLOWED}")


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
