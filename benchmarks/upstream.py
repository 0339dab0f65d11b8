"""The public examples of other graders, read out of clones of their repositories.

    python -m benchmarks.upstream --clones FOLDER --to examples.jsonl

FOLDER holds clones under the names in `SOURCES`; those that are missing are named and left out.
Test files are read as syntax, never run: what is not a literal is skipped. A line has source, gold,
completion, expected, boxed, and convention: what others decide otherwise than this project, on
purpose ("" in the core). Where upstream compares a pair, the answer stands in a box. The examples
are other people's text: they stay out of this repository.
"""

import argparse
import ast
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import common

SOURCES = {
    "Math-Verify": "tests/test_*.py",
    "lighteval": "tests/unit/metrics/test_extractive_match.py",
    "NeMo-Skills": "tests/test_math_equal.py",
    "open-instruct": "open_instruct/test_ground_truth_utils.py",
    "inspect_ai": "tests/scorer/test_math.py",
    "math": "modeling/math_equivalence_test.py",
    "matharena": "src/matharena/parse_manual.py",
}
_NO_MATHS = ("abc", "multilingual", "strict", "security", "eager", "string_extraction")
Case = tuple[str, str, bool]  # gold, completion, expected


def main() -> None:
    """Read what is there; say what is not."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clones", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--to", type=Path, required=True, metavar="FILE")
    args = parser.parse_args()
    rows, seen = list[dict[str, Any]](), set[Case]()
    for name, pattern in SOURCES.items():
        files = sorted((args.clones / name).glob(pattern))
        if not files:
            common.out.print(f"{name}: not in {args.clones}")
        for file in files:
            for test, case in _cases(name, file):
                if case not in seen:
                    seen.add(case)
                    gold, completion, expected = case
                    how = _convention(test, gold, completion, expected)
                    rows.append({"source": f"{name} {file.name}::{test}", "gold": gold,
                                 "completion": completion, "expected": expected,
                                 "boxed": r"\boxed" in completion, "convention": how})  # fmt: skip
    common.write_jsonl(args.to, rows)
    common.out.print(f"{len(rows)} examples: {dict(Counter(r['source'].split()[0] for r in rows))}")


def _cases(name: str, file: Path) -> Iterator[tuple[str, Case]]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    if name == "inspect_ai":
        for row in json.loads((file.parent / "math_cases.json").read_text(encoding="utf-8")):
            case = (str(row["target"]), str(row["output"]), row["expected"] == "C")
            yield row["source"], case
    for node in ast.walk(tree):
        if (
            name == "matharena"
            and isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Dict)
        ):
            found = _literal(node.value)
            for answer, gold in found.items() if isinstance(found, dict) else ():
                if isinstance(answer, str) and isinstance(gold, str):
                    table = ast.unparse(node.targets[0])
                    whole = answer if table == "complete_mapper" else _boxed(answer)
                    yield table, (gold, whole, True)
        if isinstance(node, ast.FunctionDef) and _is_test(node.name):
            yield from ((node.name, case) for case in _of_test(node))


def _convention(test: str, gold: str, completion: str, expected: bool) -> str:
    """What makes this a matter of convention, or ""."""
    boxes = re.findall(r"\\boxed\{(.*)\}", completion, re.DOTALL)
    answer = boxes[-1] if boxes else completion
    if test.endswith("_mapper"):
        return "mapped by hand"
    if not re.search(r"\$|\\[(\[]|boxed", completion) or re.search(r"[a-z]{3,} [a-z]{3,}", answer):
        return "prose"
    if re.search(r"%|percent|pct", gold + answer):
        return "percent"
    rounded, exact = r"\.\d{2,}", r"frac|sqrt|pi|/"
    for one, other in ((gold, answer), (answer, gold)):
        if expected and re.search(rounded, one) and re.search(exact, other):
            return "decimals"
    items = [sorted(re.findall(r"[1-9.]+", text)) for text in (gold, answer)]
    if not expected and items[0] == items[1] and not re.search(r"[\[({xk]", gold):
        return "lists" if "," in gold else "extraction" if "\n" in completion else ""
    return "relations" if test == "test_set_rel_assymetry" else ""


def _is_test(name: str) -> bool:
    return name.startswith("test") and not any(word in name for word in _NO_MATHS)


def _of_test(test: ast.FunctionDef) -> Iterator[Case]:
    ending = ast.unparse(test.body[-1])
    right = not any(word in ending for word in ("False", "'incorrect'", "error"))
    for call in [d for d in test.decorator_list if isinstance(d, ast.Call) and len(d.args) > 1]:
        names = _names(call.args[0])
        if isinstance(call.args[1], ast.List | ast.Tuple):
            for element in call.args[1].elts:
                yield from _of_row(names, _literal(element), right, ending)
    local = {
        ast.unparse(line.targets[0]): _literal(line.value)
        for line in test.body
        if isinstance(line, ast.Assign)
    }
    if {"test_in", "test_out"} <= set(local):
        yield str(local["test_out"]), _boxed(local["test_in"]), right


def _of_row(names: list[str], row: Any, right: bool, ending: str) -> Iterator[Case]:
    if names == ["output_pair"] and isinstance(row, tuple):
        yield str(row[0]), _boxed(row[1]), right
    if not isinstance(row, tuple) or len(row) != len(names):
        return
    cell = dict(zip(names, row, strict=True))
    expected = cell.get("expected", cell.get("result"))
    if {"gold", "pred"} <= set(cell) and expected is not None:
        yield str(cell["gold"]), str(cell["pred"]), bool(expected)
    elif {"answer", "target"} <= set(cell) and "status" in ending:
        yield str(cell["target"]), _boxed(cell["answer"]), right
    elif {"prediction", "label", "expected_score"} <= set(cell):
        yield str(cell["label"]), str(cell["prediction"]), cell["expected_score"] == 1.0


def _names(node: ast.expr) -> list[str]:
    found = _literal(node)
    parts = found.split(",") if isinstance(found, str) else found or []
    return [str(part).strip() for part in parts]


def _boxed(answer: Any) -> str:
    guard = " " if str(answer).endswith("\\") else ""  # a box that the answer does not open
    return rf"The final answer is $\boxed{{{answer}{guard}}}$."


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


if __name__ == "__main__":
    common.main(main)
