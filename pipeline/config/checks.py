"""What a value of a setting may be, said where the setting is declared."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, fields, is_dataclass
from typing import Any, TypeVar, get_args, get_type_hints

from omegaconf import MISSING

from bayes_at_n.pipeline.base.errors import UserError

Config = TypeVar("Config")
Auto = Any  # of a field: a whole number, or AUTO until the machine and the model are known
AUTO = "auto"
TRUST = ("false", "true", "submitted")  # the user's word for a folder; of jobs, that of `submit`


def limited(
    default: Any = MISSING,
    within: str = "",
    one_of: Sequence[str] = (),
    named: bool = False,
    auto: bool = False,
) -> Any:
    """A field of a settings dataclass, as `dataclasses.field`; of a list every element counts.

    `within` is an interval such as "(0, 1]" or "[1, inf)", which None passes, and `one_of` are the
    texts it may be; where it is `named` a blank text is none, as of a file's name; with `auto` it
    is a whole number or AUTO. A `default` that is a list is copied.
    """
    limits = {"within": within, "one_of": tuple(one_of), "named": named, "auto": auto}
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata=limits)
    return field(default=default, metadata=limits)


def check(cfg: Config) -> Config:
    """The settings themselves, where every value can work.

    Raises UserError: one cannot; the message begins with its full key.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Sampling:
    ...     trials: int = limited(80, "[1, inf)")
    >>> check(Sampling(8))
    Sampling(trials=8)
    >>> check(Sampling(0))
    Traceback (most recent call last):
    bayes_at_n.pipeline.base.errors.UserError: trials=0: must be at least 1
    """
    for message in _problems(cfg):
        raise UserError(message)
    return cfg


def _problems(cfg: Any, prefix: str = "") -> Iterator[str]:
    """A line for every value outside its limits, and for what a dataclass's own `problems` say."""
    for f in fields(cfg):
        value = getattr(cfg, f.name)
        if is_dataclass(value):
            yield from _problems(value, f"{prefix}{f.name}.")
            continue
        for part in value if isinstance(value, list) else [value]:
            typed = part is not None or f.metadata.get("auto")  # of any other, null has a type
            if typed and (why := _outside(part, **f.metadata)):
                or_null = ", or be null" if type(None) in get_args(f.type) else ""
                yield f"{prefix}{f.name}={value}: {why}{or_null}"
    if hasattr(cfg, "problems"):
        yield from (f"{prefix}{line}" for line in cfg.problems())


def _outside(
    value: Any,
    within: str = "",
    one_of: Sequence[str] = (),
    named: bool = False,
    auto: bool = False,
) -> str:
    """Why a value is none; empty where it is one.

    >>> _outside(1.0, "(0, 1]"), _outside(0, "(0, 1]"), _outside(float("inf"), "[0, inf)")
    ('', 'must be above 0 and at most 1', 'must be at least 0')
    >>> _outside("vlm", one_of=("vllm", "transformers"))
    'must be vllm or transformers (did you mean vllm?)'
    >>> _outside("auto", "[1, inf)", auto=True), _outside("all", "[1, inf)", auto=True)
    ('', 'must be a whole number, at least 1, or auto')
    """
    if auto and (value == AUTO or type(value) is not int or _outside(value, within)):
        least = within[1:].split(", ")[0]
        return "" if value == AUTO else f"must be a whole number, at least {least}, or auto"
    if one_of and value not in one_of:
        near = difflib.get_close_matches(str(value), one_of, n=1)
        return f"must be {' or '.join(one_of)}" + (f" (did you mean {near[0]}?)" if near else "")
    if named and not value.strip():
        return "is empty; it must be a name, or be left out"
    if within:
        low, high = within[1:-1].split(", ")
        above = float(low) <= value if within[0] == "[" else float(low) < value
        below = value <= float(high) if within[-1] == "]" else value < float(high)
        if not (above and below):
            most = f"{'at most' if within[-1] == ']' else 'below'} {high}"
            least = f"{'at least' if within[0] == '[' else 'above'} {low}"
            return f"must be {least}" if high == "inf" else f"must be {least} and {most}"
    return ""


def validated(kind: type[Config], values: Any) -> Config:
    """Make a checked instance of a dataclass. Raises UserError: unknown keys, too."""
    from bayes_at_n.pipeline.config.overrides import flat, is_free, keys, unknown

    for key in dict(flat(values)):
        if key not in keys(kind) and not is_free(kind, key):
            raise unknown(key, kind)
    try:
        return check(_made(kind, values))
    except TypeError as error:  # of a list that was put in by an interpolation
        raise UserError(f"{kind.__name__}: a value of another type ({error})") from error


def _made(kind: type[Config], values: Mapping[str, Any]) -> Config:
    hints = get_type_hints(kind)
    made = {k: _made(hints[k], v) if is_dataclass(hints[k]) else v for k, v in values.items()}
    return kind(**made)
