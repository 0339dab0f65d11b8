"""KEY=VALUE arguments into a dataclass, with the same checks of keys and types as a run's settings.

For verbs that have no model and no engine to choose, so that Hydra's groups are not needed. Fields
that are dataclasses are groups: their keys are `group.key`.
"""

import difflib
import re
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import yaml  # type: ignore[import-untyped]
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pipeline.base.errors import UserError
from pipeline.config.renamed import refuse

Config = TypeVar("Config")


def fill(
    kind: type[Config],
    arguments: Sequence[str],
    heads: Mapping[str, str] | None = None,
    free: Collection[str] = (),
    hidden: Collection[str] = (),
) -> Config:
    """A settings dataclass from the command line.

    Args:
        kind: the dataclass; every field has a default.
        arguments: KEY=VALUE. `key=a,b`, `key=[a,b]` and `key=a` are all lists where the field is
            one; a key of a group may be written without the group where only one group has it.
        heads: what a group is mostly set for: with {"merge": "windows"}, `merge=4` is short for
            `merge.windows=4`.
        free: mappings that take any key: with ["weights"], `weights.NAME=[0, 1]`.
        hidden: fields that are no settings, left out of what an error says is known.

    Raises:
        UserError: an unknown key (with the nearest known ones), a value of the wrong type, an
            argument that is no setting.

    >>> from dataclasses import dataclass, field
    >>> @dataclass
    ... class Prices:
    ...     output: float = 10.0
    >>> @dataclass
    ... class Settings:
    ...     names: list[str] = field(default_factory=list)
    ...     prices: Prices = field(default_factory=Prices)
    >>> fill(Settings, ["names=a,b", "output=2"])
    Settings(names=['a', 'b'], prices=Prices(output=2.0))
    """
    node: DictConfig = OmegaConf.structured(kind)
    heads = heads or {}
    for argument in arguments:
        key, sign, text = argument.partition("=")
        if not sign:
            raise UserError(f"{argument}: not a setting; settings are KEY=VALUE")
        full = _full_key(kind, key.strip(), heads, free, hidden)
        try:
            value = _value(kind, full, text, free)
            OmegaConf.update(node, full, value, force_add=_is_free(full, free))
        except (OmegaConfBaseException, ValueError, yaml.YAMLError) as error:
            why = " ".join(str(error).split(" full_key:")[0].split())
            raise UserError(f"{full}={text}: {why}; see `python -m pipeline --help`") from error
    made = OmegaConf.to_object(node)
    assert isinstance(made, kind)
    return made


def _full_key(
    kind: type[Any],
    key: str,
    heads: Mapping[str, str],
    free: Collection[str],
    hidden: Collection[str],
) -> str:
    """A key as the dataclasses spell it."""
    refuse(key)
    kinds = dict(keys(kind))
    if key in heads:
        return f"{key}.{heads[key]}"
    if (key in kinds and not is_dataclass(kinds[key])) or _is_free(key, free):
        return key
    if "." not in key:
        of = [known for known in kinds if known.rpartition(".")[2] == key and "." in known]
        if len(of) == 1:
            return of[0]
    leaves = {known.rpartition(".")[2]: known for known in kinds}
    close = difflib.get_close_matches(key, [*kinds, *leaves], n=3)
    near = list(dict.fromkeys(name if name in kinds else leaves[name] for name in close))
    if key in kinds:
        near = [known for known in kinds if known.startswith(f"{key}.")]
    near += [known for known in kinds if known.endswith(f".{key}") and known not in near]
    known_keys = ", ".join(f.name for f in fields(kind) if f.name not in hidden)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {known_keys}"
    raise UserError(f"{key}: no such key ({hint})")


def _is_free(key: str, free: Collection[str]) -> bool:
    """Whether a key is one of a mapping that takes any."""
    return any(key.startswith(f"{name}.") for name in free)


def keys(kind: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every key of a dataclass with its type, groups before their own keys."""
    for name, hint in get_type_hints(kind).items():
        yield f"{prefix}{name}", hint
        if is_dataclass(hint):
            yield from keys(hint, f"{prefix}{name}.")


def _value(kind: type[Any], key: str, text: str, free: Collection[str]) -> Any:
    """The value of a setting; OmegaConf turns texts into numbers where the field is one."""
    if _is_free(key, free):
        return yaml.safe_load(text)
    hint = dict(keys(kind))[key]
    optional = get_origin(hint) in (UnionType, typing.Union) and type(None) in get_args(hint)
    if optional and text in ("null", "None", ""):
        return None
    if get_origin(hint) is list:
        return [part.replace("${", "\\${") for part in parts(text)]
    if get_origin(hint) is dict:
        return yaml.safe_load(text)
    return _unquoted(text).replace("${", "\\${")  # no interpolation


def parts(text: str) -> list[str]:
    """The parts of a list, in brackets or not; each without quotes around it.

    >>> parts("[a, 'b']"), parts("run/step-3[0-9],x"), parts("")
    (['a', 'b'], ['run/step-3[0-9]', 'x'], [])
    """
    whole = re.fullmatch(r"\s*\[(.*)\]\s*", text, re.DOTALL)
    return [_unquoted(part) for part in (whole[1] if whole else text).split(",") if part.strip()]


def _unquoted(text: str) -> str:
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        text = text[1:-1]
    return text
