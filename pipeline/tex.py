"""Text as LaTeX source."""

_MARKS = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    # Unicode that plain LaTeX has no glyph for, or would draw as text.
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

    >>> print(escaped("50 % of a_b, μ ± 1"))
    50 \% of a\_b, $\mu$ $\pm$ 1
    """
    return "".join(_MARKS.get(character, character) for character in text)
