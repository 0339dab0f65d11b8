"""What each stage makes of recorded attempts, by a hash: a change needs another version number.

After a change that is meant, raise the stage's version and run `python tests/test_stages.py`.
"""

import contextlib
import hashlib
import io
import json
import tempfile
from pathlib import Path
from typing import Any

from bayes_at_n.pipeline.cli.main import main
from bayes_at_n.pipeline.store import graded
from bayes_at_n.pipeline.store.columns import KEY
from bayes_at_n.pipeline.store.runfolder import Run, opened
from bayes_at_n.pipeline.store.tables import Derived

RECORDED = Path(__file__).parent / "recorded"
STORED = RECORDED / "stages.json"
MODEL = "demo-step-3900"


def hashed(run: Run, table: Derived, inputs: dict[str, Any]) -> str:
    """A hash of all rows of a table, in the order of their keys."""
    names = [name for name in table.columns.names if name not in KEY]
    rows = table.read(run, names, inputs).table.to_pylist()
    rows.sort(key=lambda row: (row["question_id"], row["trial"]))
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()


def stages(root: Path) -> dict[str, Any]:
    """Version and hash of each stage's table."""
    with contextlib.redirect_stdout(io.StringIO()):
        assert main(["import", f"source={RECORDED / 'attempts.parquet'}", f"runs={root}"]) == 0
        folder = root / "demo" / MODEL
        assert main(["grade", str(folder)]) == 0
    run, made = opened(folder), {}
    for table, inputs in [(graded.GRADES_TABLE, graded.inputs(run))]:
        made[table.verb] = {"version": table.version, "hash": hashed(run, table, dict(inputs))}
    return made


def test_results_change_with_a_version_only(tmp_path: Path) -> None:
    assert stages(tmp_path) == json.loads(STORED.read_text())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        STORED.write_text(json.dumps(stages(Path(folder)), indent=1) + "\n")
