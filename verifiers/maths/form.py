r"""Whether two equal answers have one form, for questions that ask for one ("factor completely").

One form is the same text up to spelling, the order of terms, factors and items, and where a minus
sign stands. Nothing is computed: 6 is not $2\cdot 3$, $\frac{2}{4}$ not $\frac{1}{2}$,
$\sqrt{12}$ not $2\sqrt{3}$, $(x+1)^2$ not $x^2+2x+1$. So the gold answer must have the form that is
asked for.
"""

import re
from collections import Counter
from collections.abc import Iterator

from bayes_at_n.verifiers.maths.boxed import unboxed
from bayes_at_n.verifiers.maths.compare import reduce_pair
from bayes_at_n.verifiers.maths.lexer import MAX_CHARS, clean
from bayes_at_n.verifiers.maths.parser import Tree, read_expression, read_number
from bayes_at_n.verifiers.maths.structure import split_list

_WRAPPERS = re.compile(r"\\text|[{}() ]")  # of words and choice letters
_DIGITS = re.compile(r"[-+]?[0-9., ]+")


def same_form(gold: str, answer: str) -> bool:
    r"""Whether an answer that is equal to the gold answer has its form, too.

    >>> same_form("(x+1)(x-2)", "f(x)=(x-2)(1+x)"), same_form("(x+1)(x-2)", "x^2-x-2")
    (True, False)
    >>> same_form(r"\frac{x}{2}", r"\tfrac12 x"), same_form(r"\frac{1}{2}", r"\frac{2}{4}")
    (True, False)
    """
    if len(answer) > MAX_CHARS:
        return gold.strip() == answer.strip()
    reduced = reduce_pair(clean(unboxed(gold)), clean(answer))
    return reduced is not None and _form(reduced[0]) == _form(reduced[1])


def _form(text: str) -> str:
    number = read_number(text)
    if number and _DIGITS.fullmatch(text):
        return str(number.value)
    listed = split_list(text)
    items = listed[1] if listed else text.split("=")
    if len(items) > 1:  # equal already, so that the order does not matter here
        return f"[{','.join(sorted(map(_form, items)))}]"
    tree = read_expression(text)
    if tree is None:
        return _WRAPPERS.sub("", text)
    sign, form = _signed(tree)
    return f"-{form}" if sign < 0 else form


def _signed(tree: Tree) -> tuple[int, str]:
    """The sign and the form of a tree."""
    name, *parts = tree
    if name == "num":
        return (-1 if parts[0] < 0 else 1), str(abs(parts[0]))
    if name in ("const", "var"):
        return 1, str(parts[0])
    if name in ("add", "sub", "neg"):
        terms = sorted((form, sign) for sign, form in _terms(tree, 1))
        form, first = terms[0]
        form += "".join("-+"[sign == first] + term for term, sign in terms[1:])
        return first, f"({form})" if len(terms) > 1 else form
    if name in ("mul", "div") or _whole_power(tree):
        sign, factors = _factors(tree)
        listed = sorted(f"{form}^{power:x}" for form, power in factors.items() if form != "1")
        return sign, "*".join(listed) or "1"
    inner = [_signed(part) if isinstance(part, tuple) else (1, str(part)) for part in parts]
    return 1, f"{name}({','.join('-' * (sign < 0) + form for sign, form in inner)})"


def _terms(tree: Tree, sign: int) -> Iterator[tuple[int, str]]:
    if tree[0] == "neg":
        yield from _terms(tree[1], -sign)
    elif tree[0] in ("add", "sub"):
        yield from _terms(tree[1], sign)
        yield from _terms(tree[2], sign if tree[0] == "add" else -sign)
    else:
        own, form = _signed(tree)
        yield own * sign, form


def _factors(tree: Tree) -> tuple[int, Counter[str]]:
    """The sign of a product, and how often each factor is in it; a divisor begins with a slash."""
    if tree[0] in ("mul", "div"):
        (sign, factors), (other, others) = _factors(tree[1]), _factors(tree[2])
        for form, power in others.items():
            inverse = form[1:] if form.startswith("/") else f"/{form}"
            factors[inverse if tree[0] == "div" else form] += power
        return sign * other, factors
    if _whole_power(tree):
        sign, factors = _factors(tree[1])
        times = int(tree[2][1])
        return sign ** (times % 2), Counter({form: n * times for form, n in factors.items()})
    sign, form = _signed(tree)
    return sign, Counter({form: 1})


def _whole_power(tree: Tree) -> bool:
    exponent = tree[2] if tree[0] == "pow" else ("", 0)
    return exponent[0] == "num" and exponent[1] > 0 and exponent[1].denominator == 1
