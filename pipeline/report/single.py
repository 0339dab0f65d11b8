"""A report in a single file, for email, which contains as much of its side files as fits.

Numbers of all attempts come first, then the texts of the first trials of every question.
"""

import base64
import bisect
import json
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bayes_at_n.pipeline.report.texts import stored
from bayes_at_n.pipeline.store.runfolder import Run

LIMIT = 10_000_000  # bytes; email adds a third, and servers accept 20 or 25 million
SPARE = 500  # bytes of it for the sentence on what is left out
_ORDER = (r"katex", r"\d+-q\d+", r"\d+-\d+-p", r"\d+-\d+-\d+")  # by importance
_TEXTS = len(_ORDER) - 1


class Packed(NamedTuple):
    """The side files in a page."""

    files: dict[str, str]  # name -> base64 of its value, deflated
    left_out: str  # what does not fit, as a sentence; "" if everything does


def most_trials(runs: Sequence[Run]) -> int | None:
    """Return an upper estimate of how many trials per question fit; None: all of them.

    Shards are compressed, and have log-probs, too: texts from over four limits hardly fit into one.
    """
    size = stored(runs)
    trials = max((run.cfg.sampling.trials for run in runs), default=0)
    return None if size <= 4 * LIMIT else max(1, 4 * LIMIT * trials // size)


def pack(side: Path, room: int, sampled: int) -> Packed:
    """Compress the side files in a folder into at most `room` bytes, by importance.

    `sampled`: the largest number of trials per question.
    """
    files, lost, texts = dict[str, str](), list[str](), list[Path]()
    for path in sorted(side.glob("*.js"), key=_order):
        if _order(path)[0] == _TEXTS:
            texts.append(path)
        elif (taken := size(path.stem, packed := _packed(_value(path)))) <= room:
            room -= taken
            files[path.stem] = packed
        else:
            lost.append(f"{path.stem}.js")
    upto = range(1, sampled + 1) if texts else range(0)
    trials = bisect.bisect_left(upto, True, key=lambda n: _texts(texts, n, room) is None)
    files |= _texts(texts, trials, room) or {}
    if trials < len(upto):
        kept = f"all but those of the first {trials}" if trials else "all"
        lost.append(f"texts of {kept} of {sampled} trials")
    limit = f"left out to keep the file below {LIMIT // 10**6} MB"
    return Packed(files, f"{limit}: {', '.join(lost)}" if lost else "")


def _order(path: Path) -> tuple[int, list[int]]:
    """Return a sort key of a side file: its importance, then its numbers."""
    kind = next(k for k, pattern in enumerate(_ORDER) if re.fullmatch(pattern, path.stem))
    return kind, [*map(int, re.findall(r"\d+", path.stem))]


def _texts(paths: Sequence[Path], trials: int, room: int) -> dict[str, str] | None:
    """Pack files with the texts of the first trials; None if they do not fit."""
    files = {}
    for path in paths:
        rows = json.loads(_value(path))["rows"]
        kept = {key: row for key, row in rows.items() if int(key.partition("/")[2]) < trials}
        files[path.stem] = _packed(json.dumps({"rows": kept}, separators=(",", ":")))
        room -= size(path.stem, files[path.stem])
        if room < 0:
            return None
    return files


def _value(path: Path) -> str:
    """Read the JSON value of a side file, or the whole script of the library."""
    text = path.read_text(encoding="utf-8")
    return text if path.stem == "katex" else text.partition(",")[2].removesuffix(");\n")


def _packed(text: str) -> str:
    return base64.b64encode(zlib.compress(text.encode())).decode()


def size(name: str, packed: str) -> int:
    """Return the bytes of the HTML element with a side file."""
    return len(packed) + len(name) + 60
