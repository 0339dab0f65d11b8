r"""Take the names off solutions in several unknowns, where both sides agree.

`x=1, y=2` and `(y,x)=(2,1)` are one solution, and the bare `1,2` is the one in the order of the
names.
"""

import re

from bayes_at_n.verifiers.maths.structure import SEPARATOR, split_list, split_top

_TOKEN = re.compile(r"\\[A-Za-z]+|[A-Za-z]")
_UNKNOWN = re.compile(r"(\\?[A-Za-z]+(?:_\{?\w{1,8}\}?)?)=([^=<>]+)")
_LETTER = r"[A-Za-z](?:_\{?\w\}?)?"
_UNKNOWNS = re.compile(rf"(\({_LETTER}(?:, ?{_LETTER})+\))(?:=|\\in ?)(.+)")
_ROOT = re.compile(r"([A-Za-z])=")

Solution = dict[str, str]  # the values of the unknowns, in the order in which they are named


def without_names(gold: str, answer: str) -> tuple[str, str]:
    r"""Two cleaned texts as values or lists of tuples; unchanged where the names do not agree.

    >>> without_names("(x,y)=(1,2),(3,4)", "y=2,x=1"), without_names("a=1,b=2", "2,1")
    (('(1,2), (3,4)', '(1,2)'), ('(1,2)', '2,1'))
    """
    if root := _ROOT.match(gold) or _ROOT.match(answer):  # x_1=2, x_2=3 are x=2, x=3
        numbered = re.compile(rf"(?<![A-Za-z\\]){root[1]}_\{{?[0-9]\}}?=")
        if len(split_top(gold, SEPARATOR)) == len(split_top(answer, SEPARATOR)) > 1:
            gold, answer = (numbered.sub(root[0], side) for side in (gold, answer))
    left, right = _solutions(gold), _solutions(answer)
    if left and right and left[0].keys() != right[0].keys():
        return gold, answer
    names = list((left or right or [{}])[0])
    bare = sorted(name.rstrip("}") for name in names)
    places = {ord(name[-1]) - i for i, name in enumerate(bare)}
    follow = len({name[:-1] for name in bare}) == len(places) == 1  # x, y, z; x_1, x_2; not r, h
    if follow and not (left and right):
        names.sort()  # y=1, x=2 is not the point (1,2)
    written = [
        ", ".join(f"({','.join(one[name] for name in names)})" for one in found) if found else text
        for found, text in ((left, gold), (right, answer))
    ]
    return written[0], written[1]


def _solutions(text: str) -> list[Solution] | None:
    """Solutions in two unknowns or more, all in the same ones."""
    if "=" not in text and r"\in" not in text:
        return None
    items = split_top(text, SEPARATOR)
    if not 0 < len(items) <= 60:
        return None
    found: list[Solution] = []
    inherited: list[str] = []
    for item in items:
        tuples, unknown = _UNKNOWNS.fullmatch(item), _UNKNOWN.fullmatch(item)
        if tuples:
            inherited, item = tuples[1][1:-1].replace(" ", "").split(","), tuples[2]
        if inherited:
            listed = split_list(item)
            values = listed[1] if listed and listed[0] == "{}" else [item]
            for value in values:
                brackets, parts = split_list(value) or ("", [])
                if brackets != "()" or len(parts) != len(inherited):
                    return None
                found.append(dict(zip(inherited, parts, strict=True)))
        elif unknown:
            if not found or unknown[1] in found[-1]:
                found.append({})
            found[-1][unknown[1]] = unknown[2]
        else:
            return None
    several = len(found[0]) > 1 and all(one.keys() == found[0].keys() for one in found)
    return found if several else None


_CONSTANT = r"(?:[CckK](?:_\{[0-9a-z]\})?|\\text\{(?:const|constant|C)\}|[DAB])"
_ADDED = re.compile(rf"(.*[^-+*/(^{{,=])\+({_CONSTANT})$|({_CONSTANT})(?=[-+])\+?(.+)$")


def one_constant(gold: str, answer: str) -> tuple[str, str]:
    r"""Name the constant of integration as the gold answer does: `x^{2}+C`, `x^{2}+c`, `K+x^{2}`.

    >>> one_constant("x^{2}+C", "k+x^{2}"), one_constant("x^{2}+C", "x^{2}+x")
    (('x^{2}+C', 'x^{2}+C'), ('x^{2}+C', 'x^{2}+x'))
    """
    ours, theirs = _ADDED.fullmatch(gold), _ADDED.fullmatch(answer)
    if not ours or not theirs:
        return gold, answer
    constant, other = ours[2] or ours[3], theirs[2] or theirs[3]
    body, rest = ours[1] or ours[4], theirs[1] or theirs[4]
    unlike = constant[0] not in "CckK\\"
    if unlike or {constant, other} & {*_TOKEN.findall(body + rest)}:
        return gold, answer
    return f"{body}+{constant}", f"{rest}+{constant}"
