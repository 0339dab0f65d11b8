"""Results as files: every form of every table, and nothing of an earlier call left."""

import json
from pathlib import Path

from bayes_at_n.pipeline.display import style
from bayes_at_n.pipeline.display.table import Column, Table
from bayes_at_n.pipeline.store.selection import write_results


def names(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}


def of_tables(*stems: str) -> set[str]:
    return {f"{stem}.{end}" for stem in stems for end in ("csv", "json", "tex", "md")}


def test_write_replaces_what_it_wrote_before(tmp_path: Path) -> None:
    table = Table("t", [Column("a", "a")], [{"a": 1.5}])
    figure, _ = style.panels(style.COLUMN, 2.0, "a figure")
    out, tables = tmp_path / "out", {"one": table, "part/two": table}
    values = {"score": float("nan")}
    written = write_results(out, "verb", values, tables, {"shape": figure}, {"verb.md": "text"})
    kept = of_tables(*tables) | {"shape.png", "shape.pdf", "verb.md"}
    assert names(out) == kept | {"verb.json"} == {str(p.relative_to(out)) for p in written}
    record = json.loads((out / "verb.json").read_text())
    assert record == {"score": None, "files": sorted(kept)}

    (out / "mine.txt").write_text("")
    (tmp_path / "outside.csv").write_text("")
    record["files"] += ["../outside.csv", str(tmp_path / "outside.csv"), 7]
    (out / "verb.json").write_text(json.dumps(record))
    write_results(out, "other", {}, {"three": table})
    write_results(out, "verb", {}, {"one": table})
    assert names(out) == of_tables("one", "three") | {"mine.txt", "verb.json", "other.json"}
    assert (tmp_path / "outside.csv").exists() and not (out / "part").exists()
    for damaged in ("{", "[]", '{"files": 3}'):
        (out / "verb.json").write_text(damaged)
        write_results(out, "verb", {}, {})
        assert (out / "one.csv").exists()
