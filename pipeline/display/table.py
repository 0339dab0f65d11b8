"""One definition of a table, and its forms: terminal, CSV, JSON, LaTeX, Markdown.

A cell is a number, a text, or None if it has no value. CSV and JSON hold full values; the others
format them as their column says. Texts come from files and models: they are escaped wherever a form
gives characters a meaning.
"""

import csv
import html
import io
import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from rich import box
from rich.console import Group
from rich.table import Table as RichTable
from rich.text import Text

from bayes_at_n.pipeline.base.console import clean, clean_line, prints_json, results

Align = Literal["left", "right", "center"]
# Texts that a spreadsheet would evaluate as a formula.
_FORMULA = re.compile(r"\s*[=+\-@]|[\t\r]")
CHANCE = "chance"  # the format of a probability or a p-value
_LEAST = 20  # characters of a name, below which columns go into another block instead
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#|~$])")
_GREEK = "α alpha β beta δ delta Δ Delta λ lambda μ mu ρ rho σ sigma Σ Sigma τ tau φ varphi Φ Phi"
_MARKS = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",  # a command for it would need another font encoding than LaTeX's own
    # Unicode characters for which plain LaTeX has no glyph, or not the mathematical one.
    "−∞": r"$-\infty$",
    "−": "$-$",
    "–": "--",
    "±": r"$\pm$",
    "×": r"$\times$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "∞": r"$\infty$",
    "√": r"$\surd$",
    "≠": r"$\neq$",
    "→": r"$\rightarrow$",
    **{letter: f"$\\{name}$" for letter, name in re.findall(r"(\S) (\S+)", _GREEK)},
}


@dataclass(frozen=True)
class Column:
    """One column: the key of its cells, and how they are formatted."""

    key: str
    title: str
    latex: str | None = None  # the title as LaTeX source; None: `title`, escaped
    format: str = "{}"  # for str.format; applied to numbers only
    sigma: str = ""  # the key of their σ, which decides their decimals; "": `format` does
    half: str = ""  # the key of half-widths of their intervals, which a page prints behind them
    align: Align = "right"
    group: str = ""  # adjacent columns of one group share a head
    short: str | None = None  # the title on the terminal; None: `title`
    wide: bool = False  # only in CSV and JSON, not on a page or the terminal
    best: bool = False  # its largest value is bold on a page and on the terminal
    minor: int = 0  # left out of a terminal that is too narrow, the largest first; 0: never


@dataclass(frozen=True)
class Table:
    """A table; `notes` are the lines of its caption: rule, method, confidence, caveats.

    >>> table = Table(
    ...     "scores",
    ...     [Column("model", "model", align="left"), Column("mu", "μ", r"$\\mu$", "{:.2f}")],
    ...     [{"model": "a_b", "mu": 0.123}],
    ... )
    >>> print(to_markdown(table))
    **scores**
    <BLANKLINE>
    | model   |    μ |
    |:--------|-----:|
    | a\\_b    | 0.12 |
    <BLANKLINE>
    >>> print(to_csv(table))
    model,mu
    a_b,0.123
    <BLANKLINE>
    """

    title: str
    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Any]]
    notes: Sequence[str] = field(default_factory=tuple)

    def to_pandas(self) -> Any:
        """Return all columns, including wide ones, as a data frame named by their keys."""
        import pandas as pd  # half a second

        keys = [column.key for column in self.columns]
        return pd.DataFrame([[row.get(key) for key in keys] for row in self.rows], columns=keys)

    def _repr_markdown_(self) -> str:
        return to_markdown(self)  # in a notebook


def columns(
    format: str = "{}",
    titles: Mapping[str, str] | None = None,
    *,
    group: str = "",
    align: Align = "right",
    wide: bool = False,
    **more: str,
) -> list[Column]:
    """Return adjacent columns of one format and group; `titles` and keywords map keys to titles.

    >>> [(c.key, c.title, c.group) for c in columns(group="τ", low="from", high="to")]
    [('low', 'from', 'τ'), ('high', 'to', 'τ')]
    """
    return [
        Column(key, title, format=format, align=align, group=group, wide=wide)
        for key, title in {**(titles or {}), **more}.items()
    ]


def of_columns(title: str, columns: Mapping[Column, Any], notes: Sequence[str] = ()) -> Table:
    """Build a table from the values of each column; NaN becomes None, NumPy's values Python's.

    >>> of_columns("s", {Column("model", "model"): "ab", Column("mu", "μ"): [0.5, np.nan]}).rows
    [{'model': 'a', 'mu': 0.5}, {'model': 'b', 'mu': None}]
    """
    keys = [column.key for column in columns]
    lists = [v.tolist() if isinstance(v, np.ndarray) else v for v in columns.values()]
    rows = [
        {key: None if cell != cell else cell for key, cell in zip(keys, row, strict=True)}
        for row in zip(*lists, strict=True)
    ]
    return Table(title, list(columns), rows, notes)


def decimals(sigmas: Iterable[float | None]) -> int:
    """Return how many decimals values with these σ get; four if no σ is above 0.

    The least σ keeps one significant digit, two if its first is 1.

    >>> decimals([0.0068, 0.0701]), decimals([0.0106]), decimals([0.07, None]), decimals([12.5])
    (3, 3, 2, 0)
    """
    positive = [float(s) for s in sigmas if s is not None and 0 < s < math.inf]
    if not positive:
        return 4
    digits, _, power = f"{min(positive):.2e}".partition("e")
    return min(max((float(digits) < 1.95) - int(power), 0), 9)


def rounded(table: Table) -> list[Column]:
    """Return the columns of a table; those with a σ get a format from :func:`decimals`."""
    made = []
    for column in table.columns:
        if column.sigma:
            places = decimals(row.get(column.sigma) for row in table.rows)
            percents = "%" in column.format
            form = f"{{:.{max(0, places - 2)}%}}" if percents else f"{{:.{places}f}}"
            column = replace(column, format=form, sigma="")
        made.append(column)
    return made


def best_rows(table: Table, column: Column) -> set[int]:
    """Return the rows with the largest value of a column marked `best`; none for others."""
    values = {i: row[column.key] for i, row in enumerate(table.rows) if column.key in row}
    if not column.best or len(values) < 2:
        return set()
    return {i for i, value in values.items() if value == max(values.values())}


def formatted(column: Column, value: Any) -> str:
    """Format a cell for a reader; "" if it has no value.

    >>> formatted(Column("x", "x", format="{:.1f}"), 0.25), formatted(Column("x", "x"), None)
    ('0.2', '')
    >>> formatted(Column("x", "interval", format="{:.2f}"), (0.25, 0.5))
    '0.25 to 0.50'
    """
    if isinstance(value, tuple):
        return " to ".join(formatted(column, part) for part in value)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        if math.isinf(value):
            return "∞" if value > 0 else "−∞"
        return chance(value) if column.format == CHANCE else column.format.format(value)
    return clean_line(str(value))


def chance(probability: float) -> str:
    """Format a probability with two decimals, and never as certain.

    >>> chance(0.666), chance(0.9981), chance(0.0004)
    ('0.67', '>0.99', '<0.01')
    """
    if not 0.005 <= probability < 0.995:
        return ">0.99" if probability > 0.5 else "<0.01"
    return f"{probability:.2f}"


def show(*tables: Table) -> None:
    """Print tables on standard output, as wide as the terminal, separated by empty lines."""
    for i, table in enumerate(table for table in tables if table.rows):
        if i:
            results.print()
        results.print(to_rich(table, results.width), soft_wrap=False)


def print_json(record: Mapping[str, Any]) -> None:
    """Print a verb's results with --json, as one line on standard output; else nothing."""
    if prints_json():
        print(clean(json.dumps(plain(record), ensure_ascii=False, default=str)), flush=True)


def to_rich(table: Table, width: int = 80) -> Group:
    """Render a table for the terminal, without columns marked `wide`, with its notes below.

    Where `width` characters are too few, minor columns are left out, and those that still do not
    fit go into further blocks, each of which begins with the names: a number is never cut. Long
    names are broken after punctuation.
    """
    columns = _narrow(table)
    cells = {c: [_indented(c, row.get(c.key)) for row in table.rows] for c in columns}
    heads = {c: clean_line(c.title if c.short is None else c.short) for c in columns}
    needs = {c: max(map(len, (heads[c], c.group, *cells[c]))) for c in columns}
    for column in sorted((c for c in columns if c.minor), key=lambda c: -c.minor):
        if sum(needs[c] + 2 for c in columns) > width + 2:
            columns.remove(column)
    names = [c for i, c in enumerate(columns) if all(d.align == "left" for d in columns[: i + 1])]
    if names and (over := sum(needs[c] + 2 for c in columns) - width - 2) > 0:
        rooms = {c: needs[c] for c in names}
        for _ in range(over):
            rooms[max(names, key=rooms.__getitem__)] -= 1
        if max(rooms.values()) < _LEAST:
            rooms = dict.fromkeys(names, width * (3 + len(names)) // (12 * len(names)))
        for column in names:
            needs[column] = min(needs[column], max(12, rooms[column]))
            cells[column] = [_broken(cell, needs[column]) for cell in cells[column]]
    best = {c: best_rows(table, c) for c in columns}
    parts: list[RichTable | Text] = [Text(clean_line(table.title))]
    for block in _blocks([needs[c] for c in columns], max(len(names), 1), width):
        grid = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        shown = [columns[i] for i in block]
        for column in shown:
            grid.add_column(
                Text(f"{column.group}\n{heads[column]}".lstrip("\n")),
                justify=column.align,
                overflow="fold",
                no_wrap=column not in names,
                max_width=needs[column] if column in names else None,
            )
        for number, row in enumerate(zip(*(cells[c] for c in shown), strict=True)):
            bold = [number in best[c] for c in shown]
            grid.add_row(*(Text(t, "bold" * b) for t, b in zip(row, bold, strict=True)))
        parts.append(grid)
    return Group(*parts, *(Text(clean_line(note)) for note in table.notes))


def _broken(name: str, width: int) -> str:
    """Break a name into lines after spaces, and a word longer than `width` after punctuation.

    >>> _broken("NVIDIA-Nemotron-Nano-9B-v2", 20).split("\\n")
    ['NVIDIA-Nemotron-', 'Nano-9B-v2']
    >>> _broken("gpu-node job 123456_78", 20).split("\\n")
    ['gpu-node job', '123456_78']
    """
    lines = [""]
    words = re.split(r"(?<= )", name)
    long = r"(?<=[-_/.@:,])"
    for part in [p for w in words for p in (re.split(long, w) if len(w) > width else [w])]:
        fits = len((lines[-1] + part).rstrip()) <= width
        lines[-1:] = [lines[-1] + part] if fits else [lines[-1], part]
    return "\n".join(line.rstrip() for line in lines if line)


def _indented(column: Column, value: Any) -> str:
    """Format a cell and keep a name's leading spaces, which show that it belongs to a row above."""
    depth = len(value) - len(value.lstrip(" ")) if isinstance(value, str) else 0
    return " " * depth + formatted(column, value)


def _blocks(needs: Sequence[int], names: int, width: int) -> list[list[int]]:
    """Split columns into blocks no wider than `width`, each with the first `names` columns.

    >>> _blocks([10, 5, 5, 5], 1, 27)
    [[0, 1, 2], [0, 3]]
    """
    room = width + 2 - sum(need + 2 for need in needs[:names])
    blocks: list[list[int]] = [[]]
    for i in range(names, len(needs)):
        if blocks[-1] and sum(needs[j] + 2 for j in (*blocks[-1], i)) > room:
            blocks.append([])
        blocks[-1].append(i)
    return [[*range(names), *block] for block in blocks]


def to_csv(table: Table) -> str:
    """Return keys and full values as CSV, without notes.

    A text that a spreadsheet would evaluate as a formula gets an apostrophe; numbers do not.
    """
    keys = [column.key for column in table.columns]
    lines: list[list[Any]] = [keys, *([row.get(key) for key in keys] for row in table.rows)]
    return "".join(map(_csv_line, lines))


def to_json(table: Table) -> str:
    """Return title, columns (key, title), rows and notes; NaN is null, infinity "inf"."""
    parts = {
        "title": table.title,
        "columns": [{"key": c.key, "title": _titled(c)} for c in table.columns],
        "rows": [{c.key: plain(row.get(c.key)) for c in table.columns} for row in table.rows],
        "notes": list(table.notes),
    }
    return json.dumps(parts, indent=2, ensure_ascii=False) + "\n"


def to_latex(table: Table) -> str:
    """Return a `table` environment with booktabs rules; notes follow the title in its caption."""
    columns = _narrow(table)
    titles = [escaped_latex(c.title) if c.latex is None else c.latex for c in columns]
    rules = iter(("\\toprule" + _heads([c.group for c in columns]), "\\midrule", "\\bottomrule"))
    body = _tabulated(table, titles, "latex_raw", escaped_latex).splitlines()
    ends = (".", ":", "?", "!")
    caption = [text if text.endswith(ends) else f"{text}." for text in (table.title, *table.notes)]
    return "\n".join([
        "% needs \\usepackage{booktabs}", "\\begin{table}", "\\centering",
        f"\\caption{{{' '.join(map(escaped_latex, caption))}}}",
        *(next(rules) if line == "\\hline" else line for line in body), "\\end{table}\n",
    ])  # fmt: skip


def to_markdown(table: Table) -> str:
    """Return a pipe table below its title in bold, with the notes below it."""
    titles = [markdown(_titled(column)) for column in _narrow(table)]
    body = _tabulated(table, titles, "pipe", markdown)
    parts = [f"**{markdown(table.title)}**", body, *(markdown(note) for note in table.notes)]
    return "\n\n".join(parts) + "\n"


def to_html(table: Table) -> str:
    """Return a table below its title, with the notes below it."""
    titles = [html.escape(_titled(column)) for column in _narrow(table)]
    body = _tabulated(table, titles, "unsafehtml", html.escape)  # escaped here
    notes = "".join(f"<br>{html.escape(note)}" for note in table.notes)
    return f"<h2>{html.escape(table.title)}</h2>\n{body}\n<p>{notes}</p>"


def _narrow(table: Table) -> list[Column]:
    return [column for column in rounded(table) if not column.wide]


def _tabulated(table: Table, titles: Sequence[str], form: str, escape: Callable[[str], str]) -> str:
    columns = _narrow(table)
    cells = [[escape(formatted(c, row.get(c.key))) for c in columns] for row in table.rows]
    aligns = [column.align for column in columns] if cells else None
    from tabulate import tabulate  # a tenth of a second, needed for files only

    return tabulate(cells, titles, form, colalign=aligns, disable_numparse=True)


FORMS = {"csv": to_csv, "json": to_json, "tex": to_latex, "md": to_markdown}


def plain(value: Any) -> Any:
    """Convert a value for strict JSON: inf becomes "inf", NaN None, NumPy's values Python's.

    >>> plain({"a": float("inf"), "b": [float("nan"), 1.5]})
    {'a': 'inf', 'b': [None, 1.5]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def _titled(column: Column) -> str:
    return f"{column.group} {column.title}" if column.group else column.title


def _csv_line(cells: Sequence[Any]) -> str:
    r"""Format one line of CSV.

    >>> _csv_line(["=1+1", " -x", "a\rb", -0.5, -math.inf, None])
    '\'=1+1,\' -x,"a\rb",-0.5,-inf,\n'
    """
    safe = [f"'{c}" if isinstance(c, str) and _FORMULA.match(c) else plain(c) for c in cells]
    line = io.StringIO()
    csv.writer(line, lineterminator="\r\n").writerow(safe)  # so that cells with either are quoted
    return line.getvalue().removesuffix("\r\n") + "\n"


def markdown(text: str) -> str:
    """Escape a text for Markdown, in one line."""
    return _MARKDOWN.sub(r"\\\1", clean_line(text))


def escaped_latex(text: str) -> str:
    r"""Escape a text for LaTeX, so that nothing in it is a command.

    After the end of a row or a rule LaTeX would take a leading bracket or star as its argument.

    >>> print(escaped_latex("50 % of a_b, μ ± 1"), escaped_latex("[x]"), escaped_latex("−∞"))
    50 \% of a\_b, $\mu$ $\pm$ 1 {}[x] $-\infty$
    """
    source = re.sub("−∞|.", lambda match: _MARKS.get(match[0], match[0]), text, flags=re.DOTALL)
    return f"{{}}{source}" if source.startswith(("[", "*")) else source


def _heads(groups: Sequence[str]) -> str:
    """Return the line of heads above groups of columns, with a rule under each."""
    if not any(groups):
        return ""
    heads, rules, at = [], [], 1
    for group, part in itertools.groupby(groups):
        width = len(list(part))
        heads += (
            [f"\\multicolumn{{{width}}}{{c}}{{{escaped_latex(group)}}}"] if group else [""] * width
        )
        rules += [f"\\cmidrule(lr){{{at}-{at + width - 1}}}"] if group else []
        at += width
    return "\n" + " & ".join(heads) + " \\\\\n" + " ".join(rules)
