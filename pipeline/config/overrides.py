"""KEY=VALUE settings as Hydra's parser reads them, with the full keys of a verb's dataclass.

A key of a group may be written without the group where only one group has it (`top_p=1` for
`sampling.top_p=1`; groups within groups count only where no other has it), and a group alone is
what it is mostly set for (`prior=RUN`). Where a field is a list, `key=a,b`, `key=[a,b]` and `key=a`
all are; elsewhere commas are several runs (`sweep.expand`).
"""

import contextlib
import functools
import glob
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args, get_origin

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.config.checks import keys, unknown

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
# A word that Hydra reads as the text that it is.
_PLAIN = re.compile(r"(?!(true|false|null|nan|inf)$)/?[A-Za-z_][A-Za-z0-9_./@-]*", re.I)
HELP = f"see `{PROGRAM} VERB --help` for keys and examples"


def folders_of(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Tell run folders, and patterns of them, from settings.

    A word with `=` is a folder if one is there and it has a `/` or holds a run. Raises UserError:
    no such folder.
    """
    folders, settings = [], []
    for word in words:
        path = os.path.expanduser(word)
        here = os.path.isdir(path) and ("/" in word or os.path.lexists(f"{path}/config.yaml"))
        if (word[:1] in "~+" and word[1:2] != "/") or ("=" in word and not here):
            settings.append(word)
        elif found := [path] if os.path.isdir(path) else sorted(glob.glob(f"{path}/")):
            folders += [folder.rstrip("/") or "/" for folder in found]
        else:
            raise UserError(f"{word}: neither a folder nor a setting KEY=VALUE")
    return folders, settings


@functools.lru_cache(1024)
def parse(setting: str) -> "Override":
    """Parse a setting with Hydra's grammar; a value that it cannot read is quoted.

    Raises UserError: no setting, or quotes that do not close.

    >>> parse("out=null").value(), parse("out=[1, 'b']").value(), parse("before=a-[0-9]").value()
    (None, [1, 'b'], 'a-[0-9]')
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser  # a tenth of a second
    from hydra.errors import HydraException

    parser, (key, _, text) = OverridesParser.create(), setting.partition("=")
    try:
        with contextlib.suppress(HydraException):
            return parser.parse_override(setting)
        return parser.parse_override(
            setting if text[:1] in "'\"" else f"{key}={quoted(text, True)}"
        )
    except HydraException as error:
        remedy = "write KEY=VALUE, and special characters in quotes, as in 'KEY=\"VALUE\"'"
        raise UserError(f"{setting}: not understood; {remedy}") from error


def quoted(text: str, interpolated: bool = False) -> str:
    r"""Quote a text as the value of a setting; `interpolated`: `${KEY}` in it is looked up.

    >>> print(quoted("it's"), quoted("step-10"), quoted("10"), quoted("${x}"), quoted("${x}", True))
    'it\'s' step-10 '10' '\${x}' '${x}'
    """
    if _PLAIN.fullmatch(text):
        return text
    text = text if interpolated else re.sub(r"(\\*)\$\{", r"\1\1\\${", text)
    return "'" + re.sub(r"(\\*)('|$)", lambda m: m[1] * 2 + "\\'" * (m[2] == "'"), text) + "'"


def full_key(kind: Any, key: str) -> str | None:
    """A key as the dataclass spells it, from what may be written for short; None: it has none."""
    known = keys(kind)
    head = f"{key}.{_HEADS.get(key)}"
    if head in known or (key in _HEADS and get_origin(known.get(key)) is dict):
        return head
    if key in known or _mapping(kind, key):
        return key
    matches = [name for name in known if name.endswith(f".{key}") and "." not in key]
    least = [n for n in matches if n.count(".") == min(m.count(".") for m in matches)]
    if len(least) > 1 and key != "name":  # the protocol's trials and temperature, nobody else's
        least = [name for name in least if name.startswith("sampling.")]
    return least[0] if len(least) == 1 else None


def _mapping(kind: Any, key: str) -> Any:
    """The type of the mapping of any keys that a key is, or is in; None: it is in none."""
    mappings = ((name, hint) for name, hint in keys(kind).items() if get_origin(hint) is dict)
    return next((hint for name, hint in mappings if f"{key}.".startswith(f"{name}.")), None)


def spelt(kind: Any, setting: str) -> str | None:
    """Return a setting as Hydra wants it, with its full key; None: the dataclass has none like it.

    >>> from bayes_at_n.pipeline.config.settings import RunConfig
    >>> [spelt(RunConfig, text) for text in ("trials=8", "metrics=avg,pass^4", "tag=1e3")]
    ['sampling.trials=8', "scoring.metrics=[avg,'pass^4']", "tag='1e3'"]
    """
    override = parse(setting)
    full = None if override.package else full_key(kind, override.key_or_group)
    if full is None:
        return None
    free = _mapping(kind, full)
    if override.is_delete():
        if free:
            return setting
        taken = "~ takes away a group's choice, or a key of engine.args"
        raise UserError(f"{setting}: {taken}; {HELP}")
    hint = keys(kind).get(full) or get_args(free)[1]
    text = (override.input_line or "").partition("=")[2]
    if get_origin(hint) is list:
        text = _listed(setting, override)
    elif str in (hint, *get_args(hint)) and isinstance(override.value(), bool | int | float):
        text = quoted(text.strip())  # 0100 and 1.50 as they are written
    mark = "++" if free else setting[: len(setting) - len(setting.lstrip("+"))]
    return f"{mark}{full}={text}"


def _listed(setting: str, override: "Override") -> str:
    """Return the value of a list's key in brackets, each item between commas as it is written."""
    text, value = setting.partition("=")[2].strip(), override.value()
    lists = [one for one in getattr(value, "list", None) or [] if isinstance(one, list)]
    many = override.is_sweep_override() and not getattr(value, "simple_form", False)
    if many or lists or text[:2] == "${":
        return text
    inside = text[1:-1].strip() if text[:1] + text[-1:] == "[]" else text
    if not inside or (override.input_line == setting and {"'", '"', "{"} & {*inside}):
        return f"[{inside}]"
    items = [item.strip() for item in inside.split(",")]
    if "" in items:
        raise UserError(f"{setting}: a comma with nothing beside it; leave it out")
    return f"[{','.join(quoted(item, True) for item in items)}]"


def explained(error: BaseException, kind: Any) -> UserError:
    """An error of Hydra or OmegaConf in one line, with the key or the file that it is about."""
    message, place = " ".join(str(error.__cause__ or error).split()), ""
    if file := re.match(r"In '([^']+)': (?:\w+ raised while composing config: ?)?", message):
        message, place = message[file.end() :], f"configs/{file[1]}.yaml: "
    message, _, full = message.partition(" full_key: ")
    full = full.partition(" ")[0]
    if missing := re.search(r"Missing mandatory value: (\S+)", message):
        key = full if full.endswith(missing[1]) else missing[1]
        return UserError(f"{key}: no value; give one, such as {key}=VALUE")
    if strange := re.search(r"Key '([^']+)' (?:is not in struct|not in '\w+')", message):
        return UserError(f"{place}{unknown(full or strange[1], kind)}")
    place += f"{full}: " * bool(full)
    remedy = "write \\${ where ${ is meant as text" if "nterpolation" in message else HELP
    return UserError(f"{place}{message or type(error).__name__}; {remedy}")
