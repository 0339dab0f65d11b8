"""Results of each stage on recorded attempts, by a hash: a change needs another version number.

After a change that is meant, raise the stage's version and run `python tests/test_stages.py`.
"""

import contextlib
import hashlib
import io
import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from test_recorded import rounded

from bayes_at_n.pipeline.cli.main import main
from bayes_at_n.pipeline.rubrics import categories, signals
from bayes_at_n.pipeline.score import headline
from bayes_at_n.pipeline.store import outcomes, provenance
from bayes_at_n.pipeline.store.columns import KEY
from bayes_at_n.pipeline.store.runfolder import open_run

RECORDED = Path(__file__).parent / "recorded"
STORED = RECORDED / "stages.json"


def stages(root: Path) -> dict[str, Any]:
    """Version and hash of what each stage makes of one model's attempts."""
    folder = root / "demo" / "demo-step-3900"
    with contextlib.redirect_stdout(io.StringIO()):
        assert main(["import", f"source={RECORDED / 'attempts.parquet'}", f"runs={root}"]) == 0
        for verb in ("grade", "categorize", "score"):
            assert main([verb, str(folder)]) == 0
    run, table = open_run(folder), outcomes.GRADES_TABLE
    names = [name for name in table.columns.names if name not in KEY]
    grades = table.read(run, names, outcomes.grade_inputs(run)).table.to_pylist()
    grades.sort(key=lambda row: (row["question_id"], row["trial"]))
    digits = [
        [f"{x:.5g}" if isinstance(x, float) else x for x in row.values()]
        for row in signals.read(run).to_pylist()
    ]
    tables = {p.stem: pq.read_table(p) for p in sorted(folder.glob("categories/*.parquet"))}
    scores = json.loads((folder / "scores.json").read_text().replace(str(root), "runs"))
    del scores[headline.MADE_FROM]
    made = {
        "signals": (signals.SIGNALS_TABLE.version, digits),
        "categorize": (categories.VERSION, {n: t.to_pylist() for n, t in tables.items()}),
        "score": (headline.VERSION, rounded(scores)),
    }
    text = json.dumps(grades, sort_keys=True).encode()
    of_grades = {"version": table.version, "hash": hashlib.sha256(text).hexdigest()}
    return {table.verb: of_grades} | {
        name: {"version": version, "hash": provenance.hashed(of)}
        for name, (version, of) in made.items()
    }


def test_results_change_with_a_version_only(tmp_path: Path) -> None:
    assert stages(tmp_path) == json.loads(STORED.read_text())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        STORED.write_text(json.dumps(stages(Path(folder)), indent=1) + "\n")
