"""KEY=VALUE settings as Hydra's parser reads them, with the keys of a verb's dataclass.

A key of a group may be written without the group where only one group has it (`top_p=1` for
`sampling.top_p=1`; groups within groups count only where no other has it), and a group alone is
what it is mostly set for (`prior=RUN`). Where a field is a list, `key=a,b`, `key=[a,b]` and `key=a`
all are; elsewhere commas are several runs (`sweep.expand`).
"""

import contextlib
import functools
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.config.checks import keys as keys
from bayes_at_n.pipeline.config.checks import unknown as unknown

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

_HEADS = {
    "assume": "accuracies",
    "checkpoints": "_",  # of a training run without a name
    "labels": "file",
    "merge": "windows",
    "prior": "run",
    "ranking": "methods",
    "rubric": "names",
    "source": "path",
    "study": "name",
    "thresholds": "file",
    "track": "to",
    "verifier.engine": "name",
}
_SECRET = re.compile("key|token|secret|passw|auth|credential|cookie", re.I)
# A quoted text, or a word: what neither begins with a bracket or a quote nor holds a comma.
_WORD = re.compile(
    r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|"""
    r"""(?:\$\{[^{}]*\}|[^\s,\[\]{}()'":])(?:\$\{[^{}]*\}|\[[^\[\],]*\]|[^,\[\]{}"])*"""
)
_EMPTY = re.compile(r"(^|[\[,])\s*,|,\s*(\]|$)")  # a comma with nothing beside it
# A word that Hydra reads as the text that it is.
_PLAIN = re.compile(r"(?!(true|false|null|nan|inf)$)/?[A-Za-z_][A-Za-z0-9_./@-]*", re.I)
HELP = f"see `{PROGRAM} VERB --help` for keys and examples"


def is_folder(argument: str) -> bool:
    """Tell a folder from a setting: it has no `=`, or is there, with a `/` in its name or a run."""
    if argument[:1] in "~+" and argument[1:2] != "/":
        return False
    named = "/" in argument or os.path.lexists(os.path.expanduser(f"{argument}/config.yaml"))
    return "=" not in argument or (named and os.path.isdir(os.path.expanduser(argument)))


def split(setting: str) -> tuple[str, str]:
    """The key of a setting and its text. Raises UserError: it is none.

    >>> split("sampling.trials=40")
    ('sampling.trials', '40')
    """
    override = parse(setting)
    return override.key_or_group, (override.input_line or "").partition("=")[2]


@functools.lru_cache(1024)
def parse(setting: str) -> "Override":
    """Parse a setting with Hydra's grammar; a word that needs quotes there may do without.

    Raises UserError: brackets or quotes that do not close, and the like.

    >>> parse("out=null").value(), parse("names=[1, 'b']").value()
    (None, [1, 'b'])
    >>> parse("before=runs/step-3[0-9]").value(), parse("metrics=[avg, pass^4]").value()
    ('runs/step-3[0-9]', ['avg', 'pass^4'])
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser  # a tenth of a second
    from hydra.errors import HydraException

    parser, (key, given, text) = OverridesParser.create(), setting.partition("=")
    if not re.match(r"~|\+{0,2}[A-Za-z_$][\w.@/$-]*=", setting):
        raise UserError(f"{setting}: not a setting; write KEY=VALUE, as trials=40, source=FOLDER")
    try:
        with contextlib.suppress(HydraException):
            return parser.parse_override(setting)
        return parser.parse_override(f"{key}{given}{in_quotes(text)}")
    except HydraException as error:
        why = str(error).partition("\n")[0].removeprefix("LexerNoViableAltException: ")
        remedy = f"quote values with special characters, as in '{key}=\"value\"'"
        if _EMPTY.search(text):
            why, remedy = "a comma with nothing beside it", "leave it out"
        raise UserError(f"{setting}: not understood ({why}); {remedy}") from error


def in_quotes(text: str) -> str:
    """A value in which words are quoted that Hydra would not read as text.

    >>> in_quotes("[a, 0100, 'b c']")
    '[a, "0100", \\'b c\\']'
    """

    def quote(word: re.Match[str]) -> str:
        plain = word[0][0] in "'\"" or _PLAIN.fullmatch(word[0])
        return word[0] if plain else f'"{word[0].rstrip()}"'

    return _WORD.sub(quote, text)


def quoted(text: str) -> str:
    r"""A text as the value of a setting, whatever is in it; plain where it could be nothing else.

    >>> print(quoted("it's"), quoted("models/step-10"), quoted("10"), quoted("nan"), quoted("a,b"))
    'it\'s' models/step-10 '10' 'nan' 'a,b'
    """
    if _PLAIN.fullmatch(text):
        return text
    escaped = re.sub(r"(\\*)('|$)", lambda m: m[1] * 2 + "\\'" * (m[2] == "'"), literal(text))
    return f"'{escaped}'"


def literal(text: str) -> str:
    r"""A text in which OmegaConf sees no interpolation: in LaTeX ``${`` is common.

    >>> print(literal("give ${x}$ in \\boxed{}"))
    give \${x}$ in \boxed{}
    """
    return re.sub(r"(\\*)\$\{", r"\1\1\\${", text)


def flat(values: Mapping[str, Any], prefix: str = "", dot: str = ".") -> Iterator[tuple[str, Any]]:
    """The values in groups within groups, by their full keys."""
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{name}{dot}", dot)
        else:
            yield f"{prefix}{name}", value


def public(kind: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by full key; no free key and no environment variable's value that is called secret."""
    hidden = [v for k, v in os.environ.items() if _SECRET.search(k) and len(v) >= 8]
    known = keys(kind)
    return {
        key: value
        for key, value in flat(values)
        if (key in known or not _SECRET.search(key))
        and not any(text in str(value) for text in hidden)
    }


def full_key(kind: Any, key: str) -> str | None:
    """A key as the dataclass spells it, from what may be written for short; None: it has none."""
    known = keys(kind)
    head = f"{key}.{_HEADS.get(key)}"
    if head in known or (key in _HEADS and get_origin(known.get(key)) is dict):
        return head
    if key in known or is_free(kind, key):
        return key
    if "." in key:
        return None
    matches = sorted((n.count("."), n) for n in known if n.endswith(f".{key}"))
    least = [name for depth, name in matches if depth == matches[0][0]]
    if len(least) > 1 and key != "name":  # the protocol's trials and temperature, nobody else's
        least = [name for name in least if name.startswith("sampling.")]
    return least[0] if len(least) == 1 else None


def is_free(kind: Any, key: str) -> bool:
    """Whether the key is a mapping that takes any key, or one in it: `engine.args.foo`."""
    return _mapping(kind, key) is not None


def _mapping(kind: Any, key: str) -> Any:
    """The type of the mapping that a key is, or is in; None: it is in none."""
    mappings = ((name, hint) for name, hint in keys(kind).items() if get_origin(hint) is dict)
    return next((hint for name, hint in mappings if f"{key}.".startswith(f"{name}.")), None)


def check_folder(argument: str) -> Path:
    """The folder that an argument names which is no setting.

    Raises UserError: there is none of that name.
    """
    folder = Path(os.path.expanduser(argument))  # pathlib's raises for `~nobody`
    if not folder.is_dir():
        raise UserError(f"{argument}: neither a folder nor a setting KEY=VALUE")
    return folder


def spelt(kind: Any, override: "Override") -> str | None:
    """A setting as Hydra wants it, with its full key; None: the dataclass has none like it.

    >>> from bayes_at_n.pipeline.config.settings import RunConfig
    >>> [spelt(RunConfig, parse(text)) for text in ("trials=8", "metrics=avg,pass^4", "tag=1e3")]
    ['sampling.trials=8', 'scoring.metrics=[avg,"pass^4"]', 'tag="1e3"']
    >>> spelt(RunConfig, parse("engine.args.block_size=32"))
    '++engine.args.block_size=32'
    """
    full = None if override.package else full_key(kind, override.key_or_group)
    if full is None or override.is_delete():
        if full and not is_free(kind, full):
            why = "~ takes away the choice of a group, or a key of engine.args and its like"
            raise UserError(f"{override.input_line}: {why}; {HELP}")
        return full and override.input_line
    prefix = (
        "++" if is_free(kind, full) else "+" * (override.is_add() + 2 * override.is_force_add())
    )
    text = (override.input_line or "").partition("=")[2]
    hint = keys(kind).get(full) or get_args(_mapping(kind, full))[1]
    one = override.value() if not override.is_sweep_override() else None
    if get_origin(hint) is list:
        if _is_items(override) and not text.startswith("${"):
            text = f"[{text}]"
        if text[:1] == "[" and get_args(hint) == (str,):
            text = in_quotes(text)
    elif str in (hint, *get_args(hint)) and isinstance(one, bool | int | float):
        text = f'"{text.strip()}"'  # 0100 and 1.50 as they are written
    return f"{prefix}{full}={text}"


def _is_items(override: "Override") -> bool:
    """Whether the value of a list's key is one item of it, or items with commas between them."""
    if not override.is_sweep_override():
        return not isinstance(override.value(), list)
    items = getattr(override.value(), "list", None) or [[]]
    simple = getattr(override.value(), "simple_form", False)
    return simple and not any(isinstance(item, list) for item in items)


def explained(error: BaseException, kind: Any) -> UserError:
    """An error of Hydra or OmegaConf in one line, with the key or the file that it is about."""
    message, place = str(error.__cause__ or error), ""
    if file := re.match(r"In '([^']+)': (?:\w+ raised while composing config:)?", message):
        message, place = message[file.end() :], f"configs/{file[1]}.yaml: "
    full = re.search(r"full_key: (\S+)", message)
    if key := re.search(r"Key '([^']+)' (?:is not in struct|not in '\w+')", message):
        return UserError(f"{place}{unknown(full[1] if full else key[1], kind)}")
    text = " ".join(part.strip() for part in message.splitlines() if part.strip())
    if "nterpolation" in text:
        text += "; write \\${ where ${ is meant as text"
    text = re.sub(r" full_key: .*?(?=;|$)| object_type=.*?(?=;|$)", "", text)
    place += f"{full[1]}: " if full else ""
    return UserError(f"{place}{text or type(error).__name__}; {HELP}")
