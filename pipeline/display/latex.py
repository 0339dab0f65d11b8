"""Texts and tables as LaTeX source."""

import itertools
import re
from collections.abc import Sequence

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


def escaped(text: str) -> str:
    r"""Escape a text for LaTeX, so that nothing in it is a command.

    After the end of a row or a rule LaTeX would take a leading bracket or star as its argument.

    >>> print(escaped("50 % of a_b, μ ± 1"), escaped("[x]"), escaped("−∞"))
    50 \% of a\_b, $\mu$ $\pm$ 1 {}[x] $-\infty$
    """
    source = re.sub("−∞|.", lambda match: _MARKS.get(match[0], match[0]), text, flags=re.DOTALL)
    return f"{{}}{source}" if source.startswith(("[", "*")) else source


def environment(caption: Sequence[str], groups: Sequence[str], tabular: str) -> str:
    """Return a `table` environment with booktabs rules.

    `groups`: one per column; adjacent columns of one group share a head.
    `tabular`: a tabular environment of as many columns, with three lines ``\\hline``.
    """
    rules = iter(("\\toprule" + _heads(groups), "\\midrule", "\\bottomrule"))
    lines = [next(rules) if line == "\\hline" else line for line in tabular.splitlines()]
    ends = (".", ":", "?", "!")
    sentences = [escaped(text if text.endswith(ends) else f"{text}.") for text in caption]
    return "\n".join([
        "% needs \\usepackage{booktabs}", "\\begin{table}", "\\centering",
        f"\\caption{{{' '.join(sentences)}}}", *lines, "\\end{table}\n",
    ])  # fmt: skip


def _heads(groups: Sequence[str]) -> str:
    """Return the line of heads above groups of columns, with a rule under each."""
    if not any(groups):
        return ""
    heads, rules, at = [], [], 1
    for group, part in itertools.groupby(groups):
        width = len(list(part))
        heads += [f"\\multicolumn{{{width}}}{{c}}{{{escaped(group)}}}"] if group else [""] * width
        rules += [f"\\cmidrule(lr){{{at}-{at + width - 1}}}"] if group else []
        at += width
    return "\n" + " & ".join(heads) + " \\\\\n" + " ".join(rules)
