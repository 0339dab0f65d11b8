r"""The dear layer: parse LaTeX with math_verify and compare exactly, inside a worker process.

Never import this module where hostile input must not hang the process: parsing and simplifying
may take for ever. `grading` runs it in child processes that it can kill.

math_verify does the reading and knows which shapes are comparable. Its numeric test is replaced:
it rounds differences (so that 1/2006! equals 1/2004!) and takes 9% for 9.
"""

import contextlib
import logging
import os
import re
import resource
import signal
from collections.abc import Iterator
from typing import Any, Literal

os.environ.setdefault("SYMPY_GROUND_TYPES", "python")  # gmpy2 ignores signals and limits

import sympy
from latex2sympy2_extended import NormalizationConfig
from math_verify import LatexExtractionConfig, grader, parse, verify

from verifiers.answers.compare import compare_lists, decide_reduced
from verifiers.answers.conventions import STRICT, Conventions
from verifiers.answers.latex import clean, refusal, split_list

logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that its timeout is off

Judgement = Literal["correct", "wrong", "unparsable"]
_JUDGEMENTS: dict[bool | None, Judgement] = {True: "correct", False: "wrong", None: "unparsable"}
# Units are taken off before (latex.split_unit): the library's list has single letters, by which
# "12c" would be 12.
_CONFIG = [
    LatexExtractionConfig(
        boxed_match_priority=0,
        normalization_config=NormalizationConfig(
            basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="all"
        ),
    )
]
_DIGITS = 60
# What an equation with a number may name: AB, P(A), a+b.
_VALUE_OF = re.compile(
    r"(?:\\[a-z]+ ?)?[A-Za-z]{1,4}(?:_\{?\w+\}?)?'?(?:\([A-Za-z ,]+\))?(?:\+[A-Za-z])*"
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
    if gold.count("'") != answer.count("'"):  # math_verify drops primes
        return "wrong"
    decision = decide_reduced(gold, answer, conventions)
    if decision is not None:
        return _JUDGEMENTS[decision.equal]
    if split_list(gold) or split_list(answer) or "\\pm" in gold + answer:
        # Item by item: math_verify pairs the items of sets by a rounded order, and reads (3,1)
        # as an empty interval.
        of_items: list[Judgement] = []

        def same(a: str, b: str) -> bool | None:
            of_items.append(judge(a, b, conventions))
            return {"correct": True, "wrong": False}.get(of_items[-1])

        equal = compare_lists(gold, answer, same, conventions)
        if equal is not None or "unparsable" in of_items:
            return _JUDGEMENTS[equal]
    if ("=" in gold) != ("=" in answer):
        left = (gold if "=" in gold else answer).split("=")[0].strip()
        if not _VALUE_OF.fullmatch(left):
            return "wrong"  # x^2=5 is not 5, though the library takes the right-hand side
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
    values = parse(
        f"\\boxed{{{body}}}",
        _CONFIG,
        fallback_mode="no_fallback",
        extraction_mode="first_match",  # never fall back to a stray number in the text
        parsing_timeout=None,
    )
    if len(values) != 1 or isinstance(values[0], str):
        return None
    value = values[0]
    if value is sympy.S.EmptySet and not re.search(r"\\emptyset|\\varnothing|\\\{ ?\\\}", body):
        return None  # an interval or relation that collapsed while it was read
    if value in (sympy.nan, sympy.zoo):
        return None
    return value / 100 if percent and isinstance(value, sympy.Expr) else value


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
