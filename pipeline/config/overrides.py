"""KEY=VALUE settings, of every verb: Hydra's grammar, the dataclasses' keys, one wording of errors.

A key of a group may be written without the group where only one group has it (`top_p=1` for
`sampling.top_p=1`; groups within groups count only where no other has it), and a group alone is
what it is mostly set for (`prior=RUN`). Where a field is a list, `key=a,b`, `key=[a,b]` and `key=a`
all are; elsewhere commas are several runs (`sweep`).
"""

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.config.checks import keys as keys
from bayes_at_n.pipeline.config.checks import unknown as unknown
from bayes_at_n.pipeline.config.checks import validated

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

_HEADS = {
    "assume": "accuracies",
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
_SHAPE = re.compile(r"\+{0,2}([A-Za-z_][\w.@/-]*)\s*=(.*)", re.DOTALL)
# A quoted text, or a word: what neither begins with a bracket or a quote nor holds a comma.
_WORD = re.compile(
    r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|[^\s,\[\]{}()'":](?:\[[^\[\],]*\]|[^,\[\]{}"])*"""
)
_FOREIGN = re.compile(r"[^\w\s/\-\\+.$%*@?|:()]|[^\x00-\x7f]|\[")  # what Hydra wants in quotes
_EMPTY = re.compile(r"(^|[\[,])\s*,|,\s*(\]|$)")  # a comma with nothing beside it
_PLAIN = re.compile(r"/?[A-Za-z_][A-Za-z0-9_./-]*")
INTERPOLATION = re.compile(r"(?<!\\)(\\\\)*\$\{")  # what OmegaConf puts something in the place of
HELP = f"see `{PROGRAM} VERB --help` for keys and examples"

Config = TypeVar("Config")


def split(setting: str) -> tuple[str, str]:
    """The key and the text of a setting.

    Raises UserError: it is none.

    >>> split("sampling.trials=40")
    ('sampling.trials', '40')
    """
    if not (shape := _SHAPE.fullmatch(setting)):
        raise UserError(f"{setting}: not a setting; write KEY=VALUE, as trials=40, source=FOLDER")
    return shape[1], shape[2]


def is_folder(argument: str) -> bool:
    """Tell a folder from a setting: it has no `=`, or is there, with a `/` in its name or a run."""
    named = "/" in argument or os.path.lexists(os.path.expanduser(f"{argument}/config.yaml"))
    return "=" not in argument or (named and os.path.isdir(os.path.expanduser(argument)))


def parse(key: str, text: str, as_texts: bool = False) -> "Override":
    """A setting as Hydra reads it; words that Hydra would refuse, or all of them, are texts.

    Raises UserError: brackets or quotes that do not close, and the like.

    >>> parse("out", "null").value(), parse("names", "[1, 'b']").value()
    (None, [1, 'b'])
    >>> parse("before", "runs/step-3[0-9]").value(), parse("metrics", "[avg, pass^4]").value()
    ('runs/step-3[0-9]', ['avg', 'pass^4'])
    """

    from hydra.core.override_parser.overrides_parser import OverridesParser  # a tenth of a second
    from hydra.errors import HydraException

    def in_quotes(word: re.Match[str]) -> str:
        plain = word[0][0] in "'\"" or not (as_texts or _FOREIGN.search(word[0]))
        return word[0] if plain else f'"{word[0].rstrip()}"'

    parser = OverridesParser.create()
    try:
        with contextlib.suppress(HydraException):
            if not as_texts:
                return parser.parse_override(f"{key}={text}")
        return parser.parse_override(f"{key}={_WORD.sub(in_quotes, text)}")
    except HydraException as error:
        why = str(error).partition("\n")[0].removeprefix("LexerNoViableAltException: ")
        remedy = f"quote values with special characters, as in '{key}=\"value\"'"
        if _EMPTY.search(text):
            why, remedy = "a comma with nothing beside it", "leave it out"
        raise UserError(f"{key}={text}: not understood ({why}); {remedy}") from error


def quoted(text: str) -> str:
    r"""A text as the value of a setting, whatever is in it; plain where it could be nothing else.

    >>> print(quoted("it's"), quoted("models/step-10"), quoted("10"), quoted("nan"), quoted("a,b"))
    'it\'s' models/step-10 '10' 'nan' 'a,b'
    """
    if _PLAIN.fullmatch(text) and parse("key", text).value() == text:
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
    if key in _HEADS and f"{key}.{_HEADS[key]}" in known:
        return f"{key}.{_HEADS[key]}"
    if key in known or _is_free(kind, key):
        return key
    if "." in key:
        return None
    matches = sorted((n.count("."), n) for n in known if n.endswith(f".{key}"))
    least = [name for depth, name in matches if depth == matches[0][0]]
    return least[0] if len(least) == 1 else None


def is_list(kind: Any, key: str) -> bool:
    """Whether a key's field is a list."""
    return get_origin(keys(kind).get(full_key(kind, key) or key)) is list


def _is_free(kind: Any, key: str) -> bool:
    """Whether the key is a mapping that takes any key, or one in it: `engine.args.foo`."""
    mappings = (name for name, hint in keys(kind).items() if get_origin(hint) is dict)
    return any(f"{key}.".startswith(f"{name}.") for name in mappings)


def parted(arguments: Sequence[str], own: Any, others: Any) -> tuple[list[str], list[str]]:
    """The arguments that are a verb's own, folders among them, and those of the other settings.

    Raises UserError: one is neither's.
    """
    mine, theirs = [], []
    for argument in arguments:
        key = "folders" if "folders" in keys(own) and is_folder(argument) else split(argument)[0]
        head = re.split(r"[.@/]", key)[0]
        if head in keys(own) or full_key(own, key):
            mine.append(argument)
        elif head in keys(others) or full_key(others, key):
            theirs.append(argument)
        else:
            raise unknown(key, own, others)
    return mine, theirs


def apply(node: DictConfig, settings: Sequence[str]) -> None:
    """Set the values of KEY=VALUE settings; UserError where a key or a value cannot be."""
    kind = OmegaConf.get_type(node)
    for setting in settings:
        key, text = split(setting)
        full = full_key(kind, key)
        if full is None:
            raise unknown(key, kind)
        try:
            value = _value(kind, full, text)
            OmegaConf.update(node, full, value, merge=True, force_add=_is_free(kind, full))
        except (OmegaConfBaseException, ValueError) as error:
            raise UserError(f"{full}={text}: {one_line(error)}; {HELP}") from error


def texts(key: str, text: str) -> list[str]:
    """The texts of a list, in brackets or not; numbers stay as they are written.

    >>> texts("checkpoints", "a,0100"), texts("checkpoints", "[a, 'b c']"), texts("checkpoints", "")
    (['a', '0100'], ['a', 'b c'], [])
    """
    text = text if re.match(r"\s*\[", text) else f"[{text}]"
    value = parse(key, text, as_texts=True).value()
    if not isinstance(value, list):
        raise ValueError("is a list; write [FIRST,SECOND]")
    return value


def _value(kind: Any, full: str, text: str) -> Any:
    hint = keys(kind).get(full)
    if hint == list[str]:
        return texts(full, text)
    parsed = parse(full, f"[{text}]" if is_list(kind, full) and "[" not in text else text)
    if parsed.is_sweep_override():
        raise ValueError("takes one value")
    value = parsed.value()
    if is_dataclass(hint) and not isinstance(value, dict):
        raise ValueError(f"is a group of {', '.join(f'{full}.{key}' for key in keys(hint))}")
    if str in (hint, *get_args(hint)) and isinstance(value, bool | int | float):
        return text.strip()  # 0100 and 1.50 as they are written
    return value


def one_line(error: object) -> str:
    """What OmegaConf says, without the lines that name its own types.

    >>> one_line(ValueError("no number\\n    full_key: sampling.trials"))
    'no number'
    """
    text = " ".join(part.strip() for part in str(error).splitlines() if part.strip())
    if "nterpolation" in text:
        text += "; write \\${ where ${ is meant as text"
    return re.sub(r" full_key: .*?(?=;|$)| object_type=.*?(?=;|$)", "", text)


def typed(node: DictConfig, kind: type[Config]) -> Config:
    """The dataclass that a configuration holds.

    Raises UserError: a value is missing, or interpolates what is not there.
    """
    try:
        values = OmegaConf.to_container(node, resolve=True)
    except (OmegaConfBaseException, ValueError) as error:
        raise explained(error, kind) from error
    assert isinstance(values, dict)
    return validated(kind, values)  # type: ignore[arg-type]


def explained(error: Exception, kind: Any) -> UserError:
    """An error of Hydra or OmegaConf about a file or a whole configuration, in one line."""
    message, place = str(error), ""
    if file := re.match(r"In '([^']+)': (?:\w+ raised while composing config:)?", message):
        message, place = message[file.end() :], f"configs/{file[1]}.yaml: "
    full = re.search(r"full_key: (\S+)", message)
    if key := re.search(r"Key '([^']+)' (?:is not in struct|not in '\w+')", message):
        return UserError(f"{place}{unknown(full[1] if full else key[1], kind)}")
    place += f"{full[1]}: " if full else ""
    return UserError(f"{place}{one_line(message) or type(error).__name__}; {HELP}")


def load(kind: type[Config], arguments: Sequence[str]) -> Config:
    """A settings dataclass from the command line, checked; run folders go to its `folders`.

    Raises UserError: an argument is neither a setting that can work nor a folder.

    >>> from dataclasses import dataclass, field
    >>> @dataclass
    ... class Prices:
    ...     output: float = 10.0
    >>> @dataclass
    ... class Settings:
    ...     names: list[str] = field(default_factory=list)
    ...     prices: Prices = field(default_factory=Prices)
    >>> load(Settings, ["names=a,b", "output=2"])
    Settings(names=['a', 'b'], prices=Prices(output=2.0))
    """
    folders = [a for a in arguments if is_folder(a) and "folders" in keys(kind)]
    node: DictConfig = OmegaConf.structured(kind)
    apply(node, [argument for argument in arguments if argument not in folders])
    if folders:
        node.folders = [*node.folders, *(literal(str(check_folder(f))) for f in folders)]
    return typed(node, kind)


def check_folder(argument: str) -> Path:
    """The folder that an argument names which is no setting.

    Raises UserError: there is none of that name.
    """
    folder = Path(os.path.expanduser(argument))  # pathlib's raises for `~nobody`
    if not folder.is_dir():
        raise UserError(f"{argument}: neither a folder nor a setting KEY=VALUE")
    return folder
