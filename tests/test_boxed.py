"""Extraction: the last closed box of the final part, in linear time."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifiers import Extraction, extract

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
        (r"\boxed{3} and \boxed{4", "3"),
        (r"\boxed{the last is \boxed{4}", "4"),
        (r"} } \boxed{5} }", "5"),
        (r"{\boxed{5}", "5"),
        ('{"answer": "\\\\boxed{5}"}', "5"),
        ("\\boxed{\n 5 \n}", "5"),
        (r"\boxed{5}. As asked, it stands in \boxed{}.", "5"),
        (r"\boxed{ }", ""),
        (r"\boxedfoo{5} \boxed{6}", "6"),
    ],
)
def test_the_box_is_found(text: str, answer: str) -> None:
    assert extract(text, truncated=False) == Extraction(answer, "boxed")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("The answer is 42.", "no_box"),
        ("", "no_box"),
        (r"Put it in \boxed, he said", "no_box"),
        (r"\boxed{42", "unclosed"),
        (r"\boxed{\frac{1}{2}", "unclosed"),
    ],
)
def test_no_answer_has_a_reason(text: str, reason: str) -> None:
    assert extract(text, truncated=False) == Extraction(None, reason)  # type: ignore[arg-type]


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


def test_a_truncated_attempt_has_not_answered() -> None:
    assert extract(r"<think>\boxed{5}", truncated=True) == Extraction(None, "truncated")


@given(st.text(alphabet="ab \\{}$5\n", max_size=200), st.booleans())
def test_any_text_is_answered(text: str, boxed: bool) -> None:
    extraction = extract(text + (r"\boxed{77}" if boxed else ""), truncated=False)
    assert (extraction.answer is None) == (extraction.reason != "boxed")
    if boxed and "\\" not in text:
        assert extraction.answer == "77"


@pytest.mark.parametrize(
    "unit",
    ["{", "}", "\\", r"\{", r"\boxed", r"\boxed{", r"\boxed{1}", r"\boxed{ ", r"\fbox ", " ", "5"],
)
def test_time_is_linear_on_hostile_text(unit: str) -> None:
    def seconds(times: int) -> float:
        text = r"\boxed{" + unit * times
        start = time.process_time()
        extract(text, truncated=False)
        return time.process_time() - start

    seconds(10_000)
    # 100,000 repetitions take about 0.1 s; anything quadratic takes minutes.
    assert seconds(100_000) < 5
