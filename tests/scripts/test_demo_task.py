"""The demo's synthetic task and the files it made: right arithmetic, right ids, right sizes."""

import ast
import json
import operator
import random
import re
from fractions import Fraction
from typing import Any

import demo_task
import pytest
from helpers import ROOT

LAST = ROOT / "demo" / "models" / "step-3900"
OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: lambda a, b: a ** int(b),
    ast.USub: operator.neg,
}


def value(latex: str) -> Fraction:
    """Evaluate sums, products, powers and fractions written in LaTeX, exactly."""
    text = re.sub(r"\\frac\{([^{}]*)\}\{([^{}]*)\}", r"((\1)/(\2))", latex)
    text = text.replace("\\times", "*").replace("^", "**").strip()

    def walk(node: ast.expr) -> Fraction:
        if isinstance(node, ast.Constant):
            return Fraction(node.value)
        if isinstance(node, ast.UnaryOp):
            return OPERATORS[type(node.op)](walk(node.operand))
        assert isinstance(node, ast.BinOp), latex
        return OPERATORS[type(node.op)](walk(node.left), walk(node.right))

    return walk(ast.parse(text, mode="eval").body)


@pytest.mark.parametrize("name", demo_task.FAMILIES)
def test_every_answer_and_every_equality_is_right(name: str) -> None:
    rng = random.Random(7)
    for _ in range(60):
        item = demo_task.FAMILIES[name].make(rng)
        assert re.fullmatch(r"-?\d+|-?\\frac\{\d+\}\{\d+\}", item.answer), item
        if name == "power":
            base, exponent, modulus = map(int, re.findall(r"\d+", item.problem))
            assert int(item.answer) == base**exponent % modulus
            continue
        for chain in item.work.removesuffix(".").split(", "):
            left, *sides = chain.split(" = ")
            if left.endswith("x"):  # 4x = …: at the solution
                left = f"{left[:-1]} * ({item.answer})"
            assert sides and len({value(side) for side in (left, *sides)}) == 1, item


def test_questions_file_is_what_the_generator_makes() -> None:
    lines = (ROOT / "demo" / "questions.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert rows == demo_task.demo_questions()
    assert len(rows) == len({row["problem"] for row in rows}) == 30
    assert [row["id"] for row in rows] == [f"demo-{i:02d}" for i in range(1, 31)]


def test_no_demo_question_is_trained_on() -> None:
    held_out = {row["problem"] for row in demo_task.demo_questions()}
    stream = demo_task.examples(3)
    assert held_out.isdisjoint(next(stream)[0] for _ in range(4_000))


def test_tokens_round_trip_any_text_and_digits_stand_alone() -> None:
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(LAST)
    hostile = "Let $\\triangle ABC$, é∑漢\U0001f600\x00\t\r\n  12  x\u00a0٣ \\boxed{7}" + "".join(
        chr(i) for i in range(256)
    )
    for text in (hostile, *(row["problem"] for row in demo_task.demo_questions())):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert tokenizer.decode(ids) == text
    assert tokenizer.convert_ids_to_tokens(tokenizer("is 1204")["input_ids"])[-4:] == list("1204")
