"""Text as LaTeX source."""

import re

_MARKS = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",  # a command for it would need another font encoding than LaTeX's own
    # Unicode that plain LaTeX has no glyph for, or would draw as text.
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
    **{
        letter: f"$\\{name}$"
        for name, letter in {
            "alpha": "α",
            "beta": "β",
            "delta": "δ",
            "Delta": "Δ",
            "lambda": "λ",
            "mu": "μ",
            "rho": "ρ",
            "sigma": "σ",
            "Sigma": "Σ",
            "tau": "τ",
            "varphi": "φ",
            "Phi": "Φ",
        }.items()
    },
}


def escaped(text: str) -> str:
    r"""A text as LaTeX source, in which nothing is a command.

    Behind the end of a row, or a rule, a bracket or a star would be an argument of that.

    >>> print(escaped("50 % of a_b, μ ± 1"), escaped("[x]"), escaped("−∞"))
    50 \% of a\_b, $\mu$ $\pm$ 1 {}[x] $-\infty$
    """
    source = re.sub("−∞|.", lambda found: _MARKS.get(found[0], found[0]), text, flags=re.DOTALL)
    return f"{{}}{source}" if source.startswith(("[", "*")) else source
