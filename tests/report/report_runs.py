"""What models wrote in the runs whose report the tests look at, and tables made by hand."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from helpers import add_verdicts, change_attempts

HOSTILE = [
    "<script>window.owned=1</script> \\boxed{2}",
    "<img src=x onerror='window.owned=1'> \\boxed{2}",
    "</script><script>window.owned=1</script> \\boxed{2}",
    "[x](javascript:window.owned=1) $\\href{javascript:window.owned=1}{x}$ \\boxed{2}",
    "$\\text{<img src=x onerror=window.owned=1>}$ \u2028window.owned=1\u2029 \\boxed{2}",
    "*/window.owned=1;/*`${window.owned=1}` \U0001d465 \\(x_1 < \\frac{1}{2}\\) \\boxed{2}",
]
# Expressions that grow, that fill a page or that lead out of it, and sound ones.
GROWING = r"\def\a{xxxxxxxx}\def\b{\a\a\a\a\a\a\a\a}\def\c{\b\b\b\b\b\b\b\b}\c\c\c\c\c\c\c\c"
MATHS = [
    r"\mathbb{R}+\mathbf{v}",
    r"\hspace{2em}x",
    GROWING,
    *("{" * 290 + "}" * 290, "x" + "'" * 500, "&" * 600, "\\frac" * 100, "\\left(" * 90, "é" * 590),
    *(r"\rule{99999em}{9999em}", r"\hspace{-9999em}x", r"\hspace{1e9em}", r"\Huge\kern999em y"),
    *(r"\href{javascript:window.owned=1}{x}", r"\url{javascript:window.owned=1}"),
    *(r"\htmlStyle{color:red}{y}", r"\htmlData{x=1,onclick=window.owned=1}{y}", r"\color{red}z"),
    r"\includegraphics[height=9em]{javascript:window.owned=1}",
    r"\text{</mtext><img src=x onerror=window.owned=1><script>window.owned=1</script>}",
]
BOX = "\\boxed{2}"
MARKS = {"q<b>1": "110~1u", "q2": "010101", "q/3": "-+1111"}


def verdicts(run: Any, rows: dict[tuple[str, int], tuple[float, float, float]]) -> None:
    """A verifier's table made by hand, raw and calibrated alike."""
    table = []
    for (qid, trial), three in rows.items():
        row: dict[str, Any] = {"question_id": qid, "trial": trial}
        for letter, share in zip("abc", three, strict=True):
            row |= {letter: share, f"raw_{letter}": share, f"direct_{letter}": share}
            row |= {f"logprob_{letter}": float(np.log(share)), f"base_{letter}": 0.0}
        best = "ABC"[int(np.argmax(three))]
        table.append(row | {"mass": 1.0, "label": best, "tokens": 9, "cut": False})
    add_verdicts(run, table)


def retoken(run: Any, tokenizer: Any) -> None:
    """Give every attempt the tokens that its text really has, with log-probs that rise."""

    def changed(row: dict[str, Any]) -> dict[str, Any]:
        ids = tokenizer(row["text"], add_special_tokens=False)["input_ids"]
        row["token_ids"], row["completion_tokens"] = [*ids, tokenizer.eos_token_id], len(ids) + 1
        return row | {"logprobs": [-0.02 * i for i in range(len(ids) + 1)]}

    change_attempts(run, changed)


def value(path: Path) -> Any:
    """What a side file hands over."""
    return json.loads(path.read_text().partition(",")[2].removesuffix(");\n"))


def columns(path: Path) -> dict[str, list[Any]]:
    """The columns of a file of numbers; those of texts decoded."""
    found: dict[str, Any] = value(path)
    for name, of in found.items():
        if isinstance(of, dict):
            found[name] = [None if code < 0 else of["values"][code] for code in of["codes"]]
    return found


def put(path: Path, value: Any) -> None:
    """Write a side file that hands over something else."""
    path.write_text(f'bayesReport("{path.stem}",{json.dumps(value)});\n')
