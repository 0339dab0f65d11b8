"""Which values settings may have: limits for fields of dataclasses, and `validated`, which checks.

A limit is part of a field's type, as in ``trials: Positive = 80``. A rule for several fields is a
line of the generator `problems` of their dataclass.
"""

import contextlib
import difflib
import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from typing import Annotated, Any, TypeVar, get_type_hints

from pydantic import AfterValidator as After
from pydantic import BeforeValidator as Before
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config

from bayes_at_n.pipeline.base.errors import UserError, did_you_mean

T = TypeVar("T")
MISSING: Any = "???"  # a value that has to be given, as OmegaConf writes it
AUTO = "auto"
_hints: Any = functools.cache(get_type_hints)  # most of the time that a setting takes
_STRICT = ConfigDict(extra="forbid", coerce_numbers_to_str=True)
_MOST = 3  # problems that one message names


def must(be: str, when: Any) -> After:
    """Limit a field to values for which `when` is true, and raises no ValueError."""

    def check(value: Any) -> Any:
        with contextlib.suppress(ValueError, OverflowError):
            if when(value):
                return value
        raise ValueError(f"must be {be}")

    return After(check)


def one_of(*names: str) -> After:
    """Limit a field to some texts; the message names the nearest."""

    def check(value: str) -> str:
        if value in names:
            return value
        raise ValueError(f"no such choice ({did_you_mean(value, names, all_are='choose from')})")

    return After(check)


Natural = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, lt=1 << 62)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Above0 = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, le=1)]
Level = Annotated[float, Field(gt=0, lt=1)]  # of confidence
Points = Annotated[float, Field(gt=0, lt=100)]  # of accuracy
Named = Annotated[str, must("a name, or left out", str.strip)]
FolderName = Annotated[
    str, must("a folder's name, without /", lambda v: v.strip(". ") and not {*"/\0"} & {*v})
]
Auto = Annotated[  # AUTO until the machine and the model are known
    Any, must("a whole number from 1, or auto", lambda v: v == AUTO or (type(v) is int and v > 0))
]
# The user's word for a folder, or for jobs that of `submit`; to YAML and Hydra a bool.
Trust = Annotated[str, Before(lambda v: str(v).lower()), one_of("false", "true", "submitted")]


def validated(kind: type[T], values: Mapping[str, Any]) -> T:
    """Check plain values, all of them, and make settings of these.

    Raises UserError: one line with the full keys, their values and what they must be.

    >>> from bayes_at_n.pipeline.config.scoring import PriorConfig
    >>> validated(PriorConfig, {"trials": 8})
    Traceback (most recent call last):
    bayes_at_n.pipeline.base.errors.UserError: trials=8 without prior=RUN: name the run folder ...
    """
    try:
        cfg: T = _adapter(kind).validate_python(dict(values))  # type: ignore[arg-type]
        groups = [*_groups(cfg)]
        values = {f"{of}{key}": one for of, group in groups for key, one in vars(group).items()}
        lines = [f"{k}: no value; write {k}=VALUE" for k, one in values.items() if one == MISSING]
        lines = lines or [
            f"{of}{line}" for of, group in groups for line in getattr(group, "problems", tuple)()
        ]
    except ValidationError as error:
        lines = [_line(kind, found) for found in error.errors(include_url=False)]
    if not lines:
        return cfg
    more = f"; and {len(lines) - _MOST} more" if len(lines) > _MOST else ""
    raise UserError("; ".join(lines[:_MOST]) + more)


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(with_config(_STRICT)(kind))  # groups within groups take its configuration


def _groups(cfg: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield groups within groups, and all of them last; each with what its full keys begin with."""
    for name, value in vars(cfg).items():
        if is_dataclass(value):
            yield from _groups(value, f"{prefix}{name}.")
    yield prefix, cfg


def _line(kind: Any, error: Any) -> str:
    """Say what is wrong with one value, in one line of bounded length."""
    key = ".".join(part for part in error["loc"] if isinstance(part, str) and part != "[key]")
    if error["type"] == "unexpected_keyword_argument":
        return str(unknown(key, kind))
    value, why = error["input"], error["msg"].removeprefix("Value error, ")
    text = " ".join((value if isinstance(value, str) else json.dumps(value, default=str)).split())
    return f"{key}={text:.200}: {why}" if not key.endswith("url") else f"{key}: {why}"


def keys(kind: Any) -> Mapping[str, Any]:
    """Return every key of a dataclass, with dots, and its type; groups before their own keys."""
    hints = {}
    for name, hint in _hints(kind).items():
        hints[name] = hint
        if is_dataclass(hint):
            hints |= {f"{name}.{key}": inner for key, inner in keys(hint).items()}
    return hints


def unknown(key: str, *kinds: Any) -> UserError:
    """Say that there is no such key, with those that were perhaps meant, or all beside it."""
    known = {name: name.rpartition(".")[2] for kind in kinds for name in keys(kind)}
    leaf = "run_dir" if key == "runs" else key.rpartition(".")[2]
    close = [leaf] if leaf in known.values() else difflib.get_close_matches(leaf, known.values(), 1)
    near = [name for name in known if known[name] in close]
    beside = [name for name in known if "." not in name]
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(beside)}"
    return UserError(f"{key}: no such key ({hint})")
