"""Results of categorize and score on recorded attempts, by a hash: changes need another version.

After a change that is meant, raise the stage's version and run `python tests/test_versions.py`.
"""

import contextlib
import io
import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from test_recorded import rounded

from bayes_at_n.pipeline.cli.main import main
from bayes_at_n.pipeline.rubrics import categories, signals
from bayes_at_n.pipeline.score import current
from bayes_at_n.pipeline.store import origin
from bayes_at_n.pipeline.store.runfolder import opened

RECORDED = Path(__file__).parent / "recorded"
STORED = RECORDED / "versions.json"


def versions(root: Path) -> dict[str, Any]:
    """Version and hash of what each stage makes of one model's attempts."""
    run = root / "demo" / "demo-step-3900"
    with contextlib.redirect_stdout(io.StringIO()):
        assert main(["import", f"source={RECORDED / 'attempts.parquet'}", f"runs={root}"]) == 0
        for verb in ("grade", "categorize", "score"):
            assert main([verb, str(run)]) == 0
    of_signals = signals.read(opened(run)).to_pylist()
    digits = [
        [f"{x:.5g}" if isinstance(x, float) else x for x in row.values()] for row in of_signals
    ]
    tables = {p.stem: pq.read_table(p) for p in sorted((run / "categories").glob("*.parquet"))}
    scores = json.loads((run / "scores.json").read_text().replace(str(root), "runs"))
    del scores[current.MADE_FROM]
    made = {
        "signals": (signals.SIGNALS_TABLE.version, digits),
        "categorize": (categories.VERSION, {n: t.to_pylist() for n, t in tables.items()}),
        "score": (current.VERSION, rounded(scores)),
    }
    return {name: {"version": v, "hash": origin.hashed(of)} for name, (v, of) in made.items()}


def test_results_change_only_with_their_version(tmp_path: Path) -> None:
    assert versions(tmp_path) == json.loads(STORED.read_text())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        STORED.write_text(json.dumps(versions(Path(folder)), indent=1) + "\n")
