"""The one style of all figures, and how they are saved.

Every function of `plots` takes arrays and returns a matplotlib ``Figure``; none needs a display,
keeps state or writes a file. ``pictures`` returns PDF and PNG, ``svg`` text for an HTML page.

>>> drawn, axes = panels(COLUMN, 2.0, "a_b%: $x_1$ is no formula")
>>> drawn.get_suptitle(), float(drawn.get_figwidth())
('a_b%: $x_1$ is no formula', 3.4)
"""

import hashlib
import io
import itertools
import re
import textwrap
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.optimize import isotonic_regression

Numbers = npt.NDArray[np.float64]

COLUMN, PAGE = 3.4, 7.0  # inches: one column of a two-column page, and both
TALLEST = 9.0  # inches, the height of a page
POINT = 1 / 72  # inches
SMALL, NORMAL, LARGE = 7.0, 8.0, 9.0  # font sizes in points

# Okabe and Ito's palette, safe for color-blind readers, from bad to good; gray is for category 0,
# which every rubric keeps for invalid attempts.
GRAY = "#999999"
INK = "#1a1a1a"  # text and axes; light on the report's dark page
COLORS = ("#D55E00", "#E69F00", "#F0E442", "#56B4E9", "#0072B2", "#009E73", "#CC79A7", "#000000")
BLUE, RED = COLORS[4], COLORS[0]
# Without yellow, which thin lines do not show on white. Cycles of seven colors, ten markers and
# four dashes are out of step: twenty models differ in black and white, too.
LINE_COLORS = (BLUE, RED, COLORS[5], COLORS[6], COLORS[1], COLORS[3], INK)
MARKERS = ("o", "s", "^", "D", "v", "X", "P", "<", "*", ">")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
HATCHES = ("", "///", "", "--", "", "\\\\\\", "xx", "||")
GUIDE: dict[str, Any] = {"color": INK, "linewidth": 0.7, "linestyle": (0, (2, 2))}

STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so figures are the same everywhere
    "font.size": NORMAL,  # of labels, ticks and legends
    "axes.titlesize": LARGE,
    "legend.frameon": False,
    "legend.handlelength": 3.2,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.axisbelow": True,
    "grid.color": "#808080",
    "grid.alpha": 0.3,  # faint on white and on a dark page
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.2,
    "lines.markersize": 4.0,
    "hatch.linewidth": 0.4,
    "text.parse_math": False,  # names are not formulas: "$" and "_" are literal
    "pdf.fonttype": 42,
    "svg.fonttype": "none",  # text as text, not as paths
    "svg.hashsalt": "bayes-at-n",
    **{key: INK for key in ("text.color", "axes.labelcolor", "axes.edgecolor")},
    **{key: INK for key in ("xtick.color", "ytick.color", "hatch.color")},
}
# matplotlib reads its settings when an artist is created, and for some ticks when it is drawn:
# functions that draw and functions that save are both decorated.
styled = matplotlib.rc_context(STYLE)  # type: ignore[arg-type]


def narrow() -> AbstractContextManager[None]:
    """Make figures within the block a column wide, as for a phone, with panels stacked."""
    return matplotlib.rc_context({"figure.figsize": (COLUMN, COLUMN)})


def is_narrow() -> bool:
    """Return whether :func:`narrow` is active."""
    return bool(matplotlib.rcParams["figure.figsize"][0] == COLUMN)


@styled
def panels(
    width: float, height: float, finding: str, columns: int = 1, rows: int = 1, about: str = ""
) -> tuple[Figure, list[Axes]]:
    """Create an empty figure of this size in inches, and its axes from left to right, row by row.

    Labels are laid out within the size, so that a figure of ``COLUMN`` inches is as wide as a
    column in print. Its title is the `finding`, what the figure shows, above what it is `about`;
    long titles are wrapped and add to the height.
    """
    if is_narrow():
        shrunk = 0.7 * columns if columns > 1 else min(1.2 * COLUMN / width, 1)
        width, height = COLUMN, height * (shrunk if width < PAGE or columns > 1 else 1)
        columns, rows = 1, columns * rows
    letters = int(width / (LARGE * POINT * 0.6))
    texts = (one_line(text, 3 * letters) for text in (finding, about))
    lines = [x for of in texts for x in textwrap.wrap(of, letters, break_on_hyphens=False)]
    high = min(height + LARGE * POINT * 1.3 * max(len(lines) - 1, 0), max(height, TALLEST))
    drawn = Figure(figsize=(width, high), layout="constrained")
    axes = [drawn.add_subplot(rows, columns, 1 + k) for k in range(rows * columns)]
    drawn.get_layout_engine().set(w_pad=0.04, h_pad=0.04)  # type: ignore[union-attr,call-arg]
    if lines:
        drawn.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=LARGE)
    return drawn, axes


def one_line(name: object, most: int = 0) -> str:
    """Return a name as a label: one printable line, with its middle elided if it is too long.

    `most`: characters; 0: 40, or 22 in a narrow figure.

    >>> one_line("NVIDIA-Nemotron-Nano-9B-v2"), one_line("a\\nb"), one_line("0123456789", 7)
    ('NVIDIA-Nemotron-Nano-9B-v2', 'a b', '012…789')
    """
    most = most or (22 if is_narrow() else 40)
    text = "".join(c if c.isprintable() else " " for c in str(name))
    if len(text) <= most:
        return text
    half = (most - 1) // 2
    return f"{text[:half]}…{text[-half:]}"


def plain(values: npt.ArrayLike) -> Numbers:
    """Return floats, with NaN for masked values, which matplotlib leaves blank.

    >>> plain(np.ma.array([1, 2], mask=[False, True]))
    array([ 1., nan])
    """
    masked: Any = np.ma.array(values, dtype=float, copy=False)  # type: ignore[no-untyped-call]
    return np.asarray(masked.filled(np.nan))


def palette(count: int) -> list[dict[str, Any]]:
    """Return color, marker and line style of each of ``count`` lines; all differ up to 70.

    >>> len({(look["marker"], look["linestyle"]) for look in palette(20)})  # in print, too
    20
    """
    looks = zip(*map(itertools.cycle, (LINE_COLORS, MARKERS, DASHES)), strict=False)
    keys = ("color", "marker", "linestyle")
    return [dict(zip(keys, look, strict=True)) for look in itertools.islice(looks, count)]


def every(count: int, index: int, marks: int = 8) -> tuple[int, int]:
    """Return `markevery` (first, step) of line ``index`` of ``count`` points, shifted per line.

    >>> every(80, 0), every(80, 3), every(3, 5)
    ((0, 10), (9, 10), (0, 1))
    """
    step = max(1, count // marks)
    return (index * 3) % step, step


def spread(
    positions: npt.ArrayLike, gap: float, low: float = -np.inf, high: float = np.inf
) -> Numbers:
    """Move labels by as little as possible until neighbors are at least ``gap`` apart.

    Order-preserving least squares, which is isotonic regression, clipped to between ``low`` and
    ``high``.

    >>> spread([1.0, 1.0, 5.0], 1.0)
    array([0.5, 1.5, 5. ])
    >>> spread([1.0, 1.0, 5.0], 1.0, low=1.0)
    array([1., 2., 5.])
    """
    start = np.asarray(positions, dtype=float)
    order, steps = np.argsort(start, kind="stable"), gap * np.arange(len(start))
    moved, fitted = np.empty(len(start)), isotonic_regression(start[order] - steps).x
    moved[order] = np.clip(fitted, low, high - steps[-1]) + steps
    return moved


def legend_columns(labels: Sequence[str], width: float) -> int:
    """Return how many legend columns, as wide as the longest label, fit into a width in inches.

    >>> legend_columns(["aime24", "aime25"], PAGE), legend_columns(["x" * 40] * 3, PAGE)
    (2, 2)
    """
    longest = max(len(label) for label in labels)
    wide = NORMAL * POINT * (6 + 0.6 * longest)
    return max(1, min(len(labels), int(width / wide)))


def legend(
    figure: Figure,
    handles: Sequence[Any],
    labels: Sequence[str],
    beside: bool = False,
    columns: int = 0,
) -> None:
    """Add a legend right of a figure's axes, or below in so many columns; 0: as many as fit."""
    # As many empty lines as the figure's title has, which extends above the legend.
    lines = figure.get_suptitle().count("\n") + 1
    layout: dict[str, Any] = {"loc": "outside right upper", "title": "\n" * lines}
    if not beside or is_narrow():
        columns = columns or legend_columns(labels, figure.get_figwidth())
        if is_narrow():
            rows = sum(label.count("\n") + 1 for label in labels) / columns
            figure.set_figheight(figure.get_figheight() + 0.17 * rows)
        layout = {"loc": "outside lower center", "ncols": columns}
    # matplotlib hides labels with a leading underscore, so labels are set afterwards.
    drawn = figure.legend(list(handles), [f"{i}" for i in range(len(handles))], **layout)
    for text, label in zip(drawn.get_texts(), labels, strict=True):
        text.set_text(label)


@styled
def pictures(figure: Figure, path: Path) -> dict[Path, bytes]:
    """A figure as PDF and as PNG of 200 dots an inch, by the paths of the two files.

    No date is written. `path`: without a suffix (a dot in the name is no suffix).
    """
    drawn = {}
    for kind, metadata in {"pdf": {"CreationDate": None}, "png": {"Software": None}}.items():
        figure.savefig(buffer := io.BytesIO(), format=kind, dpi=200, metadata=metadata)
        drawn[path.with_name(f"{path.name}.{kind}")] = buffer.getvalue()
    return drawn


@styled
def svg(figure: Figure) -> str:
    """Return a figure as an ``<svg>`` element: text as text, no script, no date, nothing global.

    A page may hold several: their ids begin with a digest of the figure. Ink takes the color of the
    page's text, and the background is transparent, so that a figure suits a dark page, too.
    """
    buffer = io.StringIO()
    metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(buffer, format="svg", transparent=True, metadata=metadata)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, count=1, flags=re.DOTALL)
    # matplotlib's style sheet selects "*" and would apply to the whole page.
    text = re.sub(r"<style type=.text/css.>.*?</style>", "", text, count=1, flags=re.DOTALL)
    text = text.replace("<svg ", '<svg style="stroke-linejoin:round;stroke-linecap:butt" ', 1)
    key = "f" + hashlib.sha256(text.encode()).hexdigest()[:12]
    text = re.sub(r'(<[^<>]*?\sid=")', rf"\g<1>{key}-", text)
    text = re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{key}-", text)
    text = re.sub(r'\sd="[^"]+"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]), text)
    return re.sub(rf"(stroke|fill): {INK}", r"\1: currentColor", text).strip()
