r"""Other spellings of powers, binomials, gcd and lcm, as conservative as those of `latex`.

>>> spelled(r"{5\choose2}+2**10")
'{\\binom{5}{2}}+2^{10}'
"""

import re

_ONE = r"(?:\{([0-9]{1,6}|[a-z])\}|([0-9]{1,6}|[a-z]))"  # an index of nCk, with braces or without
_SERIES = re.compile(r"\\(?:sum|prod)(?![A-Za-z])")
_SUBSCRIPT = re.compile(r"_\{([A-Za-z])\}")
# An index called i is not the imaginary unit, for which the algebra behind takes it.
_INDEX_I = re.compile(r"\\(?:sum|prod)(?:\^(?:\{[^{}]*\}|.))?_\{i=")
_NAME = re.compile(r"\\[A-Za-z]+|i")
_ANY = re.compile(r"\*\*|\\choose|\\binom|C|gcd|lcm")
_SPELLINGS = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        # Python's power; not with another one behind it, nor the stars of bold text.
        (
            r"(?<=[0-9A-Za-z)}])\*\*(?:(-?[0-9]+(?:\.[0-9]+)?|[A-Za-z])|\(([^()*]*)\))"
            r"(?! ?\*\*|[0-9.])",
            r"^{\1\2}",
        ),
        (r"\{([^{}\\]+)\\choose ?([^{}\\]+)\}", r"{\\binom{\1}{\2}}"),
        (r"^([^{}\\]+)\\choose ?([^{}\\]+)$", r"\\binom{\1}{\2}"),
        (r"\\binom ?([0-9A-Za-z]) ?([0-9A-Za-z])(?![0-9A-Za-z])", r"\\binom{\1}{\2}"),
        (r"\\binom ?([0-9A-Za-z])(?=\{)", r"\\binom{\1}"),
        (r"(\\binom\{[^{}]*\}) ?([0-9A-Za-z])(?![0-9])", r"\1{\2}"),
        # Before it stands nothing that the upper index could be the power of.
        (
            r"(?:\{\}|(?<=\\times)|(?<=\\cdot)|(?<![0-9A-Za-z)}\]!|']))[\^_]"
            rf"{_ONE}(?:C|\\text\{{C\}})_{_ONE}(?![0-9])",
            r"\\binom{\1\2}{\3\4}",
        ),
        # Of numbers only: the algebra behind takes two symbols for coprime.
        (
            r"(?:\\(?:operatorname|text)\{(gcd|lcm)\}|(?<![\\A-Za-z])(gcd|lcm))(?=\([0-9, ]+\))",
            r"\\\1\2",
        ),
    )
]


def spelled(text: str) -> str:
    r"""Rewrite indices, `**`, `\choose`, ${}^nC_k$, gcd and lcm of numbers, half cleaned."""
    if _SERIES.search(text):
        text = _SUBSCRIPT.sub(r"_\1", text)
        if _INDEX_I.search(text) and "k" not in text and "\\text" not in text:
            text = _NAME.sub(lambda name: "k" if name[0] == "i" else name[0], text)
    if _ANY.search(text):
        for pattern, replacement in _SPELLINGS:
            text = pattern.sub(replacement, text)
    return text
