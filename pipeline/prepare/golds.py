"""Mend slips of the pen in gold answers, of which the value is beyond doubt."""

import re

_END = {
    "a backslash at its end": re.compile(r"[\\\s]+$"),
    "a full stop at its end": re.compile(r"(?<=[^.\s])\s*\.$"),
}
_LEFT_RIGHT = re.compile(r"(?<!\\)\\(left|right)(?![A-Za-z])\.?")
_DOLLAR = re.compile(r"(?<!\\)\$")
_BRACE = re.compile(r"(?<!\\)[{}]")


def mend(gold: str) -> tuple[str, list[str]]:
    r"""The gold answer without what is wrong with it, and names for that.

    >>> mend("185\\"), mend(r"$\left(1,2).")[0], mend(r"\{0.5\}")
    (('185', ['a backslash at its end']), '(1,2)', ('\\{0.5\\}', []))
    """
    mended, slips = gold, []
    for name, pattern in _END.items():
        if pattern.search(mended):
            mended = pattern.sub("", mended)
            slips.append(name)
    if len(_DOLLAR.findall(mended)) % 2:
        mended = _DOLLAR.sub("", mended)
        slips.append("a lone dollar sign")
    if (sides := _LEFT_RIGHT.findall(mended)).count("left") != sides.count("right"):
        mended = _LEFT_RIGHT.sub("", mended)
        slips.append(r"a lone \left or \right")
    braces = _BRACE.findall(mended)
    if braces.count("}") > braces.count("{") and re.search(r"(?<!\\)\}$", mended):
        mended = mended[:-1]
        slips.append("a brace too many")
    return (mended.strip(), slips) if mended.strip() else (gold, [])
