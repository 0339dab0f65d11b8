r"""Compare equations, inequalities, sets of numbers and residue classes in different forms.

Equations and inequalities are the same if one is the other times a constant (positive, or with the
sign turned), which is tried at points that depend on both, as of expressions.

>>> compare_relations("y = 2x-3", "2x-y-3=0"), compare_relations("x+y<3", "-x-y<-3")
(True, None)
>>> compare_relations(r"x\equiv 7\mod 4", r"\{4k-1:k\in\mathbb{Z}\}")
True
"""

import contextlib
import math
import re
from fractions import Fraction

from bayes_at_n.verifiers.maths.lexer import RELATION
from bayes_at_n.verifiers.maths.numeric import factor, fraction_of, in_radians, linear, parts_of
from bayes_at_n.verifiers.maths.parser import Tree, read_expression, variables
from bayes_at_n.verifiers.maths.rational import Unsure
from bayes_at_n.verifiers.maths.sets import (
    WORDS,
    builder,
    read_reals,
    relations,
    same_reals,
    split_once,
)
from bayes_at_n.verifiers.maths.structure import paired, signs, split_list, split_top

_MAX_CLASSES = 500
_MAX_PARTS = 30
_MAX_DIVISIONS = 8  # each may double what is multiplied out

# Only texts with one of these are looked at; of equations both sides must be one.
_RELATION = re.compile(
    r"[<>]|\\(?:leq|geq|neq|in|cup|cap|equiv|b?mod|setminus|mathbb|infty|lor)(?![A-Za-z])|^\]|\[$"
)
_SOLVED = re.compile(r"^-?[A-Za-z]=|=-?[A-Za-z]$")
_FUNCTION = re.compile(r"^[A-Za-z]'*\([a-z](?:,[a-z])*\)=")
_MODULUS = re.compile(r",? ?\(?\\b?mod ?\(?\{?([0-9]{1,6})\}?\)?\)?$")
_DOMAIN = re.compile(
    r"(?:[,:(]|\\text\{,? ?(?:for|where|with)[a-z ]*\})? ?([a-z])\\in\\mathbb\{([ZN])\}\)?$"
)
_NAMED = re.compile(r"([A-Za-z]) ?(?:=|\\equiv(?![A-Za-z])) ?")
_ELEMENT = re.compile(r"([A-Za-z])(?:\\in\\mathbb\{Z\})?")


def is_relation(text: str) -> bool:
    """Whether a cleaned text can be read as a relation, a set of numbers or a family."""
    if not _RELATION.search(text) and "=" not in text:
        return False
    for reader in (_family, read_reals, _read):
        try:
            reader(text)
        except (Unsure, ArithmeticError, ValueError, RecursionError):
            continue
        return True
    return False


def compare_relations(gold: str, answer: str) -> bool | None:
    """Decide whether two cleaned texts are one relation or set; None: not for us to say."""
    found = [_RELATION.search(text) is not None for text in (gold, answer)]
    if not any(found) and not ("=" in gold and "=" in answer):
        return None
    for comparison in (_same_families, same_reals, _same_relations)[0 if any(found) else 2 :]:
        try:
            return comparison(gold, answer)
        except (Unsure, ArithmeticError, ValueError, RecursionError):
            continue
    sides = [text.split(r"\in", 1) for text in (gold, answer)]
    member = [side for side in sides if len(side) > 1 and not side[1][:1].isalpha()]
    if len(member) == 1 and (read_expression(member[0][0]) or ("var",))[0] != "var":
        return False  # x^2 in [1,4] is not [1,4]
    lists = [split_list(text) or ("", []) for text in (gold, answer)]
    if any("\\lor" in text for text in (gold, answer)) and ("()" in (lists[0][0], lists[1][0])):
        return False  # 1 or 2 is no point
    words = [{*re.findall(r"\\l(or|and)(?![A-Za-z])", text)} for text in (gold, answer)]
    relate = RELATION.search(gold) and RELATION.search(answer)
    return False if relate and words in ([{"or"}, {"and"}], [{"and"}, {"or"}]) else None


def _same_relations(gold: str, answer: str) -> bool:
    """Of equations in one variable only where the gold is one that nobody is to solve."""
    (word, left), (other, right) = _read(gold), _read(answer)
    several = max(len(variables((*side,))) for side in (left, right)) > 1
    if not several and all(relation[0] == "=" for relation in left + right):
        if len(left) == len(right) == 1 and not _SOLVED.search(gold) and _same(left[0], right[0]):
            return True
        raise Unsure
    if {word, other} == {"or", "and"}:
        return False
    if not paired(left, right, _same):
        raise Unsure
    return True


def _read(text: str) -> tuple[str, list[Tree]]:
    """Whether "or" or "and" joins relations ("" for one), and the sign and sides of each."""
    word, parts = split_once(text, WORDS)
    if len(parts) > _MAX_PARTS or any(map(_FUNCTION.match, parts)):
        raise Unsure  # f(x)= is no product
    chains = [relations(part) for part in parts]
    solved = {chain[0][0] for chain in chains if chain[0][1] == "="}
    if len(chains) > 1 and (len(solved) == 1 or (word == "or" and max(map(len, chains)) > 1)):
        raise Unsure  # x=1, x=2: roots, whatever the word between them
    found = [_form(*relation) for chain in chains for relation in chain]
    if len(found) > _MAX_PARTS or not all(map(variables, found)):
        raise Unsure  # 0=0
    return word if word == "or" else "and" * (len(found) > 1), found


def _form(left: Tree, sign: str, right: Tree) -> Tree:
    """A sign, and what stands at it with 0: no denominators with variables, nothing greater."""
    if sign in (">", r"\geq"):
        left, right = right, left
    divisions = sum(part[0] == "div" for side in (left, right) for part in parts_of(side))
    if sign == "=" and divisions <= _MAX_DIVISIONS:
        (top, bottom), (other, under) = _fraction(left), _fraction(right)
        left, right = ("mul", top, under), ("mul", other, bottom)
    return {">": "<", r"\geq": r"\leq"}.get(sign, sign), ("sub", left, right)


def _same(one: Tree, other: Tree) -> bool:
    """Whether two relations of `_form` are multiples of each other."""
    try:
        return one[0] == other[0] and (factor(one[1], other[1]) > 0 or one[0] in ("=", r"\neq"))
    except (Unsure, ArithmeticError, ValueError):
        return False


def _fraction(tree: Tree) -> tuple[Tree, Tree]:
    name, *parts = tree
    one: Tree = ("num", Fraction(1))
    if name == "div" and variables(parts[1]):
        (a, b), (c, d) = map(_fraction, parts)
        return ("mul", a, d), ("mul", b, c)
    if name in ("add", "sub", "mul"):
        (a, b), (c, d) = map(_fraction, parts)
        if name == "mul":
            return ("mul", a, c), ("mul", b, d)
        return (name, ("mul", a, d), ("mul", c, b)), ("mul", b, d)
    if name == "neg":
        a, b = _fraction(parts[0])
        return ("neg", a), b
    return tree, one


def _same_families(gold: str, answer: str) -> bool:
    r"""Residue classes and families such as $\frac\pi4 + k\pi$ over the integers k, as sets.

    Raises Unsure: one is no such set, or there are more than 500 classes.
    """
    (name, left), (other, right) = _family(gold), _family(answer)
    if name and other and name != other:
        return False
    unit = left[0][0]
    ratios = {step: abs(fraction_of(step, unit)) for step, _ in left + right}
    top = math.lcm(*(r.numerator for r in ratios.values()))
    period = Fraction(top, math.gcd(*(r.denominator for r in ratios.values())))
    if sum(period / ratios[step] for step, _ in left + right) > _MAX_CLASSES:
        raise Unsure
    starts: list[Tree] = []  # of which none is a fraction of the unit away from another

    def place(start: Tree) -> tuple[int, Fraction]:
        for i, known in enumerate(starts):
            with contextlib.suppress(Unsure, ArithmeticError):
                return i, fraction_of(("sub", start, known), unit)
        starts.append(start)
        return len(starts) - 1, Fraction(0)

    def classes(family: list[tuple[Tree, Tree]]) -> set[tuple[int, Fraction]]:
        return {
            (i, (offset + k * ratios[step]) % period)
            for step, start in family
            for i, offset in [place(start)]
            for k in range(int(period / ratios[step]))
        }

    return classes(left) == classes(right)


def _family(text: str) -> tuple[str, list[tuple[Tree, Tree]]]:
    """The variable ("" if unnamed), and the step and the start of each progression."""
    name, found = "", list[tuple[Tree, Tree]]()
    if text.startswith("\\{") and text.endswith("\\}") and (parts := builder(text)):
        element = _ELEMENT.fullmatch(parts[0])
        text = parts[1] if element else ",".join(parts)
    domain = _DOMAIN.search(text)
    items = split_top(text[: domain.start()] if domain else text, r"\\lor(?![A-Za-z])")
    if not 0 < len(items) <= _MAX_PARTS or (domain and domain[2] != "Z"):
        raise Unsure
    shared = _MODULUS.search(items[-1]) if not any(map(_MODULUS.search, items[:-1])) else None
    for item in items:
        modulus = _MODULUS.search(item) or shared
        if (modulus is None) == (domain is None):
            raise Unsure
        for value in split_top(_MODULUS.sub("", item), ","):
            if named := _NAMED.match(value):
                if name not in ("", named[1]):
                    raise Unsure
                name, value = named[1], value[named.end() :]
            for one in signs(value):
                tree = read_expression(one)
                if tree is None or (modulus and variables(tree)):
                    raise Unsure
                if modulus:
                    found.append((("num", Fraction(modulus[1])), tree))
                elif domain:
                    found.append(linear(in_radians(tree), domain[1]))
    if len(found) > _MAX_CLASSES or not found:
        raise Unsure
    return name, found
