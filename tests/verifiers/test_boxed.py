"""Extraction: the last closed box of the final part, in linear time."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bayes_at_n.verifiers import Asked, Extraction, compare, extract, find

HARMONY_FINAL = "<|channel|>final<|message|>"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"So \boxed{42}.", "42"),
        (r"\boxed{1} then \boxed{2}", "2"),
        (r"\fbox{7}", "7"),
        (r"\boxed {7}", "7"),
        (r"\boxed 5$ done", "5"),
        (r"It is $\boxed 12$.", "12"),
        (r"\boxed{\frac{1}{\sqrt{2}}}", r"\frac{1}{\sqrt{2}}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\{1,2}", r"\{1,2"),
        (r"\boxed{\boxed{5}}", "5"),
        (r"\boxed{x = $\boxed{5}$}", "5"),
        (r"\boxed{\boxed{5}6}", "{5}6"),
        (r"\boxed{-\boxed{5}}", "-{5}"),
        (r"\boxed{1+\boxed{2}\boxed{3}}", "1+{2}{3}"),
        (r"\boxed{6}\phantom{\boxed{5}}", "6"),
        (r"\boxed{6\phantom{ \boxed{5}}}", r"6\phantom{ {5}}"),
        (r"\boxed{3} and \boxed{4", "3"),
        (r"\boxed{the last is \boxed{4}", "4"),
        (r"} } \boxed{5} }", "5"),
        (r"{\boxed{5}", "5"),
        ('{"answer": "\\\\boxed{5}"}', "5"),
        ("\\boxed{\n 5 \n}", "5"),
        (r"\boxed{5}. As asked, it stands in \boxed{}.", "5"),
        (r"\boxed{ }", ""),
        (r"\boxedfoo{5} \boxed{6}", "6"),
        ("The answer is 42.", Extraction(None, "no_box")),
        ("", Extraction(None, "no_box")),
        (r"Put it in \boxed, he said", Extraction(None, "no_box")),
        (r"\boxed{42", Extraction(None, "unclosed")),
        (r"\boxed{\frac{1}{2}", Extraction(None, "unclosed")),
    ],
)
def test_the_box_is_found(text: str, answer: str | Extraction) -> None:
    found = Extraction(answer, "boxed") if isinstance(answer, str) else answer
    assert extract(text, truncated=False) == found


def test_only_the_final_part_counts() -> None:
    thinking = r"<think>maybe \boxed{1}</think>"
    assert extract(thinking + "No idea.", truncated=False).reason == "no_box"
    assert extract(thinking + r"\boxed{2}", truncated=False).answer == "2"
    assert extract(r"a</think>\boxed{1}</think>none", truncated=False).answer is None
    assert extract(thinking, truncated=False, reasoning_end=None).answer == "1"
    assert extract(r"no marker: \boxed{3}", truncated=False).answer == "3"
    harmony = r"<|channel|>analysis<|message|>\boxed{1}<|end|><|start|>assistant" + HARMONY_FINAL
    assert extract(harmony, truncated=False, reasoning_end=HARMONY_FINAL).answer is None
    done = extract(harmony + r"\boxed{2}", truncated=False, reasoning_end=HARMONY_FINAL)
    assert done.answer == "2"


@given(st.text(alphabet="ab \\{}$5\n", max_size=200), st.booleans())
def test_any_text_is_answered(text: str, boxed: bool) -> None:
    extraction = extract(text + (r"\boxed{77}" if boxed else ""), truncated=False)
    assert (extraction.answer is None) == (extraction.reason != "boxed")
    if boxed and "\\" not in text:
        assert extraction.answer == "77"


SEVERAL = [
    (r"$\boxed{2}$ and $\boxed{3}$", "2, 3"), (r"\boxed{3}, \boxed{2}.", r"\{2,3\}"),
    (r"First \boxed{7}. So $x=\boxed{2}$ or $x=\boxed{3}$", "2,3"),
    ("\\boxed{2}\n\n\\boxed{3}", "3,2"),
    (r"\boxed{2} \quad\text{and}\quad \boxed{3}", r"2\text{ and }3"),
    (r"\boxed{1}, \boxed{2,3}", "1,2,3"), (r"\boxed{1} and \boxed{\pm 2}", "1,2,-2"),
    (r"\boxed{1}, \boxed{2}. Wait. \boxed{3}, \boxed{4}", "3,4"),
    (r"\boxed{9}, \boxed{2,3}", "2,3"),
    (r"$$\boxed{(2, 2)} \quad \boxed{(6, 2)}$$", "(2, 2), (6, 2)"),
    (r"\boxed{1}, \boxed{(2,3)}", "(2,3)"), (r"\boxed{1} or \boxed{2}", "2"),
    ("\\boxed{1},\n\\boxed{2}", r"\boxed{1} and \boxed{2}"),
    (r"\boxed{5} and finally \boxed{\pm 2}", "2,-2"),
    (r"\boxed{0.5} & \boxed{\frac13}", r"\frac12,\frac13"),
]  # fmt: skip
NOT_SEVERAL = [
    (r"\boxed{1}, \boxed{2}, \boxed{3}", "2,3"), (r"\boxed{1}, \boxed{2}, \boxed{3}", "1,2"),
    (r"\boxed{2}, \boxed{3}. No: \boxed{2}, \boxed{4}", "2,3"),
    (r"\boxed{2}, \boxed{3}, no, \boxed{4}", "2,3"), (r"\boxed{2}, not \boxed{3}", "2,3"),
    (r"\boxed{2}. \boxed{3}", "2,3"), (r"\boxed{2}\boxed{3}", "2,3"),
    (r"\boxed{2} - \boxed{3}", "2,3"), (r"\boxed{2} + \boxed{3}", "2,3"),
    (r"\boxed{2} to \boxed{3}", "2,3"), (r"\boxed{2}, \boxed{2}", "2,3"),
    (r"\boxed{2}, \boxed{3}", "(2,3)"), (r"\boxed{2}, \boxed{3}", "[2,3]"),
    (r"\boxed{1}, \boxed{234}", "1,234"), (r"\boxed{2}, \boxed{3}, \boxed{5}", "5,2"),
    (r"\boxed{1} then \boxed{2}, then \boxed{3}", "1,2,3"), (r"\boxed{2}, \boxed{3", "2,3"),
    (r"\boxed{2}, \boxed{3}</think>none", "2,3"),
    (r"\boxed{2}, \boxed{3}</think>\boxed{3}", "2,3"), (r"\boxed{2}, \boxed{3}", r"2,3,\pm1"),
    ("\\boxed{2}\n\\boxed{x}", "2,3"),
]  # fmt: skip


def several(text: str, gold: str) -> bool:
    answer = find(text, truncated=False, asked=Asked("auto", gold=gold)).answer
    return answer is not None and compare(gold, answer) is True


def test_several_boxes_are_one_answer_if_the_gold_answer_has_so_many_parts() -> None:
    assert [pair for pair in SEVERAL if not several(*pair)] == []
    assert [pair for pair in NOT_SEVERAL if several(*pair)] == []


# What hostile LaTeX is made of: what opens, and what closes it.
NESTS = [
    (r"\boxed{", "}"), (r"\boxed{x=\boxed{", "}}"), (r"\boxed{\boxed{5}", ""), ("{", "}"),
    (r"\boxed{a", "b}"), (r"\fbox{$", "$}"), (r"\frac{1}{", "}"), (r"\sqrt{", "}"), ("(", ")"),
    (r"\left(1,", r"\right)"), (r"\{1,", r"\}"), ("2^{", "}"), ("x_{", "}"), ("|", "|"),
    ("-(", ")"), (r"\text{", "}"), (r"\phantom{\boxed{", "}}"), (r"x<1\lor ", ""),
    (r"\boxed{1}, ", ""), ("Answer: (A) ", ""),
    (r"\begin{matrix}", r"\end{matrix}"), (r"\sum_{k=1}^{", "}"), ("0", ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("depth", "seconds"),
    [
        (40, 1),
        (2_000, 5),
        *(pytest.param(n, n // 3_000, marks=pytest.mark.soak) for n in (10**5, 10**6)),
    ],
)
@pytest.mark.parametrize(("opens", "closes"), NESTS)
def test_no_depth_and_no_length_is_too_much(
    opens: str, closes: str, depth: int, seconds: float
) -> None:
    nested = opens * depth + "5" + closes * depth
    start = time.process_time()
    for text in (
        nested,
        rf"\boxed{{{nested}}}",
        rf"\boxed{{5}} {opens * depth}",
        rf"\boxed{{{nested}",
    ):
        for answer, policy in (("math", "auto"), ("math", "all"), ("choice", "auto")):
            asked = Asked(policy, choices=("4", "5"), gold="1, 2")  # type: ignore[arg-type]
            found = find(text, answer=answer, truncated=False, asked=asked).answer
            if found is not None and answer == "math":
                assert not compare("1, 2", found)
    assert time.process_time() - start < seconds
