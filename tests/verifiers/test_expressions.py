"""Exact and high-precision comparison, against values computed another way."""

import random
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayes_at_n.verifiers import Conventions, extract
from bayes_at_n.verifiers.maths.compare import compare, decide
from bayes_at_n.verifiers.maths.lexer import clean
from bayes_at_n.verifiers.maths.numeric import compare_expressions
from bayes_at_n.verifiers.maths.parser import read_expression
from bayes_at_n.verifiers.maths.rational import exact

# Two readings, or nothing sure: left to the next layer.
OPEN = ["1/2x", "3\\frac{5}{2}", "2 3", "a/b/c", "x=", "", "(" * 60]


@pytest.mark.parametrize("text", OPEN)
def test_refused(text: str) -> None:
    assert read_expression(clean(text)) is None


def test_a_division_by_what_may_be_zero_is_left_open() -> None:
    assert compare_expressions(r"\frac{1}{\sqrt{6}-\sqrt{2}\sqrt{3}}", "1") is None
    assert compare_expressions(r"\sqrt{\sqrt{6}-\sqrt{2}\sqrt{3}}", "0") is None
    assert compare_expressions("0^{0}", "1") is None


small = st.integers(-60, 60)
radicands = st.sampled_from([2, 3, 5, 6, 7, 10, 15])
surds = st.tuples(small, small.filter(bool), radicands, st.integers(1, 30))


def spelled(a: int, b: int, c: int, d: int, rng: random.Random) -> str:
    """(a + b√c)/d in one of many spellings."""
    k, root = rng.randint(1, 5), rng.choice([rf"\sqrt{{{c}}}", rf"\cdot {c}^{{1/2}}"])
    inside = rf"\sqrt{{{b * b * c}}}" if b > 0 and rng.random() < 0.5 else rf"{b}{root}"
    forms = [
        rf"\frac{{{k * a}+{k}\cdot({inside})}}{{{k * d}}}",
        rf"\dfrac{{{a}}}{{{d}}}+\frac{{{inside}}}{{{d}}}",
        rf"({inside} + ({a}))/{d}",
        rf"\left({a} - ({-b})\sqrt{{{c}}}\right) \cdot \frac{{1}}{{{d}}}",
    ]
    return rng.choice(forms)


@settings(max_examples=300, deadline=None)
@given(surds, surds, st.integers(0, 10**6))
def test_surds_agree_with_their_normal_form(
    p: tuple[int, ...], q: tuple[int, ...], seed: int
) -> None:
    rng = random.Random(seed)
    assert compare(spelled(*p, rng), spelled(*p, rng)) is True
    (a, b, c, d), (e, f, g, h) = p, q
    same = Fraction(a, d) == Fraction(e, h) and c == g and Fraction(b, d) == Fraction(f, h)
    left, right = spelled(*p, rng), spelled(*q, rng)
    assert compare(left, right) is same and compare(right, left) is same


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.fractions(max_denominator=50), min_size=2, max_size=5, unique=True), st.randoms()
)
def test_sets_and_tuples(items: list[Fraction], rng: random.Random) -> None:
    texts = [rf"\frac{{{x.numerator}}}{{{x.denominator}}}" for x in items]
    mixed = rng.sample([f"{x.numerator}/{x.denominator}" for x in items], len(items))
    straight = ", ".join(texts)
    assert compare(rf"\{{{straight}\}}", rf"\left\{{{','.join(mixed)}\right\}}") is True
    other = [*mixed[1:], f"{max(items) + 1}"]
    assert compare(rf"\{{{straight}\}}", rf"\{{{','.join(other)}\}}") is False
    ordered = [f"{x.numerator}/{x.denominator}" for x in items] == mixed
    assert compare(f"({straight})", f"({','.join(mixed)})") is ordered
    assert compare(straight, ",".join(mixed), Conventions(lists="ordered")) is ordered


numbers = st.recursive(
    st.integers(0, 12).map(str),
    lambda inner: st.tuples(st.sampled_from(["+", "-", "*", "/", "^"]), inner, inner),
    max_leaves=8,
)


def _latex(tree: object) -> str:
    if isinstance(tree, str):
        return tree
    name, a, b = (tree[0], _latex(tree[1]), _latex(tree[2]))  # type: ignore[index]
    if name == "/":
        return rf"\frac{{{a}}}{{{b}}}"
    if name == "^":
        return f"({a})^{{{b}}}"
    return rf"({a}) \cdot ({b})" if name == "*" else f"({a}){name}({b})"


def _value(tree: object) -> Fraction | None:
    """By plain fractions; None where they do not suffice."""
    if isinstance(tree, str):
        return Fraction(int(tree))
    name, a, b = tree[0], _value(tree[1]), _value(tree[2])  # type: ignore[index]
    if a is None or b is None or (b == 0 and name == "/"):
        return None
    if name == "^":
        small = b.denominator == 1 and abs(b) < 20 and max(abs(a.numerator), a.denominator) < 1e9
        return a ** int(b) if small and not (a == 0 and b <= 0) else None
    return {"+": a.__add__, "-": a.__sub__, "*": a.__mul__, "/": a.__truediv__}[name](b)


@given(numbers)
def test_exact_values_agree_with_fractions(tree: object) -> None:
    read, expected = read_expression(clean(_latex(tree))), _value(tree)
    assert read is not None
    if expected is not None:
        assert exact(read) == expected


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=r"0123456789{}()[]\frac sqrtpie!^_+-*/|.,xnd%:=", max_size=80))
def test_any_text_is_answered(text: str) -> None:
    decision = decide("17", text)
    assert decision is None or decision.equal in (True, False)
    assert decide(text, text) is None or decide(text, text).equal  # type: ignore[union-attr]
    for boxes in ("last", "all", "or_math"):
        extract(text, truncated=False, boxes=boxes)  # type: ignore[arg-type]


def test_conventions() -> None:
    rounded = Conventions(decimals="rounded")
    assert compare("1/3", "0.333", rounded) is True and compare("1/3", "0.334", rounded) is False
    assert compare(r"\sqrt{2}", "1.414", rounded) is True
    assert compare(r"\sqrt{2}", "1.4", rounded) is not True  # too few digits to mean anything
    assert compare("4.123105625617661", r"\sqrt{17}", rounded) is True
    required = Conventions(units="required")
    assert compare(r"5\text{ cm}", r"5\text{ centimetres}", required) is True
    assert compare(r"5\text{ cm}", "5", required) is False
    ignored = Conventions(units="ignored")
    assert all(
        compare("5", f"5{tail}", ignored) for tail in (r"\text{ cm}", "cm", "s", r"\text{ foo}")
    )
    assert compare(r"5\text{ m}", r"5\text{ cm}", ignored) is True and not compare(
        "5", "6s", ignored
    )
    with pytest.raises(ValueError, match="lists='any'"):
        Conventions(lists="any")  # type: ignore[arg-type]


def test_huge_numbers_are_compared_by_size() -> None:
    for tower in ("9^{9^{9^{9}}}", r"\binom{10^{9}}{5 \cdot 10^{8}}", "(10^{6})!", r"3^{10^{8}}"):
        assert compare("17", tower) is False, tower
    assert compare(r"7^{7^{7^{7}}}", r"7^{7^{7^{7}}}") is True
