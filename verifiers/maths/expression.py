r"""Read an expression in LaTeX into a small tree: no names are looked up, nothing is run.

A tree is a tuple: ("num", Fraction), ("const", "pi"), ("var", "x_1") or an operation with its
arguments, such as ("add", a, b); of a sum or product the index, both ends and the term. What the
grammar does not know, or could be read in two ways, is refused: `\log` without a base, `1/2x`,
`f(x)`, `\sum_{k=1}^{3} k+1`, `-7\bmod 3`, a word.

>>> read_expression(r"2\sqrt{3}")
('mul', ('num', Fraction(2, 1)), ('root', ('num', Fraction(3, 1)), ('num', Fraction(2, 1))))
>>> read_expression("2x/3y") is None
True
"""

import functools
import re
from fractions import Fraction
from typing import Any

from bayes_at_n.verifiers.maths.exact import REPEATING, decimal
from bayes_at_n.verifiers.maths.latex import MAX_CHARS, MAX_DEPTH

Tree = tuple[Any, ...]

_TOKEN = re.compile(REPEATING + r"|\\[A-Za-z]+|\\.|[0-9]+(?:\.[0-9]*)?|\.[0-9]+|\S")
TRIGONOMETRIC = frozenset(["sin", "cos", "tan", "cot", "sec", "csc"])
_OTHERS = ["arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "ln", "exp"]
_FUNCTIONS = {f"\\{name}": name for name in [*TRIGONOMETRIC, *_OTHERS]}
_OF_LISTS = {r"\gcd": "gcd", r"\lcm": "lcm", r"\max": "max", r"\min": "min"}
_SERIES = {r"\sum": "sum", r"\prod": "prod"}
_CONSTANTS = {r"\pi": "pi", "e": "e", "i": "i"}
_BRACKETS = {  # what closes them, and what they stand for
    "(": (")", ""),
    "{": ("}", ""),
    "|": ("|", "abs"),
    r"\lfloor": (r"\rfloor", "floor"),
    r"\lceil": (r"\rceil", "ceil"),
}
_OPENS = {r"\frac", r"\sqrt", r"\binom", r"\log"}  # a factor that stands behind another, as do:
_OPENS |= _CONSTANTS.keys() | _FUNCTIONS.keys() | _OF_LISTS.keys() | (_BRACKETS.keys() - {"|"})
_OPENS |= _SERIES.keys()
_TIMES = frozenset([r"\times", r"\cdot", "*"])
_FUNCTION_NAMES = frozenset("fghFGHPQW")  # before a bracket: applied, not multiplied
_ARITHMETIC = frozenset([r"\phi", r"\varphi", r"\sigma", r"\tau", r"\mu", r"\omega"])
_WORD = re.compile(r"(?<!\\)(?<![A-Za-z])[A-Za-z]{3,}")
_NAME = re.compile(r"[A-Za-z]|\\(?:alpha|beta|gamma|delta|theta|lambda|mu|phi|varphi|omega)")
_DIGITS = frozenset(".0123456789")
# No product or power of the letters in it: dy/dx, f^{(2)}, A\times B.
AMBIGUOUS = re.compile(
    r"\\frac\{(?:d|\\partial ?)(?:\^\{[0-9n]\})?[^{}]*\}\{(?:d|\\partial ?)[a-z]"
    r"|(?<![A-Za-z])d[a-z]/d[a-z]|[A-Za-df-z]\^\{\((?:[0-9]+|[a-z])\)\}|[A-Z]\\times ?[A-Z]"
)
_MAX_TOKENS = 300  # and so the height of a tree, which is walked recursively
_DEGREE = ("^", "{", r"\circ", "}")


class _Refused(ValueError):
    """The text is outside the grammar, or ambiguous."""


@functools.lru_cache(maxsize=1024)
def read_expression(text: str) -> Tree | None:
    """Read a cleaned text (see `latex.clean`) that is one expression, or return None.

    The time is linear in the text, which may have `MAX_CHARS` characters and `MAX_DEPTH` levels.
    A degree sign is kept as ("degree", x), a percent sign at the end as ("percent", x).
    """
    if not text or len(text) > MAX_CHARS or not text.isascii():
        return None
    if AMBIGUOUS.search(text) or _WORD.search(re.sub(r"\\[A-Za-z]+", "", text)):
        return None
    percent = text.endswith("\\%")
    tokens = _TOKEN.findall(text.removesuffix("\\%"))
    if len(tokens) > _MAX_TOKENS:
        return None
    parser = _Parser(tokens)
    try:
        tree = parser.sum()
        parser.expect("")
    except (_Refused, RecursionError):
        return None
    if percent and tree[0] in ("add", "sub"):
        return None  # 1+50\%
    return ("percent", tree) if percent else tree


class _Parser:
    """Recursive descent over the tokens; "" stands for the end."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = [*tokens, "", "", "", ""]
        self.at = self.depth = 0
        self.indices: list[str] = []  # of the sums and products around

    @property
    def next(self) -> str:
        return self.tokens[self.at]

    def take(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1]

    def accept(self, *tokens: str) -> str:
        """Take the next token if it is one of these; else ""."""
        return self.take() if self.next in tokens else ""

    def expect(self, token: str) -> None:
        if self.take() != token:
            raise _Refused

    def sum(self) -> Tree:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _Refused
        negative = False
        while sign := self.accept("+", "-"):
            negative ^= sign == "-"
        tree = self.product()
        if not negative and self.accept(r"\bmod"):  # the remainder of -7, or the opposite of one?
            tree = ("mod", tree, self.factor())
            if self.next in ("+", "-"):
                raise _Refused
        tree = ("neg", tree) if negative else tree
        while sign := self.accept("+", "-"):
            tree = ("add" if sign == "+" else "sub", tree, self.product())
        self.depth -= 1
        return tree

    def product(self, side_by_side: bool = False) -> Tree:
        tree, divided = self.factor(), False
        while True:
            if side_by_side and self.next in (*_TIMES, "/", r"\div"):
                raise _Refused  # \prod_{k=1}^{3} k\cdot2: how often is it doubled?
            if operator := self.accept(*_TIMES, "/", r"\div"):
                times = operator in _TIMES
                if divided and not times:
                    raise _Refused  # a/b/c
                tree, divided = ("mul" if times else "div", tree, self.signed()), not times
            elif self.starts_factor():
                factorials = self.tokens[self.at - 1] == self.tokens[self.at + 1] == "!"
                if divided or (self.next[0].isdigit() and not factorials):
                    raise _Refused  # 1/2\pi; 2 3; 3!2, but not 5!7!
                tree = self.juxtaposed(tree)
            else:
                return tree

    def juxtaposed(self, left: Tree) -> Tree:
        after_digits = self.tokens[self.at - 1].isdigit() and self.next == r"\frac"
        right = self.factor()
        if after_digits and left[0] == "mul":
            raise _Refused  # 2\cdot1\frac12
        # A whole number before a fraction of two whole numbers is a mixed number.
        if after_digits and left[0] == "num" and right[0] == "div":
            top, bottom = right[1:]
            if top[0] == bottom[0] == "num":
                if not 0 < top[1] < bottom[1]:
                    raise _Refused  # 3\frac{5}{2}: as likely a product
                return ("add", left, right)
        return ("mul", left, right)

    def signed(self) -> Tree:
        return ("neg", self.factor()) if self.accept("-") else self.factor()

    def starts_factor(self) -> bool:
        token = self.next
        return token in _OPENS or token[:1] in _DIGITS or _NAME.fullmatch(token) is not None

    def factor(self) -> Tree:
        tree = self.primary()
        while True:
            if tuple(self.tokens[self.at : self.at + 4]) == _DEGREE:
                self.at += 4
                tree = ("degree", tree)
            elif self.accept("!"):
                tree = ("double_factorial" if self.accept("!") else "factorial", tree)
                if self.next == "!":
                    raise _Refused
            elif self.accept("^"):
                name = tree[1] if tree[0] == "var" else ""
                tree = ("pow", tree, self.argument())
                if self.next == "^":
                    raise _Refused
                self.refuse_call(name)
            else:
                return tree

    def argument(self) -> Tree:
        """A braced expression or a single token."""
        if self.next == "{" or (len(self.next) == 1 and self.next.isalnum()):
            return self.primary()
        raise _Refused

    def group(self, closing: str) -> Tree:
        """What stands between the next token and `closing`."""
        self.take()
        tree = self.sum()
        self.expect(closing)
        return tree

    def primary(self) -> Tree:
        token = self.next
        if token[:1] in _DIGITS:
            return ("num", decimal(self.take()))
        if token in _BRACKETS:
            closing, name = _BRACKETS[token]
            tree = self.group(closing)
            return (name, tree) if name else tree
        if token in self.indices:
            return ("var", "#" + self.take())
        if token in _SERIES:
            return self.of_series()
        if token in _CONSTANTS:
            self.take()
            self.refuse_call(token)
            return ("const", _CONSTANTS[token])
        if self.accept(r"\frac", r"\binom"):
            return ("div" if token == r"\frac" else "binom", self.braced(), self.braced())
        if self.accept(r"\sqrt"):
            degree = self.group("]") if self.next == "[" else ("num", Fraction(2))
            return ("root", self.braced(), degree)
        if self.accept(r"\log"):
            self.expect("_")
            base = self.argument()
            return ("div", ("ln", self.applied()), ("ln", base))
        if token in _OF_LISTS:
            return self.of_list()
        if token in _FUNCTIONS:
            return self.function()
        if _NAME.fullmatch(token):
            return self.variable()
        raise _Refused

    def variable(self) -> Tree:
        name = self.take()
        if self.accept("_"):
            braced = self.accept("{")
            subscript = self.take()
            if braced:
                self.expect("}")
            if not subscript.isalnum() or subscript in self.indices:
                raise _Refused
            name += "_" + subscript
        self.refuse_call(name)
        return ("var", name)

    def refuse_call(self, name: str) -> None:
        """`f(x)`, `f^{-1}(x)`, `\\phi(n+1)`, `\\pi(n)`: it may be applied."""
        alone = self.tokens[self.at + 2] == ")" and name != "e"
        if self.next == "(" and (name[:1] in _FUNCTION_NAMES or name in _ARITHMETIC or alone):
            raise _Refused

    def braced(self) -> Tree:
        if self.next != "{":
            raise _Refused
        return self.group("}")

    def of_list(self) -> Tree:
        name = _OF_LISTS[self.take()]
        self.expect("(")
        items = [self.sum()]
        while self.accept(","):
            items.append(self.sum())
        self.expect(")")
        return (name, *items)

    def of_series(self) -> Tree:
        name, high = _SERIES[self.take()], None
        if self.accept("^"):
            high = self.argument()
        self.expect("_")
        self.expect("{")
        index = self.take()
        self.expect("=")
        low = self.sum()
        self.expect("}")
        if high is None:
            self.expect("^")
            high = self.argument()
        if len(index) > 1 or not index.isalpha():
            raise _Refused
        self.indices.append(index)
        term = self.product(side_by_side=name == "prod")
        self.indices.pop()
        if self.next in ("+", "-", r"\bmod"):
            raise _Refused  # is what follows a part of each term?
        return (name, "#" + index, low, high, term)

    def function(self) -> Tree:
        name = _FUNCTIONS[self.take()]
        power = self.argument() if self.accept("^") else None
        if power is not None and (power[0] != "num" or power[1] < 1):
            raise _Refused  # \sin^{-1}: the inverse or the reciprocal
        tree: Tree = (name, self.applied())
        return tree if power is None else ("pow", tree, power)

    def applied(self) -> Tree:
        """What a function stands before: brackets, or numbers and constants side by side."""
        if self.next in ("(", "{"):
            tree = self.primary()
            if self.next in ("!", "^"):
                raise _Refused  # \sin(x)^2: which comes first?
            return tree
        tree = self.factor()
        while self.next in (*_CONSTANTS, r"\frac", r"\sqrt") or _NAME.fullmatch(self.next):
            tree = ("mul", tree, self.factor())
        if self.next == "/" or (self.starts_factor() and self.next not in _FUNCTIONS):
            raise _Refused  # \sin\pi/6; \sin 2(3); but \sin x\cos x
        return tree
