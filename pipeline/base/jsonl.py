"""JSON Lines files that others wrote: one object a line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.base.errors import UserError


def read(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Place ("line 1") and object of every line that is not blank.

    Raises UserError: a line is no JSON object in UTF-8. OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                text = line.decode("utf-8-sig")  # which drops the mark that some editors begin with
                record = json.loads(text) if text.strip() else None
            except (ValueError, RecursionError) as error:
                raise UserError(f"{path}, line {number}: not JSON in UTF-8 ({error})") from error
            if isinstance(record, dict):
                yield f"line {number}", record
            elif text.strip():
                raise UserError(f"{path}, line {number}: not an object, {{KEY: VALUE, ...}}")
