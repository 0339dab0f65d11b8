"""Questions that ask for a form: what is another form of the gold answer, and what is not."""

import time
from pathlib import Path

import pyarrow as pa
import pytest
from helpers import make_run

from bayes_at_n.pipeline.grade import stage
from bayes_at_n.pipeline.store import outcomes, shards
from bayes_at_n.pipeline.store.columns import QUESTIONS
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.verifiers.maths.form import same_form

SAME = [
    ("(x+1)(x-2)", "(x-2)(x+1)"), ("(x-1)(x+2)", "-(1-x)(x+2)"), ("(x+1)^2", "(x+1)(x+1)"),
    (r"2\sqrt{3}", r"2\cdot\sqrt3"), ("x^2+2x+1", "1+2x+x^2"), ("1/2", r"\frac12"),
    (r"-\frac12", r"\frac{-1}{2}"), ("25", "025"), ("1234", "1,234"), ("12", "12.0"), ("5", "x=5"),
    ("(1,2)", "(1, 2)"), (r"\{1,2\}", "2,1"), ("(x-1)(x-2)", "y=(x-2)(x-1)"),
    (r"\frac{\sqrt2}{2}", r"\frac12\sqrt2"), (r"2^3\cdot3", r"3\cdot 2\cdot2\cdot 2"),
    ("5", r"5\text{ cm}"), ("x^2+y^2=1", "y^2+x^2=1"), ("3(x-1)(x-2)", "3(1-x)(2-x)"),
    (r"\frac{x}{2}", r"\tfrac12 x"), (r"\text{odd}", "odd"), ("-x+1", "1-x"),
]  # fmt: skip
OTHER = [
    ("(x+1)(x-2)", "x^2-x-2"), ("(x+1)^2", "x^2+2x+1"), ("x^2+2x+1", "(x+1)^2"),
    (r"\frac12", r"\frac24"), (r"\frac12", "0.5"), (r"2\sqrt3", r"\sqrt{12}"), ("6", r"2\cdot3"),
    (r"2^3\cdot3", "24"), (r"\frac{\sqrt2}{2}", r"\frac{1}{\sqrt2}"), ("7/2", r"3\frac12"),
    ("2(x+1)(x+3)", "(2x+2)(x+3)"), ("4(x^2+x)", "4x^2+4x"), ("2x", "x+x"), ("x^2+3x", "x^2+x+2x"),
    ("(x^2-1)(x^2+1)", "(x-1)(x+1)(x^2+1)"), ("0.5", r"50\%"), ("x(x-1)", "x^2(1-1/x)"),
    ("5", "10/2"), ("1000", "10^3"), ("(1,1/2)", "(1,2/4)"), (r"\{1,2\}", r"\{1,4/2\}"),
    ("55", r"\sum_{k=1}^{10}k"), ("10", r"\binom52"), ("x", r"\frac{x^2}{x}"),
    ("2x", r"\frac{4x}{2}"),
]  # fmt: skip


def test_spelling_and_order_are_no_other_form() -> None:
    assert [pair for pair in SAME if not same_form(*pair)] == []


def test_an_equal_value_in_another_form() -> None:
    assert [pair for pair in OTHER if same_form(*pair)] == []


@pytest.mark.parametrize(
    "text", ["(" * 30 + "x" + "^{9})" * 30, "(x^{" * 25 + "9" * 500 + "})" * 25, "-(x-" * 200]
)
def test_the_form_of_a_hostile_answer_is_soon_known(text: str) -> None:
    began = time.process_time()
    assert not same_form("x^2", text)
    assert time.process_time() - began < 1


def test_questions_of_a_run_may_ask_for_a_form(tmp_path: Path) -> None:
    texts = {
        "q1": [r"\boxed{\frac{2}{4}}", r"\boxed{\tfrac12}"],
        "q2": [r"\boxed{2/4}", r"\boxed{3}"],
    }
    run = make_run(tmp_path, {"q1": "++", "q2": "++"}, gold={"q1": "1/2", "q2": "1/2"}, texts=texts)

    def graded() -> list[tuple[str, ...]]:
        stage.grade(run)
        rows = outcomes.ruled(run, ["outcome", "layer"]).to_pylist()
        rows.sort(key=lambda row: (row["question_id"], row["trial"]))
        return [(row["outcome"], row["layer"]) for row in rows]

    right, wrong = ("correct", "number"), ("wrong", "number")
    assert graded() == [right, right, right, wrong]
    rows = [row | {"form": "strict" * (row["question_id"] == "q1")} for row in run.questions]
    shards.write_part(tmp_path / "questions.parquet", pa.Table.from_pylist(rows, schema=QUESTIONS))
    run = Run(run.cfg)
    assert graded() == [("wrong", "form"), right, right, wrong]
