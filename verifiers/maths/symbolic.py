r"""The dear layer: parse LaTeX with math_verify and compare exactly, inside a worker process.

Never import this module where hostile input must not hang the process: parsing and simplifying
may take for ever. `grading` runs it in child processes that it can kill.

math_verify does the reading and knows which shapes are comparable. Its numeric test is replaced:
it rounds differences (so that 1/2006! equals 1/2004!) and takes 9% for 9.
"""

import contextlib
import logging
import operator
import os
import re
import resource
import signal
from collections.abc import Iterator
from typing import Any, Literal

os.environ.setdefault("SYMPY_GROUND_TYPES", "python")  # gmpy2 ignores signals and limits

import sympy
from latex2sympy2_extended import latex2sympy
from latex2sympy2_extended.latex2sympy2 import ConversionConfig
from math_verify import grader, parse, verify
from math_verify.grader import should_treat_as_complex
from sympy.core.function import AppliedUndef

from bayes_at_n.verifiers.maths.compare import decide_reduced
from bayes_at_n.verifiers.maths.conventions import STRICT, Conventions
from bayes_at_n.verifiers.maths.expression import AMBIGUOUS
from bayes_at_n.verifiers.maths.labels import sides
from bayes_at_n.verifiers.maths.latex import clean, refusal, split_list
from bayes_at_n.verifiers.maths.lists import cells_of, compare_chain, compare_lists

logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that its timeout is off

Judgement = Literal["correct", "wrong", "unparsable"]
_JUDGEMENTS: dict[bool | None, Judgement] = {True: "correct", False: "wrong", None: "unparsable"}
_CONVERSION = ConversionConfig(lowercase_symbols=False)
_DIGITS = 60
# What the parser reads as it is meant. It drops or misreads much else without a word: dots, primes,
# transposes, set operations inside an expression.
_COMMANDS = re.compile(r"\\(?:[A-Za-z]+|.)")
_GREEK_NAMES = """
alpha beta gamma delta epsilon varepsilon zeta eta theta kappa lambda mu nu xi rho sigma tau
phi varphi chi psi omega Gamma Delta Theta Lambda Sigma Phi Psi Omega
"""
_GREEK = frozenset(_GREEK_NAMES.split())
_READ = r"""
frac sqrt cdot times div pi infty emptyset cup cap setminus in leq geq neq ln log exp sin cos
tan cot sec csc arcsin arccos arctan sinh cosh tanh binom lfloor rfloor lceil rceil max min gcd
lcm sum prod int lim to mathbb begin end text overline bar vec hat tilde mod bmod { } \ %
"""
_UNDERSTOOD = _GREEK.union(_READ.split())
_CHARACTERS = re.compile(r"[-+*/^_=<>()\[\]{}|.,!:;&\\ 0-9A-Za-z]*")
_MISLEADING = re.compile(
    r"!!|![0-9]|\|[_^]|[_^]\{?\\\{|[0-9]\\frac\{[0-9]+\}\{[0-9]+\}[^}]|[0-9]{2}\.[0-9]*\.|\^\{?(?:T|\\top)\b"
    r"|/ ?(?:[0-9.]+|[a-zA-Z]) ?(?:[A-Za-z(]|\\(?:pi|sqrt|frac|[a-z]*log|ln|sin|cos|tan)(?![a-z]))"
    r"|\\vec(?![a-z]).*\\(?:cdot|times)|\\(?:cdot|times) ?\{?\\vec"
    r"|(?<!sqrt)\[[0-9]*(?:[a-z]|\.[0-9])[0-9a-z]*\]|\\\{[-+/0-9a-z]*[a-z][-+/0-9a-z]*\\\}"
    r"|[fgh]\^\{?-1\}?\(|\\text ?\{[^{}]*[^A-Za-z{}][^{}]*\}|\\(?:sin|cos|tan)\^\{-"
)
# It adds two numbers side by side, as those of 1\frac{1}{2} are: 3(4) would be 7.
_SIDE_BY_SIDE = re.compile(
    r"((?<=[0-9)!])(?<!_[0-9])|\\(?:frac|binom)\{[^{}]*\}\{[^{}]*\})(?=\(|\\(?:binom|gcd|lcm|max|min))"
    r"|((?<=[)!])|\\(?:frac|binom)\{[^{}]*\}\{[^{}]*\})(?=\\frac|[0-9])"
)
_LETTERS = re.compile(
    r"\\(?:begin|end|mathbb) ?\{[A-Za-z]+\}"
    r"|\\(?:overline|bar|vec|hat|tilde|text)|\\([A-Za-z]+)|([A-Za-z])"
)
_TRIGONOMETRY = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)")
_DEGREES = re.compile(r"\{?(?<![0-9.])([0-9]+(?:\.[0-9]+)?)\^\{\\circ\}\}?")


def init_worker(memory_mb: int, plain: bool) -> None:
    """Prepare a worker process: bound its memory, let a kill work at once, bend the library.

    Not bent for `plain`, which wants math_verify as it is.
    """
    if not plain:
        grader.sympy_numeric_eq = lambda *_: False
        grader.sympy_symbolic_eq = exactly_equal
        grader.sympy_solve_and_compare = _solve_and_compare
        grader.sympy_compare_symbols = operator.eq  # it takes E for e, and letters for words
    limit = memory_mb * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in (signal.SIGTERM, signal.SIGPROF):
        signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """End this process when the work inside has used so much processor time.

    The kernel does it: no Python handler runs while one huge multiplication does.
    """
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def plain(gold: str, text: str) -> Judgement:
    """What math_verify by itself says of a whole completion, with its default settings.

    "unparsable" where it finds nothing to compare in either text; it calls that wrong.
    """
    parsed = [parse(side, parsing_timeout=None) for side in (f"${gold}$", text)]
    if not all(parsed):
        return "unparsable"
    return _JUDGEMENTS[verify(*parsed, timeout_seconds=None)]


def judge(gold: str, answer: str, conventions: Conventions = STRICT) -> Judgement:
    """Compare two cleaned texts; an exception of the comparison itself means "unparsable".

    Raises MemoryError: the worker's memory limit was reached.
    """
    if refusal(gold) or refusal(answer):
        return "unparsable"
    decision = decide_reduced(gold, answer, conventions)
    if decision is not None:
        return _JUDGEMENTS[decision.equal]
    of_items: list[Judgement] = []

    def same(a: str, b: str) -> bool | None:
        if a.startswith("\\{") != b.startswith("\\{"):
            return False  # as an item, 1 is not the set of 1
        of_items.append(judge(a, b, conventions))
        return {"correct": True, "wrong": False}.get(of_items[-1])

    lists = split_list(gold), split_list(answer)
    if any(lists) or "\\pm" in gold + answer or (cells_of(gold) and cells_of(answer)):
        # Item by item: math_verify pairs the items of sets by a rounded order, and reads (3,1)
        # as an empty interval.
        equal = compare_lists(gold, answer, same, conventions)
        if equal is not None or "unparsable" in of_items:
            return _JUDGEMENTS[equal]
        if any(found and not found[0] for found in lists) and not all(lists):
            return "wrong"  # 2,2 would be the set of 2
    parts = sides(answer)
    if len(sides(gold)) != len(parts) and min(len(sides(gold)), len(parts)) == 1:
        # An equation is not its right-hand side; a value in several forms is each of them.
        equal = compare_chain(gold, parts, same) if len(parts) > 1 else False
        return "unparsable" if "unparsable" in of_items and equal is None else _JUDGEMENTS[equal]
    gold_value, answer_value = read(gold), read(answer)
    if gold_value is None or answer_value is None:
        return "unparsable"
    try:
        limits = {"timeout_seconds": None, "raise_on_error": True}
        equal = verify(gold_value, answer_value, **limits)
        if not equal and re.search(r"[<>]|\\[lg]eq", gold + answer):  # an interval, a relation
            equal = verify(answer_value, gold_value, **limits)
    except MemoryError:
        raise
    except Exception:
        return "unparsable"
    return _JUDGEMENTS[equal]


def read(text: str) -> Any:
    """Parse a cleaned text into a SymPy object, or None; the whole text must parse."""
    percent = text.endswith("\\%")
    body = text.removesuffix("\\%").strip()
    if _TRIGONOMETRY.search(body):
        body = _DEGREES.sub(r"(\\frac{\1 \\pi}{180})", body)
    if not _is_understood(body):
        return None
    body = _SIDE_BY_SIDE.sub(r"\1\2\\cdot ", body)
    try:
        value = latex2sympy(
            body,
            is_real=not should_treat_as_complex(body),
            normalization_config=None,
            conversion_config=_CONVERSION,
        )
    except MemoryError:
        raise
    except Exception:  # whatever a parser may raise on odd text
        return None
    if not _holds_all(value, body):
        return None
    if value is sympy.S.EmptySet and not re.search(r"\\emptyset|\\varnothing|\\\{ ?\\\}", body):
        return None  # an interval or relation that collapsed while it was read
    if isinstance(value, sympy.Basic) and (value.has(sympy.nan, sympy.zoo) or _is_undefined(value)):
        return None
    if "^+" not in body and "^{+" not in body and isinstance(value, sympy.Basic):
        value = value.replace(lambda e: isinstance(e, sympy.Limit), _from_both_sides)
    return value / 100 if percent and isinstance(value, sympy.Expr) else value


def _is_understood(body: str) -> bool:
    commands = {command[1:] for command in _COMMANDS.findall(body)}
    plain = _CHARACTERS.fullmatch(body) is not None
    misleading = _MISLEADING.search(body) or AMBIGUOUS.search(body)
    return plain and commands <= _UNDERSTOOD and not misleading


def _holds_all(value: Any, body: str) -> bool:
    """Whether every letter of the text is in what was read from it."""
    letters = set[str]()
    for command, letter in _LETTERS.findall(body):
        letters |= {letter} if letter else {command} & _GREEK
    known = {"e", "i"} | ({"d"} if "\\int" in body else set())
    names = set[str]()
    for atom in (part for item in _items(value) for part in sympy.preorder_traversal(item)):
        name = getattr(atom, "name", "") or getattr(atom.func, "__name__", "")
        if isinstance(atom, sympy.Symbol | AppliedUndef):
            names |= {name, *re.findall("[A-Za-z]", name), *re.findall("[A-Za-z]+", name)}
        elif atom is sympy.I:
            names.add("I")
    return letters <= names | known


def _items(value: Any) -> list[Any]:
    return value.flat() if isinstance(value, sympy.MatrixBase) else [value]


def _is_undefined(value: sympy.Basic) -> bool:
    """Whether zero to a power that is not positive stands in it, or a sum from 5 to 1."""
    backwards = any(
        (start - end).is_positive
        for series in value.atoms(sympy.Sum, sympy.Product)
        for _, start, end in series.limits
    )
    return backwards or any(
        power.exp.is_number and power.base.is_number and power.base.doit() == 0
        and not power.exp.doit().is_positive
        for power in value.atoms(sympy.Pow)
    )  # fmt: skip


def _from_both_sides(limit: Any) -> Any:
    """A limit without a direction, which the parser takes from the right."""
    expression, variable, point, _ = limit.args
    return limit if point.is_infinite else sympy.Limit(expression, variable, point, "+-")


def why_unreadable(gold: str) -> str:
    """Say why a gold answer cannot be read, or "" if it can."""
    text = clean(gold)
    if reason := refusal(text):
        return reason
    return "" if read(text) is not None else "it is no LaTeX that math_verify can parse"


def exactly_equal(a: Any, b: Any) -> bool:
    """Decide a = b for two SymPy expressions without rounding either.

    Decimals are the fractions they spell. Constants that differ in their first 60 significant
    digits are different; those that agree must also agree in 240, or `simplify` must prove them
    equal. Expressions with variables are equal when their difference simplifies to 0.
    """
    if isinstance(a, sympy.MatrixBase) and isinstance(b, sympy.MatrixBase):
        return a.shape == b.shape and all(map(exactly_equal, a.flat(), b.flat()))
    if not isinstance(a, sympy.Expr) or not isinstance(b, sympy.Expr):
        return False
    a, b = _exact(a), _exact(b)
    if a == b:
        return True
    difference = a - b
    if difference.is_Rational:
        return bool(difference == 0)
    if a.is_number and b.is_number:
        numeric = _equal_in_digits(a, b, _DIGITS)
        if numeric is False:
            return False
        if numeric and _equal_in_digits(a, b, 4 * _DIGITS):
            return True
    return bool(sympy.simplify(difference) == 0)


def _exact(value: Any) -> Any:
    value = value.replace(lambda e: isinstance(e, sympy.Float), lambda e: sympy.Rational(str(e)))
    return value.replace(sympy.UnevaluatedExpr, lambda inner: inner).doit()


def _equal_in_digits(a: Any, b: Any, digits: int) -> bool | None:
    """Compare two constants to a relative precision; None where it cannot be reached."""
    try:
        a, b = (x.evalf(digits, strict=True, maxn=8 * digits) for x in (a, b))
    except MemoryError:
        raise
    except Exception:  # PrecisionExhausted, among others: an exact zero in disguise
        return None
    if not (a.is_finite and b.is_finite):
        return None
    size = max(abs(a), abs(b))
    return bool(abs(a - b) <= size * sympy.Float(10) ** (3 - digits))


def _solve_and_compare(gold: Any, answer: Any, *rounding: int) -> bool:
    """Call two relations equal if their solutions are, and there are any."""
    if not sympy.solve(gold, gold.free_symbols):
        return False  # e^x = 0 and e^x = -1 have the same solutions: none
    return bool(_library_solve_and_compare(gold, answer, *rounding))


# The one place where the library is bent; a release without these names must fail loudly.
assert callable(grader.sympy_numeric_eq) and callable(grader.sympy_symbolic_eq)
_library_solve_and_compare = grader.sympy_solve_and_compare
