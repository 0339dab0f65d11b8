"""Print notes, warnings and progress to standard error, and results to standard output."""

import contextlib
import itertools
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress
from rich.segment import Segment

# What a terminal interprets or hides: control characters except line ends and tabs, marks of the
# writing direction, characters without width (joiners are parts of words), lone surrogates.
_UNSAFE = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ud800-\udfff\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e007f]"
)


def clean(text: str) -> str:
    """Return a text with unsafe characters as JSON escapes; both consoles print through this."""
    return _UNSAFE.sub(lambda match: json.dumps(match[0])[1:-1], text)


def clean_line(text: str) -> str:
    """Return `clean` text on one line."""
    return " ".join(clean(text).split())


class _CleanConsole(Console):
    def print(self, *args: Any, **options: Any) -> None:
        _sign.clear()
        if self.stderr or not (mode("json") or (_depth and not mode("verbose"))):
            super().print(*args, **options)

    def render(self, *args: Any, **options: Any) -> Any:
        for part in super().render(*args, **options):
            yield part if part.control else Segment(clean(part.text), part.style)


class _Sign:
    """What shows on standard error that a silent command still works."""

    def __init__(self) -> None:
        self.text = self.verb = ""
        self.printed, self.is_shown, self.meters = time.monotonic(), False, 0

    def clear(self) -> None:
        """Remove it; it returns after three seconds of silence."""
        if self.is_shown:
            os.write(2, b"\r\x1b[K")
        self.is_shown, self.printed = False, time.monotonic()

    def show(self) -> None:
        """Show it where nothing was printed for long, without locks, which a fork would copy."""
        silent = time.monotonic() - self.printed
        unmetered = console.is_terminal or not self.meters  # it stands in for a bar that is stuck
        if self.text and unmetered and silent >= (3 if console.is_terminal else 30):
            line = f"{self.text.removesuffix(' ...')}: {duration(silent)} ..."
            os.write(
                2, f"\r{line:.79}\x1b[K".encode() if console.is_terminal else f"{line}\n".encode()
            )
            self.is_shown = console.is_terminal
            self.printed = self.printed if self.is_shown else time.monotonic()


_sign = _Sign()


# Printed text comes from files and models: brackets and :names: in it are no markup. In a notebook,
# too, it is plain text.
_PLAIN: dict[str, Any] = dict.fromkeys(("highlight", "markup", "emoji", "force_jupyter"), False)
console = _CleanConsole(stderr=True, soft_wrap=True, **_PLAIN)
results = _CleanConsole(soft_wrap=True, **_PLAIN)

MODES = "BAYES_AT_N_OUTPUT"  # environment variable with the modes of `set_modes`
_inherited = os.environ.get(MODES, "").split()  # from the parent process
_depth = 0  # number of `substep` blocks around the running verb
_collecting: list[list[str]] = []


def set_modes(*modes: str) -> None:
    """Set what this process and its children print, in addition to the inherited modes.

    "quiet": results, warnings and errors only. "verbose": every table in full. "json": results as
    JSON only (`display.table.print_json`). "several": this command is one of several. "beside": a
    later command reports its errors.
    """
    os.environ[MODES] = " ".join({*_inherited, *modes})


def mode(name: str) -> bool:
    """Return whether a mode of `set_modes` is set."""
    return name in os.environ.get(MODES, "").split()


def prints_json() -> bool:
    """Return whether to print results as JSON; steps of another verb do not."""
    return mode("json") and not _depth


@contextlib.contextmanager
def substep() -> Iterator[None]:
    """Run a verb as a step of another: unless verbose, it prints fewer notes and no results."""
    global _depth
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1


@contextlib.contextmanager
def never_silent(what: str) -> Iterator[None]:
    """Show that a block still works, where it prints nothing for three seconds (30 in a log).

    The line names `what` or, if the last note ended with "...", that note.
    """
    done = threading.Event()
    _sign.text = _sign.verb = "" if mode("quiet") else what

    def show() -> None:
        while not done.wait(1):
            _sign.show()

    threading.Thread(target=show, daemon=True).start()
    try:
        yield
    finally:
        done.set()
        _sign.clear()
        _sign.text = _sign.verb = ""


def note(text: str) -> None:
    """Print a line of information."""
    if not mode("quiet"):
        console.print(text)
        _sign.text = text if _sign.verb and text.endswith("...") else _sign.verb


def paragraph(text: str) -> None:
    """Print a result in sentences; on a terminal lines end between words."""
    results.print(text, soft_wrap=not results.is_terminal)


def note_alone(text: str) -> None:
    """Print a note, unless the verb is a step of another one."""
    if not _depth or mode("verbose"):
        note(text)


def warn(text: str) -> None:
    """Print a warning; steps of a verb do not repeat one."""
    if not (_depth and _collecting and text in _collecting[-1]):
        console.print(f"warning: {text}", style="yellow")
        if _collecting:
            _collecting[-1].append(text)


@contextlib.contextmanager
def warnings_once() -> Iterator[list[str]]:
    """Collect the warnings of a block; inner blocks collect their own."""
    _collecting.append([])
    try:
        yield _collecting[-1]
    finally:
        _collecting.pop()


def fail(text: str) -> None:
    """Print why the command stopped."""
    if not mode("beside"):
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
    """Format a share as percentage with all its digits: 95%, 97.5%."""
    return f"{100 * share:.10g}%"


def plural(number: float, noun: str) -> str:
    """Format a number and a noun: 1 GPU, 2.5 points, 2,400 attempts."""
    return f"{f'{number:,}'.removesuffix('.0')} {noun}{'s' * (number != 1)}"


def joined(names: Iterable[str], most: int | None = None) -> str:
    """Join names as in a sentence, at most `most`, and count the others: a, b, c and 2 more."""
    parts = [*names]
    if most is not None and len(parts) > most:
        parts[most:] = [f"{len(parts) - most} more"]
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))


class Meter:
    """Shows the progress of a stage: a bar on a terminal, a line every 30 seconds elsewhere.

    In a step of another verb the final state is printed only with `keep`, or after a long time.
    """

    def __init__(self, label: str, total: int, done: int = 0, keep: bool = False) -> None:
        self.label, self.total, self.keep = label, total, keep or not _depth or mode("verbose")
        self.first = self.done = done
        self.started = self.drawn_at = time.monotonic()
        self.detail: Callable[[], str] = str
        self.bar = Progress(
            *("{task.description}", BarColumn(bar_width=20), MofNCompleteColumn()),
            "{task.fields[detail]}",
            console=console,
            auto_refresh=False,  # a refresh thread would compete with a CPU engine
            disable=mode("quiet") or not console.is_terminal or not total,
            transient=not self.keep,
        )
        self.task = self.bar.add_task(label, total=total, completed=done, detail="")

    def __enter__(self) -> Self:
        _sign.clear()
        _sign.meters += 1
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if not self.bar.disable or (self.keep and self.done > self.first):
            self.reach(self.done, self.detail, now=True)
        self.bar.stop()
        _sign.meters, _sign.text = _sign.meters - 1, _sign.verb
        _sign.clear()

    def advance(self, by: int, detail: Callable[[], str] = str) -> None:
        """Add `by` to the count; `detail` returns the text after the numbers when it is drawn."""
        self.reach(self.done + by, detail)

    def reach(self, done: int, detail: Callable[[], str] = str, now: bool = False) -> None:
        """Set the count, and draw it `now` or when it is time."""
        self.done, self.detail = done, detail
        if not now and time.monotonic() - self.drawn_at < (0.5 if console.is_terminal else 30):
            return
        self.keep, self.drawn_at, left = True, time.monotonic(), "time left unknown"
        if done != self.first:  # at the mean rate since the start
            per_item = (self.drawn_at - self.started) / (done - self.first)
            left = f"{duration(per_item * (self.total - done))} left"
        text = ", ".join(filter(None, [detail(), left]))
        self.bar.update(self.task, completed=done, detail=text, refresh=True)
        _sign.text = _sign.verb and f"{self.label} {self.done}/{self.total}"
        if self.bar.disable:
            note(f"{self.label}: {done}/{self.total}, {text}")
