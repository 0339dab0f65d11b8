"""Files that anybody may have left: looked at before they are opened, read within limits."""

import errno
import json
import stat
from pathlib import Path
from types import UnionType
from typing import Any

from bayes_at_n.pipeline.base.errors import UserError

_MOST = 1 << 28  # bytes of a file that is read whole; the manifest of a million questions has less
_DEEPEST = 32  # of lists in lists: ours have six
_LARGEST = 1e15  # of numbers: seconds, tokens and bytes of any run are less


def check(path: Path) -> None:
    """Raises FileNotFoundError: nothing is there; UserError: no file, or a link without content."""
    if (name := printable(path)) != str(path):
        raise UserError(f"{name}: a name that is not UTF-8; rename it")
    try:
        mode = path.stat().st_mode
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ELOOP) or not path.is_symlink():
            raise
        remedy = "fetch its content (git annex get, dvc pull), or delete the link"
        raise UserError(f"{path}: a link to what is not here; {remedy}") from None
    if not stat.S_ISREG(mode):
        raise UserError(f"{path}: a folder, a pipe or a device, and no file; move it")


def printable(path: Path) -> str:
    """A path whose bytes that are not UTF-8 are spelt out."""
    return str(path).encode(errors="backslashreplace").decode()


def read_text(path: Path, most: int = _MOST) -> str:
    """A file of at most so many bytes, in UTF-8. Raises as `check`; ValueError: it is another."""
    check(path)
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"more than {most:,} bytes")
    return data.decode()


def read_json(path: Path, shape: Any) -> dict[str, Any]:
    """A JSON object of a shape, as of `fits`. Raises as `read_text`."""
    try:
        value = json.loads(read_text(path))
    except RecursionError:
        value = None
    if not isinstance(value, dict) or not fits(value, shape):
        raise ValueError("holds something else than it should")
    return value


def fits(value: Any, shape: Any, deepest: int = _DEEPEST) -> bool:
    """Whether a JSON value has a shape, and is not nested too deep.

    A shape is a type, or several, whose numbers are finite; [SHAPE] for a list; for an object what
    those of its keys hold that are there, under `...` all others.

    >>> shape = {"id": str, "tasks": ([int], None), "more": {...: float}}
    >>> fits({"id": "7", "tasks": None, "any": {}}, shape), fits({"more": {"x": 1e99}}, shape)
    (True, False)
    """
    if isinstance(shape, tuple):
        return any(fits(value, one, deepest) for one in shape)
    if isinstance(value, dict) and (isinstance(shape, dict) or shape in (dict, object)):
        of = shape if isinstance(shape, dict) else {}
        parts = [(part, of.get(key, of.get(..., object))) for key, part in value.items()]
    elif isinstance(value, list) and (isinstance(shape, list) or shape in (list, object)):
        parts = [(part, shape[0] if isinstance(shape, list) else object) for part in value]
    elif not isinstance(shape, type | UnionType):
        return value is None is shape
    else:
        finite = not isinstance(value, int | float) or abs(value) < _LARGEST
        return isinstance(value, shape) and (finite or shape is object)
    return deepest > 0 and all(fits(part, one, deepest - 1) for part, one in parts)
