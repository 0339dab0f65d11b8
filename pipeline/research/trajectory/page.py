"""trajectory.md: all tables and pictures of a trajectory on one page."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from pipeline.base import atomic
from pipeline.display import table as tabular
from pipeline.display.table import Table
from pipeline.research.trajectory.plan import TrajectoryPlan

# Which picture stands above which table; pictures of several data sets have names behind.
_ABOVE = {
    "stability": ("trajectory",),
    "merge": ("merge",),
    "samples": ("samples", "cost"),
    "crossings": ("side_by_side",),
    "variance": ("variance",),
}
_ONLY_FILES = ("curve", "ahead")  # too long for a page


def write(
    folder: Path,
    plan: TrajectoryPlan,
    tables: Mapping[str, Table],
    pictures: Sequence[str],
    summary: Sequence[str],
    warnings: Sequence[str],
) -> Path:
    """Write the page.

    Args:
        folder: where tables and pictures are.
        plan: what was evaluated.
        tables: by stem.
        pictures: stems, safe as file names.
        summary: what the numbers say, one line each.
        warnings: what should be known, one line each.

    Raises:
        OSError: it cannot be written.
    """
    parts = [f"# Trajectory of {plan.label}\n"]
    parts.append("\n".join(f"- {line}" for line in summary) + "\n")
    parts += [f"> {line}\n" for line in warnings]
    left = list(pictures)
    for name, table in tables.items():
        for kind in _ABOVE.get(name, ()):
            for picture in [p for p in left if p == kind or p.startswith(f"{kind}_")]:
                parts.append(_shown(picture))
                left.remove(picture)
        if name in _ONLY_FILES:
            parts.append(f"{table.title}: [{name}.csv]({name}.csv)\n")
        else:
            parts.append(tabular.to_markdown(table))
    parts += [_shown(picture) for picture in left]
    path = folder / "trajectory.md"
    atomic.write_text(path, "\n".join(parts))
    return path


def _shown(picture: str) -> str:
    return f"![{picture}]({picture}.png)\n"


def stem(name: str) -> str:
    """A name as a file name and a link: data sets may be called anything.

    >>> stem("samples_my set/2")
    'samples_my_set_2'
    """
    return re.sub(r"[^\w.-]", "_", name)
