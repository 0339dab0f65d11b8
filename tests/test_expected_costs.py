"""The table of docs/cluster.md: the paper's printed numbers, and arithmetic that can be redone."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import synthetic
from pipeline.prepare import costs
from pipeline.research.studies import paper
from pipeline.store import parquet

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import expected_costs  # noqa: E402


def test_the_page_holds_what_the_script_prints():
    script = ROOT / "scripts" / "expected_costs.py"
    printed = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout
    page = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    assert printed in page, f"docs/cluster.md is old: put in what {script.name} prints"


def test_the_rows_add_up_to_the_total():
    rows = {row["what"]: row for row in expected_costs.table(2000, 15, 7.6).rows}
    total = rows["total"]
    for key in ("runs", "attempts", "tokens", "paper", "disk", "gpu"):
        parts = sum(rows[title][key] for title in paper.TASKS.values())
        assert parts == pytest.approx(total[key], rel=1e-12), key
        assert rows["a run, in the mean"][key] == pytest.approx(total[key] / 80), key
    assert total["attempts"] == 192_000
    # 2,926.4 million tokens at 2,000 a second, and 80 quarters of an hour
    assert total["gpu"] == pytest.approx(406.444 + 20, abs=0.001)
    assert total["one"] == pytest.approx(total["gpu"] / 8) == pytest.approx(4 * total["four"])
    assert rows["LIMO-v2"]["attempts"] == 9600 and "tokens" not in rows["LIMO-v2"]


def test_no_attempts_take_more_disk_than_the_table_says(tmp_path):
    """Random ids, log-probs and text hardly compress: real attempts are smaller."""
    rng, tokens = np.random.default_rng(0), 15_000
    keys = [("q", trial) for trial in range(40)]
    parquet.write_part(tmp_path / "part.parquet", synthetic.attempts(rng, keys, tokens))
    each = (tmp_path / "part.parquet").stat().st_size / (len(keys) * tokens)
    assert each == pytest.approx(costs.BYTES_PER_TOKEN, abs=0.15)


def test_a_rate_of_nothing_is_refused(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["expected_costs.py", "--tokens-per-s", "0"])
    with pytest.raises(SystemExit, match="2"):
        expected_costs.main()
    assert "--tokens-per-s: must be above 0" in capsys.readouterr().err
