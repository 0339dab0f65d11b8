"""The demo's synthetic task and the files it made: right arithmetic, right ids, right sizes."""

import ast
import json
import operator
import random
import re
import sys
from collections.abc import Callable
from fractions import Fraction
from math import gcd
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import demo_task  # noqa: E402

MODELS = sorted((ROOT / "demo" / "models").glob("step-*"))
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


def last_tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(MODELS[-1])


def numbers(problem: str) -> list[int]:
    return [int(n) for n in re.findall(r"-?\d+", problem)]


def dollars(problem: str) -> Fraction:
    """The value of the expression between the dollar signs."""
    return value(problem.split("$")[1])


def roots(problem: str) -> int:
    found = re.search(r"x\^2 (?:([+-]) (\d+)x )?([+-]) (\d+) = 0", problem)
    assert found
    b = int((found[1] or "+") + (found[2] or "0"))
    c = int(found[3] + found[4])
    return max(x for x in range(-200, 200) if x * x + b * x + c == 0)


def solved(problem: str) -> Fraction:
    found = re.search(r"(\d+)x ([+-]) (\d+) = (-?\d+)\$", problem)
    assert found
    return Fraction(int(found[4]) - int(found[2] + found[3]), int(found[1]))


def pair(problem: str) -> int:
    s, d = numbers(problem)
    return next(x * (x + d) for x in range(s + 1) if 2 * x + d == s)


def balls(problem: str) -> Fraction:
    red, blue = (int(n) for n in re.findall(r"(\d+) (?:red|blue)", problem))
    draws = [(i, j) for i in range(red + blue) for j in range(red + blue) if i != j]
    return Fraction(sum(i < red and j < red for i, j in draws), len(draws))


def sequence(problem: str) -> int:
    a, b, c, n = numbers(problem)
    assert b - a == c - b
    return a + (b - a) * (n - 1)


def power(problem: str) -> int:
    base, exponent, modulus = numbers(problem)
    return base**exponent % modulus


ANSWERS: dict[str, Callable[[str], Fraction | int]] = {
    "affine": dollars,
    "sequence": sequence,
    "linear": solved,
    "sum": lambda p: sum(numbers(p)),
    "product": dollars,
    "difference": dollars,
    "rectangle": lambda p: numbers(p)[1] * (numbers(p)[0] // 2 - numbers(p)[1]),
    "roots": roots,
    "mean": lambda p: Fraction(sum(numbers(p)), 3),
    "percent": lambda p: Fraction(numbers(p)[0] * numbers(p)[1], 100),
    "remainder": lambda p: numbers(p)[0] % numbers(p)[1],
    "divisor": lambda p: gcd(*numbers(p)),
    "fraction": dollars,
    "square": lambda p: numbers(p)[0] ** 2,
    "pair": pair,
    "long_product": dollars,
    "brackets": dollars,
    "power": power,
    "series": lambda p: sum(range(numbers(p)[0], numbers(p)[1] + 1)),
    "balls": balls,
    "big_product": dollars,
}


@pytest.mark.parametrize("name", demo_task.FAMILIES)
def test_every_answer_and_every_equality_is_right(name: str) -> None:
    rng = random.Random(7)
    for _ in range(60):
        item = demo_task.FAMILIES[name].make(rng)
        assert value(item.answer) == ANSWERS[name](item.problem), item
        assert re.fullmatch(r"-?\d+|-?\\frac\{\d+\}\{\d+\}", item.answer), item
        if name == "power":
            base, exponent, modulus = numbers(item.problem)
            powers = [base**k % modulus for k in range(1, exponent + 1)]
            assert numbers(item.work) == powers
            continue
        for chain in item.work.removesuffix(".").split(", "):
            left, *sides = chain.split(" = ")
            if left.endswith("x"):  # 4x = …: at the solution
                left = f"{left[:-1]} * ({item.answer})"
            assert len({value(side) for side in (left, *sides)}) == 1, item
            assert sides, item


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


def test_there_are_twelve_checkpoints_under_forty_megabytes() -> None:
    assert len(MODELS) >= 12
    weights = [folder / "model.safetensors" for folder in MODELS]
    sizes = [path.stat().st_size for path in weights]
    assert all(1.5e6 < size < 3e6 for size in sizes)
    assert sum(sizes) < 40e6
    assert len({path.read_bytes() for path in weights}) == len(MODELS)
    for folder in MODELS:
        config = json.loads((folder / "config.json").read_text())
        generation = json.loads((folder / "generation_config.json").read_text())
        assert config["architectures"] == ["Qwen3ForCausalLM"]
        assert config["dtype"] == "bfloat16"
        assert config["max_position_embeddings"] == 8192
        for ids in (config, generation):
            assert (ids["eos_token_id"], ids["pad_token_id"]) == (2, 0)


def test_tokens_round_trip_any_text_and_digits_stand_alone() -> None:
    tokenizer = last_tokenizer()
    hostile = "Let $\\triangle ABC$, é∑漢\U0001f600\x00\t\r\n  12  x\u00a0٣ \\boxed{7}" + "".join(
        chr(i) for i in range(256)
    )
    for text in (hostile, *(row["problem"] for row in demo_task.demo_questions())):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert tokenizer.decode(ids) == text
    assert tokenizer.convert_ids_to_tokens(tokenizer("is 1204")["input_ids"])[-4:] == list("1204")


def test_template_ids_are_training_ids() -> None:
    import train_demo

    tokenizer = last_tokenizer()
    train_demo.check_ids(tokenizer)
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert text == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert tokenizer.eos_token == "<|im_end|>"
