"""docs/notebook.ipynb runs, and shows what is stored in it.

`python tests/api/test_notebook.py` stores what it shows; with --engine that of real models, too.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "docs" / "notebook.ipynb"
ENGINE = "skip-execution"  # the tag of cells that take vLLM; nbclient's own


def executed(folder: Path, engine: bool) -> Any:
    """The notebook as a fresh kernel in a folder leaves it, without notes and progress."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code" and (engine or ENGINE not in cell.metadata.get("tags", ())):
            cell.outputs, cell.execution_count = [], None
    skipped = "" if engine else ENGINE
    environment = os.environ | {"PYTHONPATH": str(ROOT), "IPYTHONDIR": str(folder / "ipython")}
    nbclient.NotebookClient(
        notebook,
        timeout=600,
        skip_cells_with_tag=skipped,
        resources={"metadata": {"path": str(folder)}},
    ).execute(env=environment)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [out for out in cell.outputs if out.get("name") != "stderr"]
    return notebook


def shown(cell: Any) -> list[Any]:
    """What a cell prints and returns as text, and which pictures there are."""
    found = []
    for output in cell.get("outputs", ()):
        data = output.get("data", {})
        pictures = sorted(kind for kind in data if kind.startswith("image/"))
        found.append((output.output_type, output.get("text") or data.get("text/plain"), pictures))
    return found


@pytest.mark.soak
def test_the_notebook_shows_what_is_stored_in_it(tmp_path: Path) -> None:
    stored = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(stored)
    assert NOTEBOOK.stat().st_size < 300_000
    found = executed(tmp_path, engine=False)
    for before, after in zip(stored.cells, found.cells, strict=True):
        assert shown(after) == shown(before), before.source
    kinds = [pictures for cell in stored.cells for *_, pictures in shown(cell) if pictures]
    assert kinds == [["image/png"]]


@pytest.mark.soak
def test_the_notebook_runs_on_real_models(tmp_path: Path) -> None:
    stored, found = nbformat.read(NOTEBOOK, as_version=4), executed(tmp_path, engine=True)
    assert "step-3900" in str(found.cells[-1].outputs)
    assert [len(shown(cell)) for cell in found.cells] == [len(shown(c)) for c in stored.cells]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        nbformat.write(executed(Path(place), engine="--engine" in sys.argv), NOTEBOOK)
