"""Tables in five forms: hostile texts, digits, and terminals of any width."""

import csv
import io
import json
import math
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from bayes_at_n.pipeline.compare import leaderboard, rankings
from bayes_at_n.pipeline.compare.cohort import from_arrays
from bayes_at_n.pipeline.config import analysis
from bayes_at_n.pipeline.display import table as tabular

HOSTILE = "a_b & 50% #1 {x} $y$ ~^\\ |z| <s> \x1b[31mred\nline"


def hostile() -> tabular.Table:
    columns = [
        tabular.Column("name", "name", align="left"),
        tabular.Column("low", "low", None, "{:.3f}", group="μ ±"),
        tabular.Column("high", "high", r"$h$", "{:.3f}", group="μ ±"),
        tabular.Column("all", "all of it", wide=True),
    ]
    rows: list[dict[str, Any]] = [
        {"name": HOSTILE, "low": 0.5, "high": math.inf, "all": "=1+1"},
        {"name": "plain", "low": None, "high": math.nan, "all": True},
    ]
    return tabular.Table("a title with %", columns, rows, ["note_1", "z ≥ 1"])


def test_latex_holds_no_command_that_came_with_a_text() -> None:
    text = tabular.to_latex(hostile())
    (row,) = [line for line in text.splitlines() if "red" in line]
    assert r"a\_b \& 50\% \#1 \{x\} \$y\$ \textasciitilde{}\textasciicircum{}" in row
    assert r"\textbackslash{} \textbar{}z\textbar{} \textless{}s\textgreater{} " in row
    assert r"{} \textbackslash{}u001b[31mred line" in row  # the escape byte is spelt
    assert len(row.replace(r"\&", "").split("&")) == 3
    assert row.rstrip().endswith(r"\\") and r"$\infty$" in row
    assert text.count(r"\toprule") == text.count(r"\midrule") == text.count(r"\bottomrule") == 1
    assert r"\caption{a title with \%. note\_1. z $\geq$ 1.}" in text
    assert r"& \multicolumn{2}{c}{$\mu$ $\pm$} \\" in text and r"\cmidrule(lr){2-3}" in text
    assert text.count("{") == text.count("}") and "\x1b" not in text


@pytest.mark.parametrize(
    "text", ["=1+1", "+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", " =1", "\n +1", "\tx", "\u00a0=1"]
)
def test_csv_holds_no_formula_and_numbers_stay_numbers(text: str) -> None:
    columns = [tabular.Column(key, key) for key in (text, "number", "least", "word")]
    row = {text: text, "number": -0.5, "least": -math.inf, "word": "a - b = c"}
    made = tabular.to_csv(tabular.Table("t", columns, [row]))
    head, cells = csv.reader(io.StringIO(made, newline=""))
    assert head == [f"'{text}", "number", "least", "word"]
    assert cells == [f"'{text}", "-0.5", "-inf", "a - b = c"]


def test_markdown_and_csv_keep_their_shape() -> None:
    lines = tabular.to_markdown(hostile()).splitlines()
    body = [line for line in lines if line.startswith("|")]
    assert [line.replace(r"\|", "").count("|") for line in body] == [4] * 4
    assert r"\<s\>" in body[2] and "\x1b" not in body[2]
    rows = list(csv.DictReader(io.StringIO(tabular.to_csv(hostile()))))
    assert rows[0]["name"] == HOSTILE and rows[0]["high"] == "inf" and rows[0]["all"] == "'=1+1"
    assert rows[1]["low"] == rows[1]["high"] == ""
    found = json.loads(tabular.to_json(hostile()))
    assert found["rows"][1] == {"name": "plain", "low": None, "high": None, "all": True}
    assert found["rows"][0]["high"] == "inf" and found["notes"] == ["note_1", "z ≥ 1"]


@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_terminal_cuts_no_number(width: int) -> None:
    cfg = analysis.load([])
    outcomes = np.random.default_rng(0).integers(0, 2, (3, 5, 8))
    one = from_arrays("d", ["good", "near", "poor"], [*"abcde"], outcomes)
    board = leaderboard.leaderboard(one, cfg)
    console = Console(width=width, file=io.StringIO(), markup=False)
    for table in (board, leaderboard.attempts(board), rankings.neighbors(one, cfg)):
        console.print(tabular.to_rich(table, width))
        text = console.file.getvalue()  # type: ignore[attr-defined]
        assert max(map(len, text.splitlines())) <= width
        for row in table.rows:
            for column in tabular.rounded(table):
                if not column.wide:
                    assert tabular.formatted(column, row[column.key]) in text, column.key
    console.print(tabular.to_rich(hostile(), width))
    assert "\x1b[31m" not in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_narrow_terminal_leaves_out_minor_columns_and_breaks_no_name() -> None:
    models, sets = [f"DeepSeek-R1-Distill-Qwen-{i:02}B" for i in range(20)], "abcd"
    columns = [tabular.Column("model", "model", align="left"), tabular.Column("mean", "mean")]
    columns += [tabular.Column("half", "±", minor=1)]
    columns += [tabular.Column(name, f"dataset{name}") for name in sets]
    rows = [{"model": m, "mean": 0.5, "half": 0.017} | dict.fromkeys(sets, 0.5) for m in models]
    for width, shown in ((80, False), (90, True)):
        console = Console(width=width, file=io.StringIO(), markup=False)
        console.print(tabular.to_rich(tabular.Table("scores", columns, rows), width))
        text = console.file.getvalue()  # type: ignore[attr-defined]
        assert all(text.count(name) == 1 for name in models)
        assert max(map(len, text.splitlines())) <= width and len(text.splitlines()) == 23
        assert ("±" in text) == shown
