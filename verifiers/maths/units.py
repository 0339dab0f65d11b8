r"""Take a unit or a few plain words off the end of an answer, and say whether two of them agree.

A tail that could change the value is none: function words ("5 or more", "at least"), numbers ("5
sevenths"), operations ("5 squared") and verdicts ("5 fails") stay where they are. The first of
these are closed classes of English and so can be listed.
"""

import re

MAX_WORDS = 4

_SPELLINGS = """
cm centimeter centimetre|mm millimeter millimetre|km kilometer kilometre|m meter metre|in inch
ft foot feet|yd yard|mi mile|h hour hr|min minute|s second sec|ms millisecond|day|week|month
year yr|g gram|kg kilogram|mg milligram|lb pound|oz ounce|ton tonne|l liter litre
ml milliliter millilitre|gal gallon|deg degree|rad radian|dollar usd|cent|euro eur|gbp|yuan|yen
rupee|am|pm|mph|kph kmh|hz|n newton|j joule|w watt|v volt|c celsius|f fahrenheit|k kelvin|acre
"""
_NAMES = {
    name: names.split()[0]
    for names in re.split(r"[|\n]", _SPELLINGS.strip())
    for name in names.split()
}
_MEASURES = frozenset([*_NAMES.values(), "/", "2", "3"])
_LONE = frozenset("msghlLNJ")  # a letter that is a unit; any other is a variable
_INSIDE = frozenset(["of", "per"])  # between two words
_STOP_WORDS = """
about above after against along among around as at before behind below beside between beyond
by despite down during except for from into in inside like near off on onto out outside over
past since than through till to toward under until up upon versus vs via with within without
and but or nor so yet if unless when whenever where while whether because although though that
which who whose is isn are aren was wasn were be been being has have had do does doesn did didn
can cannot could may might must shall should will would won no not never none neither nothing
approximately approx roughly nearly almost more less fewer least most it this these those there
plus minus times multiplied divided squared cubed factorial mod modulo base root power percent
percentage pct point exponent inverse reciprocal opposite log sin cos tan sqrt pi infinity
zero one two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty
sixty seventy eighty ninety hundred thousand million billion trillion dozen score half halves
third thirds quarter quarters hundreds thousands millions billions dozens fails diverges wrong
incorrect incorrectly false fail failed invalid impossible undefined error mistake contradiction
rejected excluded extraneous discarded divergent diverge unknown bad guess maybe perhaps
possibly probably assuming suppose instead otherwise else either twice thrice double doubled
triple tripled halved quartered trebled negative
bc bce lakh crore tens gross fold mn bn scores kilo mega giga milli micro binary octal hex ternary
hexadecimal remainder modulus conjugate reversed short missing ago etc oops nope nah unlikely
supposedly hardly barely untrue typo null void reject discard exclude
st nd rd th ish i ii iii iv vi
"""
_STOP = frozenset(_STOP_WORDS.split())
_FRACTION = re.compile(
    r"\w+illion|(?:\w*teen|\w+tie|four|fif|six|seven|eigh|nin|ten|eleven|twelf|hundred|thousand|million|n)th"
)
_PARTICIPLE = re.compile(r"\w{2,}[^e]ed")  # cancelled, but neither red nor red balls
_WORD = r"[A-Za-z]+(?:\^\{[23]\})?"
_TAIL = re.compile(
    r" ?\\text ?\{((?:[^{}]|\^\{[23]\})*)\}(\^\{[23]\})?$"
    r"|(?<=[0-9}]) ?((?:square |cubic |sq |cu )?(?:cm|mm|km|ft|hrs?|mins?|meters?|metres?|units?|"
    r"inches|feet|miles?|degrees?|seconds?|minutes?|hours?|days?|weeks?|years?|dollars?|cents?))"
    r"(\^\{[23]\})?$"
)
_ANGLE = re.compile(r"-?[0-9.]+\^\{\\circ\}")
_PLAIN_WORDS = re.compile(rf"{_WORD}(?:[ /]{_WORD})*")
_POWERS = [
    (re.compile(rf"\b(?:{before}) (?:(of|per) )?(\w+)|\b(\w+) {after}\b"), rf"\2\3 {power}")
    for before, after, power in (("square|sq", "squared", 2), ("cubic|cu", "cubed", 3))
]


def split_unit(text: str) -> tuple[str, tuple[str, ...]]:
    r"""Split a trailing unit or up to four plain words from a cleaned answer.

    Returns the rest and the words in one spelling; a unit's power is the word "2" or "3".

    >>> split_unit(r"10\text{ sq. centimeters}"), split_unit(r"5\text{ red balls}")
    (('10', ('cm', '2')), ('5', ('red', 'ball')))
    >>> split_unit(r"5\text{ or more}")
    ('5\\text{ or more}', ())
    """
    if _ANGLE.fullmatch(text):
        return text, ("deg",)
    tail = _TAIL.search(text)
    if tail is None or tail.start() == 0:
        return text, ()
    value = text[: tail.start()].strip()
    words = (tail[1] if tail[1] is not None else tail[3]) + (tail[2] or tail[4] or "")
    has_symbols = re.search(r"[A-Za-z=<>]", re.sub(r"\\[A-Za-z]+", "", value))
    if has_symbols or not re.search(r"[0-9})\]]$|\\pi$", value):
        return text, ()
    unit = canonical(words, lone="CF" if value.endswith("^{\\circ}") else "")
    return (value, unit) if unit else (text, ())


def canonical(words: str, lone: str = "") -> tuple[str, ...]:
    """Words of a tail in one spelling; () if they could be more than that."""
    words = re.sub(r"(?<=[A-Za-z])\.", "", words).strip()
    if not _PLAIN_WORDS.fullmatch(words) or (len(words) == 1 and words not in {*_LONE, *lone}):
        return ()
    words = words.lower()
    for pattern, replacement in _POWERS:
        words = pattern.sub(replacement, words)
    plain = re.findall(r"[a-z]+", words)
    if len(plain) == 1 and _PARTICIPLE.fullmatch(plain[0]):
        return ()
    if len(plain) > MAX_WORDS or {plain[0], plain[-1]} & _INSIDE or not is_harmless(plain):
        return ()
    words = re.sub(r" ?\bper\b ?", "/", words)
    return tuple(_singular(word) for word in re.findall(r"[a-z]+|[/23]", words))


def is_harmless(words: list[str]) -> bool:
    """Whether no word of these changes what a value next to them is."""
    return not any(word in _STOP or _FRACTION.fullmatch(word.removesuffix("s")) for word in words)


def _singular(word: str) -> str:
    for name in (word, word.removesuffix("s"), word.removesuffix("es")):
        if name in _NAMES:
            return _NAMES[name]
    return word.removesuffix("s") if len(word) > 2 else word


def agree(a: tuple[str, ...], b: tuple[str, ...]) -> bool:
    """Whether two tails may stand behind the same value; () agrees with all.

    >>> agree(("ball",), ("red", "ball")), agree(("red",), ("blue",)), agree(("cm",), ("cm", "2"))
    (True, False, False)
    """
    if not a or not b or a == b:
        return True
    if "unit" in a + b:  # of any name, but not of any power
        return [word for word in a if word.isdigit()] == [word for word in b if word.isdigit()]
    measures = [[word for word in words if word in _MEASURES] for words in (a, b)]
    if any(measures):
        return measures[0] == measures[1]
    return set(a) <= set(b) or set(b) <= set(a)
