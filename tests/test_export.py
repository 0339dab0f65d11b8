"""export: formats of our own, taken back by import; the folder whole, kept, made anew, refused."""

import json
from pathlib import Path

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from helpers import THREE, make_run, outcome_words, run_of

from pipeline.base.errors import UserError
from pipeline.config import exports, imports, overrides
from pipeline.config.compose import load_folder
from pipeline.exports.verb import export
from pipeline.imports import row
from pipeline.imports.importing import import_records
from pipeline.rubrics import categories
from pipeline.store import outcomes, rowkeys, shards
from pipeline.store.runfolder import Run

UNEQUAL = {"a": "11.01", "b": "~-", "c": ".(+u"}  # owed at both ends, cut off, not graded


def out(tmp_path: Path, *settings: str) -> None:
    export(overrides.load(exports.ExportConfig, [f"runs={tmp_path}", *settings]))


def back(tmp_path: Path, source: Path, *settings: str) -> Path:
    runs = tmp_path / "back"
    import_records(
        overrides.load(imports.RecordsConfig, [f"source={source}", f"runs={runs}", *settings])
    )
    return runs


def opened(folder: Path) -> Run:
    return Run(load_folder(folder, []))


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_what_is_exported_is_imported_again_with_equal_matrices(tmp_path: Path, form: str) -> None:
    runs = [
        run_of(tmp_path, "x"),
        run_of(tmp_path, "y", UNEQUAL),
        run_of(tmp_path, "x", {"d": "0-1"}, dataset="terms"),
    ]
    out(tmp_path, f"to={form}")
    made = back(tmp_path, tmp_path / f"_export-{form}" / f"attempts.{form}")
    for run in runs:
        again = opened(made / run.path.relative_to(tmp_path))
        found, first = outcomes.read(again), outcomes.read(run)
        order = [found.question_ids.index(name) for name in first.question_ids]
        assert (found.codes[order] == first.codes).all() and found.codes.shape == first.codes.shape
        assert (found.truncated[order] == first.truncated).all()
        texts, damage = [], shards.parquet.Damage()
        for each in (run, again):
            keys = rowkeys.contents(each).keys
            ids = np.array(rowkeys.question_ids(each).to_pylist())[keys >> 32]
            at = dict(rowkeys.responses(each, keys, damage))
            texts.append({(ids[i], keys[i] & 0xFFFFFFFF): text for i, text in at.items()})
        assert texts[0] == texts[1] and not damage.lines
        gold = {q["question_id"]: (q["gold"], q["problem"]) for q in run.questions}
        assert gold == {q["question_id"]: (q["gold"], q["problem"]) for q in again.questions}


def test_labels_come_back_as_the_same_categories(tmp_path: Path) -> None:
    source = tmp_path / "labels.csv"
    source.write_text(
        "question,trial,label\n" + "".join(f"q{i},{i % 2},{i % 3}\n" for i in range(8))
    )
    runs = back(tmp_path, source, "dataset=essays", "model=mine", "rubric=quality")
    out(runs, "to=csv", f"out={tmp_path / 'out'}")
    again = tmp_path / "again"
    import_records(
        overrides.load(
            imports.RecordsConfig,
            [f"source={tmp_path / 'out' / 'attempts.csv'}", f"runs={again}", "rubric=quality"],
        )
    )
    tables = [
        categories.imported(opened(root / "essays" / "mine"))["quality"] for root in (runs, again)
    ]
    assert tables[0].record == tables[1].record
    assert tables[0].table.sort_by("question_id") == tables[1].table.sort_by("question_id")


def test_csv_runs_nothing_in_a_spreadsheet_and_import_takes_the_mark_off(tmp_path: Path) -> None:
    said = ["=1+1", " @a", "-5", "'=1", 'plain, with "quotes"\r\nand lines', "a\0b", "\t"]
    names = ("dataset.name=sums", "model.name=x", "model.id=/nowhere/x")
    marks, folder = {"a": "1" * len(said)}, tmp_path / "sums" / "x"
    run = make_run(folder, marks, *names, texts={"a": said})
    out(tmp_path, "to=csv")
    path = tmp_path / "sums" / "_export-csv" / "attempts.csv"
    options = pyarrow.csv.ParseOptions(newlines_in_values=True)
    cells = pyarrow.csv.read_csv(path, parse_options=options)["text"].to_pylist()
    marked = ["'=1+1", "' @a", "-5", "''=1", said[4], "a�b", "'\t"]
    assert cells == marked
    again = opened(back(tmp_path, path) / "sums" / "x")
    damage = shards.parquet.Damage()
    keys = rowkeys.contents(again).keys
    assert [text for _, text in sorted(rowkeys.responses(again, keys, damage))] == [
        *said[:5], "a�b", said[6],
    ]  # fmt: skip
    assert (outcome_words(again) == outcome_words(run)).all()


def test_columns_are_those_that_import_knows_in_the_order_of_keys(tmp_path: Path) -> None:
    run_of(tmp_path, "x")
    out(tmp_path, "to=parquet", "logprobs=true")
    table = pq.read_table(tmp_path / "sums" / "_export-parquet" / "attempts.parquet")
    assert {*table.column_names} <= {*row.NAMES}
    assert not [name for name in row.lacking({*table.column_names}) if "avg_logprob" not in name]
    keys = list(zip(table["question_id"].to_pylist(), table["trial"].to_pylist(), strict=True))
    assert keys == sorted(keys) and len(keys) == 12
    lists = table["completion_token_list"].to_pylist()
    assert len(lists[0]) == len(table["completion_logprob_list"][0])
    out(tmp_path, "to=parquet", "texts=false")
    path = tmp_path / "sums" / "_export-parquet" / "attempts.parquet"
    assert "text" not in pq.read_schema(path).names


def test_slabs_give_what_one_reading_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_of(tmp_path, "x", {q: "1" * 40 for q in "abc"})
    out(tmp_path, "to=parquet", f"out={tmp_path / 'one'}")
    monkeypatch.setattr("pipeline.exports.reading.SLAB", 300)
    monkeypatch.setattr("pipeline.exports.reading._ROWS", 7)
    out(tmp_path, "to=parquet", f"out={tmp_path / 'many'}")
    one, many = (pq.read_table(tmp_path / name / "attempts.parquet") for name in ("one", "many"))
    assert one == many and one.num_rows == 120


def test_the_same_again_does_nothing_and_what_changed_is_made_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BAYES_AT_N_SAYS", "json")
    run_of(tmp_path, "x")
    folder, seen = tmp_path / "sums" / "_export-csv-all", []

    def again(*settings: str) -> int:
        out(tmp_path, "to=csv", *settings)
        answer = json.loads(capsys.readouterr().out)
        assert answer["folder"] == str(folder) and answer["files"] == ["attempts.csv"]
        seen.append((folder / "attempts.csv").stat().st_mtime_ns)
        return len({*seen})

    assert [again(), again(), again("texts=false"), again("texts=false")] == [1, 1, 2, 2]
    (tmp_path / "sums" / "._export-csv-all.draft").mkdir()  # of a command that was killed
    run_of(tmp_path, "y", THREE | {"c": "1111"})
    assert [again("texts=false"), again()] == [3, 4]
    (folder / "attempts.csv").unlink()
    assert again() == 5
    assert {p.name for p in folder.parent.glob(".*")} == set()


def test_what_is_no_export_is_refused_and_left(tmp_path: Path) -> None:
    run_of(tmp_path, "x")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match=r"mine: is there, and no export made it; .*out="):
        out(tmp_path, "to=csv", f"out={mine}")
    out(tmp_path, "to=csv")
    folder = tmp_path / "sums" / "_export-csv-all"
    for name, text in (("more.txt", "added"), ("attempts.csv", "edited")):
        (folder / name).write_text(text)
        with pytest.raises(UserError, match=rf"{name}: was changed since .*out="):
            out(tmp_path, "to=csv")
        assert (folder / name).read_text() == text
        (folder / name).unlink()
    assert (mine / "notes.txt").read_text() == "mine"


def test_wrong_words_and_empty_runs_are_one_line(tmp_path: Path) -> None:
    run_of(tmp_path, "x", {"a": ".."})
    for settings, line in (
        (["to=cvs"], "to=cvs: must be .*did you mean csv"),
        (["to=csv", "logprobs=true"], "CSV has no lists; use to=parquet"),
        (["to=csv"], "no attempt yet"),
        (["to=csv", "dataset=none"], "dataset=none: no such folder"),
    ):
        with pytest.raises(UserError, match=line):
            out(tmp_path, *settings)
    assert not any(tmp_path.rglob("*.draft"))


def test_the_folder_for_the_hub_is_a_data_set_with_the_results_on_its_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undrawn: None
) -> None:
    import datasets

    runs = [run_of(tmp_path, "x"), run_of(tmp_path, "y", UNEQUAL | {"c": "+1"})]
    runs += [run_of(tmp_path, "x <b>", {"d": "0-1"}, dataset="terms")]
    out(tmp_path, "to=hub", "logprobs=true")
    folder = tmp_path / "_export-hub-all"
    rows = 0
    for name in ("sums", "terms"):
        data = datasets.load_dataset(
            str(folder), name, split="test", cache_dir=str(tmp_path / "hf")
        )
        written = pq.read_schema(next((folder / "data" / name).iterdir()))
        assert data.features.arrow_schema.types == written.types
        rows += data.num_rows
        first = data[0]
        assert (first["trial"], len(first["completion_token_list"])) == (0, 5)
    assert rows == sum(len(rowkeys.contents(run).keys) for run in runs)
    card = (folder / "README.md").read_text()
    for line in ("| y ", "95% interval", "images/sums.png", '"sampling.temperature": 0.6'):
        assert line in card
    assert "<b>" not in card.partition("\n---\n")[2] and "nowhere" not in card
    assert (folder / "images" / "terms.png").exists()
    back(tmp_path, folder / "data" / "sums")
    assert (outcome_words(opened(tmp_path / "back" / "sums" / "x")) == outcome_words(runs[0])).all()


def test_a_push_uploads_the_folder_and_says_what_keeps_it_from_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undrawn: None
) -> None:
    import huggingface_hub

    run_of(tmp_path, "x")
    sent = []  # a hub is not to be had here: what it would get is recorded
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    with pytest.raises(UserError, match=r"push=me/mine: no token of the hub; .*HF_TOKEN"):
        out(tmp_path, "to=hub", "push=me/mine")
    assert (tmp_path / "sums" / "_export-hub" / "README.md").exists()
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: "hf_none")
    monkeypatch.setattr(huggingface_hub.HfApi, "upload_folder", lambda _, **said: sent.append(said))
    with monkeypatch.context() as patch:
        patch.setattr(
            huggingface_hub.HfApi, "create_repo", lambda _, repo, **said: sent.append(said) or repo
        )
        out(tmp_path, "to=hub", "push=me/mine")
    made, uploaded = sent
    assert made["private"] and made["exist_ok"] and made["repo_type"] == "dataset"
    assert uploaded["repo_id"] == "me/mine" and uploaded["ignore_patterns"] == ["export.json"]
    assert (uploaded["folder_path"] / "data" / "sums" / "000-x.parquet").exists()
    api = huggingface_hub.HfApi("http://127.0.0.1:9")  # nobody is there
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: api)
    with pytest.raises(UserError, match=r"push=me/mine: could not be uploaded: .*same command"):
        out(tmp_path, "to=hub", "push=me/mine")
    for setting in ("push=mine", "push=a/b/c"):
        with pytest.raises(UserError, match="takes OWNER/NAME"):
            out(tmp_path, "to=hub", setting)
