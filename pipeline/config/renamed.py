"""Keys that have another name now: whoever gives an old one is told the new one, in one line."""

from collections.abc import Mapping
from typing import Any

from pipeline.base.errors import UserError

RENAMED = {"schema": "rubric"}
"""Old key to new, with dots; a group stands for its keys, too."""


def refuse(key: str, place: str = "") -> None:
    """Nothing, for a key of today.

    Args:
        key: as it was given, with dots.
        place: where, in front of the message; empty for the command line.

    Raises:
        UserError: it has another name now.

    >>> refuse("rubric.names")
    >>> refuse("schema.names")
    Traceback (most recent call last):
    pipeline.base.errors.UserError: schema.names: is called rubric.names now
    """
    for old, new in RENAMED.items():
        if key == old or key.startswith(f"{old}."):
            raise UserError(f"{place}{key}: is called {new}{key.removeprefix(old)} now")


def refuse_any(settings: Mapping[Any, Any], place: str, prefix: str = "") -> None:
    """As :func:`refuse`, for every key of nested mappings, such as those of a YAML file."""
    for name, value in settings.items():
        refuse(f"{prefix}{name}", place)
        if isinstance(value, Mapping):
            refuse_any(value, place, f"{prefix}{name}.")
