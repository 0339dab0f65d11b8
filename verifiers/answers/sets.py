r"""Sets of real numbers, however written: intervals, unions, inequalities, set-builder notation.

A text becomes a small tree: ("between", low, closed, high, closed) with trees of constants as ends
(None: infinite), joined by "or", "and", "not" and "comma". The ends of both sets, put in order,
cut the line into points and gaps; each set is a choice of those, and equality is exact.
"""

import functools
import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from verifiers.answers.expression import Tree, read_expression
from verifiers.answers.latex import split_list, split_top
from verifiers.answers.numeric import order
from verifiers.answers.polynomial import linear_in, polynomial, variables
from verifiers.answers.rational import Unsure

Node = tuple[Any, ...]
Inequality = tuple[Tree, str, Tree]

_MAX_ENDS = 24
_ALL, _NONE = ("and",), ("or",)
_SIGN = re.compile(r"(\\leq|\\geq|\\neq)(?![A-Za-z])|([<>=])")
_TURNED = {"<": ">", ">": "<", r"\leq": r"\geq", r"\geq": r"\leq"}
# The value that a set is said of: x, x_1, f(x).
_MEMBER = re.compile(r"([A-Za-z](?:_\{?\w\}?)?(?:\([a-z]\))?)\\in(?![A-Za-z]) ?(.*)")
_REALS = frozenset([r"\mathbb{R}", r"\text{all real numbers}", r"\text{all reals}"])
# ]1,2[ is (1,2): a bracket opens at the start or after an operator, and closes before one.
_OPERATOR = r"\\(?:in|cup|cap|setminus)(?![A-Za-z])"
_OPENING = re.compile(rf"(^|{_OPERATOR} ?|[:,])\]")
_CLOSING = re.compile(rf"\[(?= ?$| ?(?:{_OPERATOR}|[:,]|\\\}}))")


def same_reals(gold: str, answer: str) -> bool:
    r"""Whether two cleaned texts are the same set of real numbers; `\lor` is "or", `\land` "and".

    Between inequalities a comma is the one of these two that gives neither nothing nor everything.
    A set without a variable may be that of any; two variables must be the same.

    Raises Unsure, ArithmeticError or ValueError: one is not read as such a set, or two ends are
    too close to call.

    >>> same_reals(r"x<1\lor x>2", r"(-\infty,1)\cup(2,\infty)"), same_reals("]1,2[", r"1<x\leq 2")
    (True, False)
    """
    (gold_names, gold_node), (answer_names, answer_node) = _read(gold), _read(answer)
    if len(gold_names) > 1 or len(answer_names) > 1:
        raise Unsure
    ends = [*_ends(gold_node), *_ends(answer_node)]
    if len(ends) > _MAX_ENDS:
        raise Unsure
    ends.sort(key=functools.cmp_to_key(_order))
    position: dict[Tree, int] = {}
    rank = -1
    for previous, end in zip([None, *ends], ends, strict=False):
        rank += previous is None or _order(previous, end) != 0
        position[end] = rank
    cells = 2 * rank + 3
    chosen = [_cells(node, position, cells) for node in (gold_node, answer_node)]
    return chosen[0] == chosen[1] and (len(gold_names | answer_names) < 2)


def _order(a: Tree, b: Tree) -> int:
    sign = order(a, b)
    if sign is None:
        raise Unsure
    return sign


def _ends(node: Node) -> Iterator[Tree]:
    if node[0] == "between":
        yield from (end for end in (node[1], node[3]) if end is not None)
    else:
        for part in node[1:]:
            yield from _ends(part)


def _cells(node: Node, position: dict[Tree, int], count: int) -> frozenset[int]:
    """The points (odd) and gaps (even) of the line that a set is made of."""
    everything = frozenset(range(count))
    if node[0] == "between":
        _, low, with_low, high, with_high = node
        first = 0 if low is None else 2 * position[low] + (1 if with_low else 2)
        last = count - 1 if high is None else 2 * position[high] + (1 if with_high else 0)
        if first > last:
            raise Unsure  # (2,1) is no interval
        return frozenset(range(first, last + 1))
    parts = [_cells(part, position, count) for part in node[1:]]
    if node[0] == "not":
        return everything - parts[0]
    union, common = frozenset().union(*parts), everything.intersection(*parts)
    if node[0] != "comma":
        return union if node[0] == "or" else common
    readings = [cells for cells in (union, common) if cells and cells != everything]
    if len(readings) != 1:
        raise Unsure
    return readings[0]


def _read(text: str) -> tuple[set[str], Node]:
    names: set[str] = set()
    text = _CLOSING.sub(")", _OPENING.sub(r"\1(", text))
    return names, _joined(text, names)


def _joined(text: str, names: set[str]) -> Node:
    """A set, or conditions on one variable, whose name is added to `names`."""
    for separator, kind in ((r"\\lor(?![A-Za-z])", "or"), (r"\\land(?![A-Za-z])", "and")):
        parts = split_top(text, separator)
        if len(parts) > 1:
            if any(len(split_top(part, ",")) > 1 for part in parts):
                raise Unsure  # which of them binds?
            nodes = [_joined(part, names) for part in parts]
            if kind == "and" and any(node[0] == "between" and node[1] == node[3] for node in nodes):
                raise Unsure  # x=1 and x=2: both are meant, not neither
            return (kind, *nodes)
    parts = split_top(text, ",")
    if len(parts) > 1:
        if not all(_MEMBER.match(part) or _SIGN.search(part) for part in parts):
            raise Unsure  # (1,2),(3,4): as likely points
        return ("comma", *(_joined(part, names) for part in parts))
    if member := _MEMBER.fullmatch(text):
        names.add(member[1])
        return _set(member[2])
    if len(split_top(text, _SIGN.pattern)) > 1:
        signed = [_half_line(*relation, names) for relation in relations(text)]
        return signed[0] if len(signed) == 1 else ("and", *signed)
    return _set(text)


def _set(text: str) -> Node:
    for separator, kind in ((r"\\cup(?![A-Za-z])", "or"), (r"\\cap(?![A-Za-z])", "and")):
        parts = split_top(text, separator)
        if len(parts) > 1:
            if any(len(split_top(part, r"\\(?:cap|setminus)(?![A-Za-z])")) > 1 for part in parts):
                raise Unsure
            return (kind, *map(_set, parts))
    parts = split_top(text, r"\\setminus(?![A-Za-z])")
    if len(parts) == 2:
        return ("and", _set(parts[0]), ("not", _set(parts[1])))
    if text in _REALS:
        return _ALL
    if text in (r"\emptyset", r"\{\}"):
        return _NONE
    brackets, items = split_list(text) or ("", [])
    if brackets == "{}" and (halves := builder(text)):
        head, condition = halves
        inner: set[str] = set()
        node = _joined(condition, inner)
        domain = _MEMBER.fullmatch(head)
        if inner != {domain[1] if domain else head}:
            raise Unsure
        return ("and", _set(domain[2]), node) if domain else node
    if brackets == "{}":
        return ("or", *(("between", end, True, end, True) for end in map(_constant, items)))
    if len(items) != 2 or not brackets:
        raise Unsure
    low, high = (item.replace("+", "") if r"\infty" in item else item for item in items)
    endless = brackets[0] == "(" and low == r"-\infty", brackets[1] == ")" and high == r"\infty"
    from_, to = None if endless[0] else _constant(low), None if endless[1] else _constant(high)
    return ("between", from_, brackets[0] == "[", to, brackets[1] == "]")


def builder(text: str) -> list[str] | None:
    r"""The two halves of cleaned set-builder notation, `\{head:condition\}` or with a bar.

    >>> builder(r"\{x\mid x>2\}"), builder(r"\{1,2\}")
    (['x', 'x>2'], None)
    """
    for bar in (":", r"\\mid(?![A-Za-z])", r"\|"):
        parts = split_top(text[2:-2], bar)
        if len(parts) == 2:
            return parts
    return None


def _constant(text: str) -> Tree:
    tree = read_expression(text)
    if tree is None or variables(tree):
        raise Unsure
    return tree


def relations(text: str) -> list[Inequality]:
    r"""Split a cleaned chain such as `0<x\leq 1` into its relations.

    Raises Unsure: a side is no expression, or there is no sign.
    """
    sides = [read_expression(side) for side in split_top(text, _SIGN.pattern)]
    signs = [match[0] for match in _SIGN.finditer(text)]
    if len(sides) != len(signs) + 1 or not signs or None in sides:
        raise Unsure
    return [(sides[i], sign, sides[i + 1]) for i, sign in enumerate(signs)]  # type: ignore[misc]


def _half_line(left: Tree, sign: str, right: Tree, names: set[str]) -> Node:
    if right[0] == "abs" and sign in _TURNED:
        left, sign, right = right, _TURNED[sign], left
    if left[0] == "abs" and sign in _TURNED:  # |u|<t: u<t and -u<t, whatever t is
        kind = "and" if sign in ("<", r"\leq") else "or"
        halves = (_half_line(side, sign, right, names) for side in (left[1], ("neg", left[1])))
        return (kind, *halves)
    difference: Tree = ("sub", left, right)
    found = variables(difference)
    names |= found
    if len(found) != 1:
        raise Unsure
    name = found.pop()
    factor, _ = linear_in(polynomial(difference), name)
    if factor.keys() != {()}:
        raise Unsure
    end = ("div", ("neg", _at_zero(difference, name)), ("num", factor[()]))
    if factor[()] < 0:
        sign = _TURNED.get(sign, sign)
    if sign in ("=", r"\neq"):
        point = ("between", end, True, end, True)
        return point if sign == "=" else ("not", point)
    closed = sign in (r"\leq", r"\geq")
    if sign in ("<", r"\leq"):
        return ("between", None, False, end, closed)
    return ("between", end, closed, None, False)


def _at_zero(tree: Tree, name: str) -> Tree:
    if tree == ("var", name):
        return ("num", Fraction(0))
    return tuple(_at_zero(part, name) if isinstance(part, tuple) else part for part in tree)
