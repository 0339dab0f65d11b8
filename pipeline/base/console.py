"""Print notes, warnings and progress to standard error, and results to standard output."""

import contextlib
import itertools
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress
from rich.segment import Segment

# What a terminal obeys or hides: control characters but line ends and tabs, marks that turn the
# direction of writing, characters without width (joiners belong to words), half characters.
_OBEYED = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ud800-\udfff\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e007f]"
)


def clean(text: str) -> str:
    """Spell as JSON does what a terminal would obey; both consoles print through here."""
    return _OBEYED.sub(lambda found: json.dumps(found[0])[1:-1], text)


def clean_line(text: str) -> str:
    """Return `clean` text in one line."""
    return " ".join(clean(text).split())


class _CleanConsole(Console):
    def print(self, *args: Any, **options: Any) -> None:
        if self.stderr or not (mode("json") or (_depth and not mode("verbose"))):
            super().print(*args, **options)

    def render(self, *args: Any, **options: Any) -> Any:
        for part in super().render(*args, **options):
            yield part if part.control else Segment(clean(part.text), part.style)


# What is printed comes from files and models: brackets and :names: in it are text, not markup.
# In a notebook, too, it is plain text.
_PLAIN: dict[str, Any] = dict.fromkeys(("highlight", "markup", "emoji", "force_jupyter"), False)
console = _CleanConsole(stderr=True, soft_wrap=True, **_PLAIN)
results = _CleanConsole(soft_wrap=True, **_PLAIN)

MODES = "BAYES_AT_N_OUTPUT"  # in the environment: modes of `set_modes`
_inherited = os.environ.get(MODES, "").split()  # from whoever started this process
_depth = 0  # how many verbs the running one is a step of
_collecting: list[list[str]] = []


def set_modes(*modes: str) -> None:
    """Set what this process and its children print, beside the modes it was started with.

    "quiet": results, warnings and errors only. "verbose": every table in full. "json": of results
    only what `display.table.print_json` gets. "several": this is one command of several.
    """
    os.environ[MODES] = " ".join({*_inherited, *modes})


def mode(name: str) -> bool:
    """Return whether a mode of :func:`set_modes` is set."""
    return name in os.environ.get(MODES, "").split()


def prints_json() -> bool:
    """Return whether to print results as JSON; steps of another verb do not."""
    return mode("json") and not _depth


@contextlib.contextmanager
def substep() -> Iterator[None]:
    """Run a verb as a step of another: it prints fewer notes, and no results, unless verbose."""
    global _depth
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1


def note(text: str) -> None:
    """Print a line of information."""
    if not mode("quiet"):
        console.print(text)


def note_alone(text: str) -> None:
    """Print a note, unless the verb is a step of another."""
    if not _depth or mode("verbose"):
        note(text)


def warn(text: str) -> None:
    """Print a warning; steps of a verb repeat none."""
    if not (_depth and _collecting and text in _collecting[-1]):
        console.print(f"warning: {text}", style="yellow")
        if _collecting:
            _collecting[-1].append(text)


@contextlib.contextmanager
def warnings_once() -> Iterator[list[str]]:
    """Collect the warnings of a block; a block inside keeps its own."""
    _collecting.append([])
    try:
        yield _collecting[-1]
    finally:
        _collecting.pop()


def fail(text: str) -> None:
    """Print why the command stopped."""
    console.print(f"error: {text}", style="bold red")


def duration(seconds: float) -> str:
    """Format a duration: 42 s, 2 min 05 s, 3 h 04 min, 2 d 02 h."""
    s, units = round(seconds), ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
    for (size, unit), (part, small) in itertools.pairwise(units):
        if s >= size:
            return f"{s // size} {unit} {s % size // part:02d} {small}"
    return f"{s} s"


def si(number: float) -> str:
    """Format a large number: 950, 68.8k, 2.93G."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.0f}"


def percent(share: float) -> str:
    """Format a share with as many digits as it has: 95 %, 97.5 %."""
    return f"{100 * share:.10g} %"


def plural(number: float, what: str) -> str:
    """Format a number and a noun: 1 GPU, 2.5 points, 2,400 attempts."""
    return f"{f'{number:,}'.removesuffix('.0')} {what}{'s' * (number != 1)}"


def joined(names: Iterable[str], most: int | None = None) -> str:
    """Join names as in a sentence, and count those beyond the `most`: a, b, c and 2 more."""
    shown = [*names]
    if most is not None and len(shown) > most:
        shown[most:] = [f"{len(shown) - most} more"]
    return " and ".join(filter(None, [", ".join(shown[:-1]), *shown[-1:]]))


class Meter:
    """Show progress of a stage: a bar on a terminal, a line every 30 seconds elsewhere.

    Of a step of another verb the end is said, or stays, only with `keep` or where it took long.
    """

    def __init__(self, what: str, total: int, done: int = 0, keep: bool = False) -> None:
        self.what, self.total, self.keep = what, total, keep or not _depth or mode("verbose")
        self.first = self.done = done
        self.started = self.shown = time.monotonic()
        self.detail: Callable[[], str] = str
        self.bar = Progress(
            *("{task.description}", BarColumn(bar_width=20), MofNCompleteColumn()),
            "{task.fields[detail]}",
            console=console,
            auto_refresh=False,  # a refresh thread would compete with a CPU engine
            disable=mode("quiet") or not console.is_terminal,
            transient=not self.keep,
        )
        self.task = self.bar.add_task(what, total=total, completed=done, detail="")

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if not self.bar.disable or (self.keep and self.done > self.first):
            self.reach(self.done, self.detail, now=True)
        self.bar.stop()

    def advance(self, by: int, detail: Callable[[], str] = str) -> None:
        """Count `by` more done; `detail` makes the text behind the numbers when it is drawn."""
        self.reach(self.done + by, detail)

    def reach(self, done: int, detail: Callable[[], str] = str, now: bool = False) -> None:
        """Set how many are done, and draw that `now` or when it is time."""
        self.done, self.detail = done, detail
        if not now and time.monotonic() - self.shown < (0.5 if console.is_terminal else 30):
            return
        self.keep, self.shown, left = True, time.monotonic(), "time left unknown"
        if done != self.first:  # at the mean rate since the start
            per_item = (self.shown - self.started) / (done - self.first)
            left = f"{duration(per_item * (self.total - done))} left"
        text = ", ".join(filter(None, [detail(), left]))
        self.bar.update(self.task, completed=done, detail=text, refresh=True)
        if self.bar.disable:
            note(f"{self.what}: {done}/{self.total}, {text}")
