"""Conditions of rubrics: a small language of comparisons, compiled to NumPy, never executed.

A condition is names, numbers, comparisons, ``and``, ``or``, ``not`` and parentheses, written as in
Python. Python's own parser makes a tree of it; only the node types below are then walked, so no
text of a user is ever evaluated, and there is nothing to call, index or compute with.
"""

import ast
import difflib
import functools
import operator
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]

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
_ALLOWED = "names, numbers, comparisons, and, or, not and parentheses"


@dataclass(frozen=True)
class Condition:
    """A checked condition: its text, its tree and the names in it."""

    text: str
    tree: ast.expr
    names: frozenset[str]

    def evaluate(self, values: Mapping[str, Any]) -> Bools:
        """Where the condition holds.

        Args:
            values: per name of `names` a boolean array, a number or an array of numbers; all
                broadcast together.
        """
        return np.asarray(_evaluate(self.tree, values), dtype=np.bool_)


def compile_condition(
    text: str, booleans: Collection[str], numbers: Collection[str] = ()
) -> Condition:
    """Check a condition and make it ready for arrays.

    Args:
        text: the condition; line breaks count as spaces.
        booleans: names that are true or false; they stand alone.
        numbers: names that are numbers; they are compared.

    Raises:
        ValueError: saying at which character (from 1) what is wrong.

    >>> condition = compile_condition("correct and not bits > 0.5", {"correct"}, {"bits"})
    >>> condition.evaluate({"correct": np.array([True, True]), "bits": np.array([0.4, 0.6])})
    array([ True, False])
    >>> sorted(condition.names)
    ['bits', 'correct']
    >>> compile_condition("correct and bitz > 0.5", {"correct"}, {"bits"})
    Traceback (most recent call last):
    ValueError: condition `correct and bitz > 0.5`, character 13: unknown name bitz, did you mean \
bits?
    """
    line = " ".join(text.split())
    if len(line) > LONGEST:
        raise ValueError(
            f"condition `{line[:40]}...` has {len(line)} characters; at most {LONGEST} are allowed"
        )
    if "#" in line:  # Python would take the rest of the line for a comment
        raise _error(line, line.index("#"), f"# is not understood; only {_ALLOWED} are")
    tree = _parse(line)
    if sum(1 for _ in ast.walk(tree)) > MOST_NODES:
        raise ValueError(f"condition `{line[:40]}...` has too many parts; write several categories")
    if not _check(tree, line, frozenset(booleans), frozenset(numbers)):
        raise _error(line, tree, "a number where a condition is needed; compare it with something")
    names = frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    return Condition(line, tree, names)


def _parse(line: str) -> ast.expr:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # such as `1or x`; it parses
            warnings.simplefilter("ignore", DeprecationWarning)
            return ast.parse(line, mode="eval").body
    except SyntaxError as error:
        at = min(error.offset or len(line) + 1, len(line) + 1)  # 0 is the end
        why = "it is empty" if not line else f"not understood; only {_ALLOWED} are"
        raise _error(line, at - 1, why) from None
    except (ValueError, RecursionError, MemoryError):  # a zero byte; nesting without end
        raise ValueError(f"condition `{line[:80]}`: not understood; only {_ALLOWED} are") from None


def _error(line: str, at: ast.expr | int, why: str) -> ValueError:
    if isinstance(at, ast.expr):  # which counts in bytes
        at = len(line.encode()[: at.col_offset].decode(errors="ignore"))
    return ValueError(f"condition `{line}`, character {at + 1}: {why}")


def _check(node: ast.expr, line: str, booleans: frozenset[str], numbers: frozenset[str]) -> bool:
    """Whether the node is a condition (True) or a number (False); an error for anything else."""

    def is_condition(part: ast.expr) -> bool:
        return _check(part, line, booleans, numbers)

    if isinstance(node, ast.Name):
        if node.id not in booleans | numbers:
            known = sorted(booleans | numbers)
            close = difflib.get_close_matches(node.id, known, n=1)
            hint = f"did you mean {close[0]}?" if close else "known: " + ", ".join(known)
            raise _error(line, node, f"unknown name {node.id}, {hint}")
        return node.id in booleans
    if isinstance(node, ast.Constant | ast.UnaryOp) and _number(node) is not None:
        return False
    if isinstance(node, ast.BoolOp):
        parts, word = node.values, "and" if isinstance(node.op, ast.And) else "or"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        parts, word = [node.operand], "not"
    elif isinstance(node, ast.Compare):
        if any(type(op) not in _COMPARE for op in node.ops):
            raise _error(line, node, "only < <= > >= == and != compare")
        for part in (node.left, *node.comparators):
            if is_condition(part):
                raise _error(line, part, "is true or false, no number; leave the comparison out")
        return True
    else:
        raise _error(line, node, f"not allowed here; a condition is {_ALLOWED}")
    for part in parts:
        if not is_condition(part):
            raise _error(line, part, f"a number, where `{word}` needs a condition")
    return True


def _number(node: ast.expr) -> float | None:
    """The value of a number that is written out, with or without a sign."""
    sign = 1.0
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        sign, node = -1.0 if isinstance(node.op, ast.USub) else 1.0, node.operand
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        try:
            value = sign * float(node.value)  # type: ignore[arg-type]
        except OverflowError:
            return None
        return value if np.isfinite(value) else None
    return None


def _evaluate(node: ast.expr, values: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Name):
        return values[node.id]
    if isinstance(node, ast.BoolOp):
        join = operator.and_ if isinstance(node.op, ast.And) else operator.or_
        return functools.reduce(join, (_evaluate(part, values) for part in node.values))
    if isinstance(node, ast.Compare):
        sides = [_evaluate(part, values) for part in (node.left, *node.comparators)]
        steps = zip(node.ops, sides[:-1], sides[1:], strict=True)
        compared = (_COMPARE[type(op)](left, right) for op, left, right in steps)
        return functools.reduce(operator.and_, compared)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return np.logical_not(_evaluate(node.operand, values))
    number = _number(node)
    assert number is not None, "compile_condition lets nothing else through"
    return np.float64(number)
