"""KEY=VALUE settings, of every verb: Hydra's grammar, the dataclasses' keys, one wording of errors.

A key of a group may be written without the group where only one group has it (`top_p=1` for
`sampling.top_p=1`), and a group alone is what it is mostly set for (`prior=RUN`). Where a field is
a list, `key=a,b`, `key=[a,b]` and `key=a` all are; elsewhere commas are several runs (`sweep`).
"""

import difflib
import os
import re
import typing
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_origin, get_type_hints

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pipeline.base.errors import UserError
from pipeline.config.checks import check

RENAMED = {"schema": "rubric", "pass_k": "metrics"}
"""Parts of keys that have another name now, which is what an error says."""
_HEADS = {
    "merge": "windows",
    "prior": "run",
    "rubric": "names",
    "source": "path",
    "study": "name",
    "thresholds": "file",
}
_SHAPE = re.compile(r"\+{0,2}([A-Za-z_][\w.@/-]*)\s*=(.*)", re.DOTALL)
# A quoted text, or a word: what neither begins with a bracket or a quote nor holds a comma.
_WORD = re.compile(
    r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|[^\s,\[\]{}()'":](?:\[[^\[\],]*\]|[^,\[\]{}"])*"""
)
_FOREIGN = re.compile(r"[^\w\s/\-\\+.$%*@?|:()]|[^\x00-\x7f]|\[")  # what Hydra wants in quotes
_PLAIN = re.compile(r"/?[A-Za-z_][A-Za-z0-9_./-]*")
HELP = "see `python -m pipeline --help` for keys and examples"

Config = TypeVar("Config")


def split(setting: str) -> tuple[str, str]:
    """The key and the text of a setting.

    Raises:
        UserError: it is none.

    >>> split("sampling.trials=40")
    ('sampling.trials', '40')
    """
    if not (shape := _SHAPE.fullmatch(setting)):
        raise UserError(
            f"{setting}: not a setting; write KEY=VALUE or GROUP=CHOICE, such as"
            " sampling.trials=40 or model=qwen3-30b"
        )
    return shape[1], shape[2]


def parse(key: str, text: str) -> Override:
    """A setting as Hydra reads it; words with characters that Hydra would refuse are texts.

    Raises:
        UserError: brackets or quotes that do not close, and the like.

    >>> parse("out", "null").value(), parse("names", "[1, 'b']").value()
    (None, [1, 'b'])
    >>> parse("before", "runs/step-3[0-9]").value(), parse("metrics", "[avg, pass^4]").value()
    ('runs/step-3[0-9]', ['avg', 'pass^4'])
    """
    parser = OverridesParser.create()
    try:
        return parser.parse_override(f"{key}={text}")
    except HydraException as error:
        try:
            return parser.parse_override(f"{key}={_WORD.sub(_quoted, text)}")
        except HydraException:
            why = str(error).partition("\n")[0].removeprefix("LexerNoViableAltException: ")
            raise UserError(
                f"{key}={text}: not understood ({why}); quote values with special characters, as"
                f" in '{key}=\"value\"'"
            ) from error


def _quoted(word: re.Match[str], all_of_them: bool = False) -> str:
    text = word[0].rstrip()
    plain = text[0] in "'\"" or not (all_of_them or _FOREIGN.search(text))
    return word[0] if plain else f'"{text}"'


def quoted(text: str) -> str:
    r"""A text as the value of a setting, whatever is in it; plain where it could be nothing else.

    >>> print(quoted("it's"), quoted("models/step-10"), quoted("10"), quoted("nan"), quoted("a,b"))
    'it\'s' models/step-10 '10' 'nan' 'a,b'
    """
    if _PLAIN.fullmatch(text) and parse("key", text).value() == text:
        return text
    text = re.sub(r"(\\*)\$\{", r"\1\1\\${", text)
    return "'" + re.sub(r"(\\*)('|$)", lambda m: m[1] * 2 + "\\'" * (m[2] == "'"), text) + "'"


def keys(kind: Any) -> Mapping[str, Any]:
    """Every key of a dataclass, with dots, and its type; groups before their own keys."""
    hints = {}
    for name, hint in get_type_hints(kind).items():
        hints[name] = hint
        if is_dataclass(hint):
            hints |= {f"{name}.{key}": inner for key, inner in keys(hint).items()}
    return hints


def full_key(kind: Any, key: str) -> str | None:
    """A key as the dataclass spells it, from what may be written for short; None: it has none."""
    if key in RENAMED:
        raise unknown(key)
    known = keys(kind)
    if key in _HEADS and f"{key}.{_HEADS[key]}" in known:
        return f"{key}.{_HEADS[key]}"
    if key in known or _mapping_of(kind, key):
        return key
    of = [name for name in known if name.endswith(f".{key}")] if "." not in key else []
    return of[0] if len(of) == 1 else None


def is_list(kind: Any, full: str) -> bool:
    """Whether the field of a full key is a list."""
    return get_origin(keys(kind).get(full)) is list


def _mapping_of(kind: Any, key: str) -> str | None:
    """The mapping that takes any key and so this one: `engine.args` for `engine.args.foo`."""
    mappings = (name for name, hint in keys(kind).items() if get_origin(hint) is dict)
    return next((name for name in mappings if key.startswith(f"{name}.")), None)


def unknown(key: str, *kinds: Any) -> UserError:
    """No such key: what it is called now, what was perhaps meant, or what there is.

    >>> unknown("schema.names").args
    ('schema.names: is called rubric.names now',)
    """
    now = ".".join(RENAMED.get(part, part) for part in key.split("."))
    if now != key:
        return UserError(f"{key}: is called {now} now")
    known = [name for kind in kinds for name in keys(kind)]
    leaves: dict[str, list[str]] = {}
    for name in known:
        leaves.setdefault(name.rpartition(".")[2], []).append(name)
    leaf = key.rpartition(".")[2]
    near = leaves.get(leaf, [])
    if not near:
        near = difflib.get_close_matches(key, known, n=1)
        near += [n for close in difflib.get_close_matches(leaf, leaves, n=2) for n in leaves[close]]
    beside = [n for n in known if n.rpartition(".")[0] == key.rpartition(".")[0]]
    hint = (
        f"did you mean {' or '.join(dict.fromkeys(near))}?"
        if near
        else f"known: {', '.join(beside or [name for name in known if '.' not in name])}"
    )
    return UserError(f"{key}: no such key ({hint})")


def apply(node: DictConfig, settings: Sequence[str]) -> None:
    """Set the values of KEY=VALUE settings in a structured configuration.

    Raises:
        UserError: an unknown key (with the nearest known ones), or a value of the wrong type.
    """
    kind = OmegaConf.get_type(node)
    for setting in settings:
        key, text = split(setting)
        full = full_key(kind, key)
        if full is None:
            raise unknown(key, kind)
        try:
            value = _value(kind, full, text)
            free = get_origin(keys(kind).get(full)) is dict or bool(_mapping_of(kind, full))
            OmegaConf.update(node, full, value, merge=True, force_add=free)
        except (OmegaConfBaseException, ValueError) as error:
            raise UserError(f"{full}={text}: {one_line(error)}; {HELP}") from error


def texts(key: str, text: str) -> list[str]:
    """The texts of a list, in brackets or not; numbers stay as they are written.

    >>> texts("checkpoints", "a,0100"), texts("checkpoints", "[a, 'b c']"), texts("checkpoints", "")
    (['a', '0100'], ['a', 'b c'], [])
    """
    text = text if re.match(r"\s*\[", text) else f"[{text}]"
    value = parse(key, text).value()
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return value
    value = parse(key, _WORD.sub(lambda word: _quoted(word, all_of_them=True), text)).value()
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
    is_text = hint is str or str in typing.get_args(hint)
    return text.strip() if is_text and isinstance(value, bool | int | float) else value


def one_line(error: BaseException) -> str:
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

    Raises:
        UserError: a value is missing, or interpolates what is not there.
    """
    try:
        cfg = OmegaConf.to_object(node)
    except (OmegaConfBaseException, ValueError) as error:
        raise explained(error, kind) from error
    assert isinstance(cfg, kind)
    return cfg


def explained(error: Exception, kind: Any) -> UserError:
    """An error of Hydra or OmegaConf about a file or a whole configuration, in one line."""
    whole = str(error)
    full = re.search(r"full_key: (\S+)", whole)
    key = re.search(r"Key '([^']+)' (?:is not in struct|not in '\w+')", whole)
    if key:
        return unknown(full[1] if full else key[1], kind)
    place = f"{full[1]}: " if full else ""
    return UserError(f"{place}{one_line(error) or type(error).__name__}; {HELP}")


def load(kind: type[Config], arguments: Sequence[str]) -> Config:
    """A settings dataclass from the command line, checked; run folders go to its `folders`.

    Raises:
        UserError: an unknown key, a value of the wrong type or one that cannot work, or an argument
            that is neither setting nor folder.

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
    folders = [a for a in arguments if "=" not in a and "folders" in keys(kind)]
    node: DictConfig = OmegaConf.structured(kind)
    apply(node, [argument for argument in arguments if argument not in folders])
    if folders:
        node.folders = [*node.folders, *map(str, map(check_folder, folders))]
    return check(typed(node, kind))


def check_folder(argument: str) -> Path:
    """The folder that an argument without `=` names.

    Raises:
        UserError: there is none of that name.
    """
    folder = Path(os.path.expanduser(argument))  # pathlib's raises for `~nobody`
    if not folder.is_dir():
        raise UserError(
            f"{argument}: neither a folder nor a setting; settings are KEY=VALUE, such as"
            " model=qwen3-30b"
        )
    return folder
