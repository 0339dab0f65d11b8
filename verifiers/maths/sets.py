r"""Sets of real numbers, however written: intervals, unions, inequalities, set-builder notation.

A text becomes a small tree: ("between", low, closed, high, closed) with trees of constants as ends
(None: infinite), joined by "or", "and", "not", "comma" and so on. The ends of both sets, put in
order, cut the line into points and gaps; each set is a choice of those, and equality is exact.
"""

import functools
import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

from bayes_at_n.verifiers.maths.numeric import linear, order
from bayes_at_n.verifiers.maths.parser import Tree, read_expression, variables
from bayes_at_n.verifiers.maths.rational import Unsure
from bayes_at_n.verifiers.maths.structure import split_list, split_top

Node = tuple[Any, ...]

_MAX_ENDS = 24
WORDS = ((r"\\lor(?![A-Za-z])", "or"), (r"\\land(?![A-Za-z])", "and"), (",", "comma"))
_OPERATORS = (
    (r"\\cup(?![A-Za-z])", "union"),
    (r"\\cap(?![A-Za-z])", "common"),
    (r"\\setminus(?![A-Za-z])", "minus"),
)
_SIGN = re.compile(r"(\\leq|\\geq|\\neq)(?![A-Za-z])|([<>=])")
_TURNED = {"<": ">", ">": "<", r"\leq": r"\geq", r"\geq": r"\leq"}
# The value that a set is said of: x, x_1, f(x).
_MEMBER = re.compile(r"([A-Za-z](?:_\{?\w\}?)?(?:\([a-z]\))?)\\in(?![A-Za-z]) ?(.*)")
_NAMED: dict[str, Node] = {r"\mathbb{R}": ("and",), r"\emptyset": ("or",)}
# ]1,2[ is (1,2): a bracket opens at the start or after an operator, and closes before one.
_BESIDE = r"\\(?:in|cup|cap|setminus)(?![A-Za-z])"
_OPENING = re.compile(rf"(^|{_BESIDE} ?|[:,])\]")
_CLOSING = re.compile(rf"\[(?= ?$| ?(?:{_BESIDE}|[:,]|\\\}}))")


def same_reals(gold: str, answer: str) -> bool:
    r"""Whether two cleaned texts are the same set of real numbers; `\lor` is "or", `\land` "and".

    Between inequalities a comma is the one of these two that gives neither nothing nor everything.
    A set without a variable may be that of any; two variables must be the same.

    Raises Unsure, ArithmeticError or ValueError: one is not read as such a set, or two ends are
    too close to call.

    >>> same_reals(r"x<1\lor x>2", r"(-\infty,1)\cup(2,\infty)"), same_reals("]1,2[", r"1<x\leq 2")
    (True, False)
    """
    names, nodes = zip(*map(read_reals, (gold, answer)), strict=True)
    ends = [end for node in nodes for end in _ends(node)]
    if max(map(len, names)) > 1 or len(ends) > _MAX_ENDS:
        raise Unsure
    ends.sort(key=functools.cmp_to_key(_order))
    position: dict[Tree, int] = {}
    rank = -1
    for previous, end in zip([None, *ends], ends, strict=False):
        rank += previous is None or _order(previous, end) != 0
        position[end] = rank
    left, right = (_cells(node, position, 2 * rank + 3) for node in nodes)
    return left == right and len(names[0] | names[1]) < 2


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
    if node[0] in ("not", "minus"):
        return (parts[0] if node[0] == "minus" else everything) - parts[-1]
    union, common = frozenset().union(*parts), everything.intersection(*parts)
    if node[0] != "comma":
        return union if node[0] in ("or", "union") else common
    readings = [cells for cells in (union, common) if cells and cells != everything]
    if len(readings) != 1:
        raise Unsure
    return readings[0]


def read_reals(text: str) -> tuple[set[str], Node]:
    """The variable that a text is about, if it names one, and the set as a small tree."""
    names: set[str] = set()
    text = _CLOSING.sub(")", _OPENING.sub(r"\1(", text))
    return names, _joined(text, names)


def split_once(text: str, separators: Sequence[tuple[str, str]]) -> tuple[str, list[str]]:
    """The kind of separator outside brackets ("" if none) and the parts.

    Raises Unsure: there are two kinds, unless they are "or" and "and", which binds.
    """
    parts = {kind: split_top(text, separator) for separator, kind in separators}
    found = [(kind, several) for kind, several in parts.items() if len(several) > 1]
    if len(found) > 1 and {kind for kind, _ in found} != {"or", "and"}:
        raise Unsure
    return found[0] if found else ("", [text])


def _joined(text: str, names: set[str]) -> Node:
    """A set, or conditions on one variable, whose name is added to `names`."""
    kind, parts = split_once(text, WORDS)
    if kind == "comma" and not all(_MEMBER.match(part) or _SIGN.search(part) for part in parts):
        raise Unsure  # (1,2),(3,4): as likely points
    if kind:
        nodes = [_joined(part, names) for part in parts]
        if kind == "and" and any(node[0] == "between" and node[1] == node[3] for node in nodes):
            raise Unsure  # x=1 and x=2: both are meant, not neither
        return (kind, *nodes)
    if member := _MEMBER.fullmatch(text):
        names.add(member[1])
        return _set(member[2])
    if len(split_top(text, _SIGN.pattern)) > 1:
        nodes = [_half_line(*relation, names) for relation in relations(text)]
        return ("and", *nodes) if len(nodes) > 1 else nodes[0]
    return _set(text)


def _set(text: str) -> Node:
    kind, parts = split_once(text, _OPERATORS)
    if kind and (kind != "minus" or len(parts) == 2):
        return (kind, *map(_set, parts))
    if text in _NAMED:
        return _NAMED[text]
    brackets, items = split_list(text) or ("", [])
    if brackets == "{}" and (halves := builder(text)):
        inner: set[str] = set()
        node = _joined(halves[1], inner)
        domain = _MEMBER.fullmatch(halves[0])
        if inner != {domain[1] if domain else halves[0]}:
            raise Unsure
        return ("and", _set(domain[2]), node) if domain else node
    if brackets == "{}":
        return ("or", *(("between", end, True, end, True) for end in map(_constant, items)))
    if len(items) != 2 or not brackets:
        raise Unsure
    low, high = (item.replace("+", "") if r"\infty" in item else item for item in items)
    first = None if brackets[0] == "(" and low == r"-\infty" else _constant(low)
    last = None if brackets[1] == ")" and high == r"\infty" else _constant(high)
    return ("between", first, brackets[0] == "[", last, brackets[1] == "]")


def builder(text: str) -> list[str] | None:
    r"""The two halves of cleaned set-builder notation, `\{head:condition\}` or with a bar.

    >>> builder(r"\{x\mid x>2\}"), builder(r"\{1,2\}")
    (['x', 'x>2'], None)
    """
    halves = (split_top(text[2:-2], bar) for bar in (":", r"\\mid(?![A-Za-z])", r"\|"))
    return next((parts for parts in halves if len(parts) == 2), None)


def _constant(text: str) -> Tree:
    tree = read_expression(text)
    if tree is None or variables(tree):
        raise Unsure
    return tree


def relations(text: str) -> list[tuple[Tree, str, Tree]]:
    r"""Split a cleaned chain such as `0<x\leq 1` into its relations.

    Raises Unsure: a side is no expression, or there is no sign.
    """
    parts = [part.lstrip("+") for part in split_top(text, _SIGN.pattern)]
    signs = [match[0] for match in _SIGN.finditer(text)]
    if len(parts) > 2 and len(parts) == len(signs) + 1:  # -\infty<x<3
        if (parts[0] == r"-\infty" and signs[0] == "<") or (
            parts[0] == r"\infty" and signs[0] == ">"
        ):
            parts, signs = parts[1:], signs[1:]
        if parts[-1] == r"\infty" and signs[-1] == "<" and len(parts) > 2:
            parts, signs = parts[:-1], signs[:-1]
    sides = [read_expression(side) for side in parts]
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
    names |= variables(difference)
    if len(names) != 1:
        raise Unsure
    (name,) = names
    slope, start = linear(difference, name)
    rising = order(slope, ("num", Fraction(0)))
    if not rising:
        raise Unsure
    end = ("div", ("neg", start), slope)
    if sign in ("=", r"\neq"):
        point = ("between", end, True, end, True)
        return point if sign == "=" else ("not", point)
    closed = sign in (r"\leq", r"\geq")
    if (sign in ("<", r"\leq")) == (rising > 0):
        return ("between", None, False, end, closed)
    return ("between", end, closed, None, False)
