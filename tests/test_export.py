"""export: formats of our own, taken back by import; the folder whole, kept, made anew, refused."""

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import yaml
from helpers import Capsys, add_grades, make_run, outcome_words, run_of

from bayes_at_n.pipeline.base import lease
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.cli.main import main
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.config.folder import load_folder
from bayes_at_n.pipeline.config.records import ExportConfig, RecordsConfig
from bayes_at_n.pipeline.records import columns, exporting
from bayes_at_n.pipeline.records.exporting import export
from bayes_at_n.pipeline.records.importing import import_records
from bayes_at_n.pipeline.rubrics import categories
from bayes_at_n.pipeline.store import graded, outcomes, rowkeys, shards
from bayes_at_n.pipeline.store.columns import KEY
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.scoring.metrics.table import parse

SAID = ["=1+1", " @a", "-5", "'=1", 'plain, with "quotes"\r\nand lines', "a\0b", "\t"]
ROWS = {"sums": 12 + 13, "terms": 3}  # of the data set for the hub
MARKED = ["'=1+1", "' @a", "-5", "''=1", SAID[4], "a�b", "'\t"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of one data set, one of them with trials owed, cut off and not graded; a third."""
    root = tmp_path_factory.mktemp("runs")
    run_of(root, "x")
    unequal = {"a": "1101011", "b": ".~-.1", "c": ".(+u"}
    names = ("dataset.name=sums", "model.name=y", "model.id=/nowhere/y")
    make_run(root / "sums" / "y", unequal, *names, texts={"a": SAID})
    run_of(root, "x <b>", {"d": "0-1"}, dataset="terms")
    return root


def out(runs: Path, *settings: str) -> None:
    export(compose.load_as(ExportConfig, [f"runs={runs}", *settings]))


def back(source: Path, runs: Path, *settings: str) -> None:
    given = [f"source={source}", f"runs={runs}", *settings]
    import_records(compose.load_as(RecordsConfig, given))


def opened(folder: Path) -> Run:
    return Run(load_folder(folder, []))


def texts(run: Run) -> dict[tuple[str, int], str]:
    keys, damage = rowkeys.keyed(run, "attempts", [])[1], shards.parquet.Damage()
    ids = rowkeys.question_ids(run).to_pylist()
    found = rowkeys.responses(run, keys, damage)
    assert not damage.lines
    return {(ids[keys[i] >> 32], int(keys[i] & 0xFFFFFFFF)): text for i, text in found}


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_an_export_comes_back_with_equal_matrices(root: Path, tmp_path: Path, form: str) -> None:
    chosen = "dataset=sums" if form == "parquet" else "texts=true"
    out(root, f"to={form}", f"out={tmp_path / 'out'}", chosen)
    back(tmp_path / "out" / f"attempts.{form}", tmp_path / "back")
    made = sorted((tmp_path / "back").glob("[!_]*/[!_]*"))
    assert [f.name for f in made] == ["x", "y"] + [made[2].name for _ in "t" if form == "csv"]
    for folder in made:
        name = folder.name if folder.parent.name == "sums" else "x <b>"
        run, again = opened(root / folder.parent.name / name), opened(folder)
        first, found = outcomes.read(run), outcomes.read(again)
        order = [found.question_ids.index(name) for name in first.question_ids]
        assert (found.codes[order] == first.codes).all() and found.codes.shape == first.codes.shape
        assert (found.truncated[order] == first.truncated).all()
        wanted = texts(run)
        if form == "csv" and name == "y":
            wanted["a", 5] = "a�b"
        assert texts(again) == wanted
        asked = [
            {q["question_id"]: (q["gold"], q["problem"]) for q in r.questions} for r in (run, again)
        ]
        assert asked[0] == asked[1]


def test_csv_runs_nothing_in_a_spreadsheet(root: Path, tmp_path: Path) -> None:
    out(root, str(root / "sums" / "y"), "to=csv", f"out={tmp_path / 'out'}")
    options = pyarrow.csv.ParseOptions(newlines_in_values=True)
    table = pyarrow.csv.read_csv(tmp_path / "out" / "attempts.csv", parse_options=options)
    assert table["text"].to_pylist()[:7] == MARKED


def test_labels_come_back_as_the_same_categories(tmp_path: Path) -> None:
    rows = (f"q{i},{i % 2},{i % 3}\n" for i in range(8))
    source = tmp_path / "labels.csv"
    source.write_text("question,trial,label\n" + "".join(rows))
    back(source, tmp_path / "one", "dataset=essays", "model=mine", "rubric=quality")
    out(tmp_path / "one", "to=csv", f"out={tmp_path / 'out'}")
    back(tmp_path / "out" / "attempts.csv", tmp_path / "two", "rubric=quality")
    runs = [opened(tmp_path / name / "essays" / "mine") for name in ("one", "two")]
    one, two = (categories.current(run, imported=True)["quality"] for run in runs)
    assert one.record == two.record
    assert one.table.sort_by("question_id") == two.table.sort_by("question_id")


def test_columns_are_those_that_import_knows_in_the_order_of_keys(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out(root, "to=parquet", "logprobs=true", f"out={tmp_path / 'one'}")
    table = pq.read_table(tmp_path / "one" / "attempts.parquet")
    assert {*table.column_names} <= {*columns.NAMES}
    lacking = columns.lacking(table.column_names)
    assert not [name for name in lacking if "avg_logprob" not in name]
    names = ("dataset", "model", "question_id", "trial")
    keys = list(zip(*(table[name].to_pylist() for name in names), strict=True))
    assert keys == sorted(keys) and len(keys) == 12 + 13 + 3
    lists = [len(values) for values in table["completion_logprob_list"].to_pylist()]
    assert {*lists} == {5} and table["completion_token_list"][0].as_py() == [1, 2, 3, 4, 5]
    shutil.copytree(root, mixed := tmp_path / "mixed", copy_function=shutil.copy)
    for part in mixed.glob("*/*/attempts/*.parquet"):  # as engines leave attempts: in any order
        run, rows = opened(part.parents[1]), pq.read_table(part)
        grades = graded.ruled(run, graded.GRADES_TABLE.columns.names[2:]).to_pylist()
        for i in range(min(3, rows.num_rows)):
            taken = rows.take([*range(i, rows.num_rows, 3)][::-1])
            stem = f"{part.stem}-w{2 - i}"
            pq.write_table(taken, part.with_name(f"{stem}.parquet"))
            keys = list(zip(*(taken[name].to_pylist() for name in KEY), strict=True))
            own = [g for g in grades if (g["question_id"], g["trial"]) in keys]
            if own:
                add_grades(run, stem, own)
        part.unlink()
    for name, value in (("WHOLE", 0), ("SLAB", 130), ("_ROWS", 2)):  # bytes of two attempts
        monkeypatch.setattr(f"bayes_at_n.pipeline.records.reading.{name}", value)
    out(mixed, "to=parquet", "logprobs=true", f"out={tmp_path / 'sorted'}")
    assert pq.read_table(tmp_path / "sorted" / "attempts.parquet") == table
    assert [path.name for path in (tmp_path / "sorted").iterdir() if path.suffix != ".json"] == [
        "attempts.parquet"
    ]


def test_the_same_again_does_nothing_and_what_changed_is_made_anew(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BAYES_AT_N_SAYS", "json")
    run_of(tmp_path, "x", {"a": "10"})
    folder, seen = tmp_path / "sums" / "_export-csv-all", []

    def again(*settings: str, runs: Path = tmp_path) -> int:
        out(runs, "to=csv", *settings)
        answer = json.loads(capsys.readouterr().out)
        assert answer["folder"] == str(runs / "sums" / folder.name)
        assert answer["files"] == ["attempts.csv"]
        seen.append((folder / "attempts.csv").stat().st_mtime_ns)
        return len({*seen})

    assert [again(), again(), again("texts=false")] == [1, 1, 2]
    monkeypatch.chdir(tmp_path)
    assert again("texts=false", runs=Path()) == 2
    assert '"text"' not in (folder / "attempts.csv").read_text()
    (tmp_path / "sums" / "._export-csv-all.draft").mkdir()  # of a command that was killed
    run_of(tmp_path, "y", {"a": "11"})
    assert again("texts=false") == 3
    (folder / "attempts.csv").unlink()
    assert again("texts=false") == 4
    assert {p.name for p in folder.parent.glob(".*")} == set()
    os.utime(folder / "attempts.csv", (9, 9))  # of the same content
    assert again("texts=false") == 5 and seen[-1] == 9 * 10**9
    shutil.copytree(tmp_path / "sums", tmp_path / "copy" / "sums", copy_function=shutil.copy)
    assert again("texts=false", runs=tmp_path / "copy") == 5  # made anew there
    written = (folder / "attempts.csv").read_text()
    edited = written.replace("correct", "Correct")
    for name, text in (("more.txt", "added"), ("attempts.csv", "short"), ("attempts.csv", edited)):
        (folder / name).write_text(text)
        with pytest.raises(UserError, match=rf"{name}: was changed since .*out="):
            out(tmp_path, "to=csv")
        assert (folder / name).read_text() == text
        (folder / name).unlink()


def test_of_two_at_once_the_second_waits_and_has_nothing_to_do(
    root: Path,
    tmp_path: Path,
    capsys: Capsys,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits, written, write = Event(), list[str](), exporting._write

    def slow(*of: Any) -> None:
        written.append("once")
        assert waits.wait(60)
        write(*of)

    monkeypatch.setattr(exporting, "_write", slow)
    monkeypatch.setattr(lease.time, "sleep", lambda _: waits.set())
    with ThreadPoolExecutor() as threads:
        both = [threads.submit(out, root, "to=csv", f"out={tmp_path / 'out'}") for _ in "ab"]
        assert [one.result() for one in both] == [None, None] and written == ["once"]
    said = capsys.readouterr().err
    assert "waiting for it" in said and "nothing has changed" in said


def test_an_export_that_is_interrupted_says_what_is_left(
    root: Path,
    tmp_path: Path,
    capsys: Capsys,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("bayes_at_n.pipeline.records.flat.tables", interrupted)
    arguments = ["export", f"runs={root}", "to=csv", f"out={tmp_path / 'out'}"]
    assert main(arguments) == 130
    assert "nothing half-written is left" in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]


def test_wrong_words_and_places_are_one_line(root: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    run_of(tmp_path, "x", {"a": ".."})
    for settings, line in (
        (["to=cvs"], "to=cvs: .*csv"),
        (["to=csv", "logprobs=true"], "no room for lists; use to=parquet"),
        (["to=hub", "push=mine"], "push=mine: .*OWNER/NAME"),
        (["to=hub", "push=../mine"], "push=../mine"),
        (["to=csv", "push=me/mine"], "push=me/mine: .*to=hub"),
        (
            ["to=csv", str(root / "sums" / "x"), "model=y"],
            "folders of runs, or dataset= and model=",
        ),
        (["to=csv", str(root / "sums" / "x"), "dataset=sums"], "not both"),
        (["to=csv", "out=x.csv"], "out=x.csv"),
        (["to=csv", "project=mine"], "project=mine: is of a tracker"),
        (["to=csv", "ranking=borda"], "ranking: no such key"),
        (["to=eee", "metrics=pass@4"], "scoring: to=eee"),
        (["to=csv"], "no attempt yet"),
        (["to=csv", "dataset=none"], "dataset=none: no run of it"),
        (["to=csv", f"out={tmp_path}"], "is there, and no export made it; .*out="),
    ):
        with pytest.raises(UserError, match=line):
            out(tmp_path, *settings)
    assert not any(tmp_path.rglob("*.draft"))


def test_out_keeps_another_format_and_other_runs(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    one, other = (str(root / "sums" / name) for name in "xy")
    out(root, one, "to=csv", f"out={folder}")
    kept = (folder / "attempts.csv").read_bytes()
    for settings, what in (([one, "to=parquet"], "to=csv"), ([other, "to=csv"], "x")):
        with pytest.raises(UserError, match=rf"holds what this export lacks \({what}\); .*out="):
            out(root, *settings, f"out={folder}")
    assert (folder / "attempts.csv").read_bytes() == kept
    out(root, other, one, "to=csv", f"out={folder}")  # nothing is lost
    assert len((folder / "attempts.csv").read_bytes()) > len(kept)
    assert "/" not in (folder / "export.json").read_text().replace(str(root), "")


def test_what_is_not_all_there_is_said(tmp_path: Path, capsys: Capsys) -> None:
    marks = {"whole": "10", "half": "1.", "new": "..", "ungraded": "++"}
    runs = {name: run_of(tmp_path, name, {"a": said}) for name, said in marks.items()}
    out(tmp_path, "to=csv", "texts=false")
    told = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    counts = {"half": "1 of 2", "new": "0 of 2", "ungraded": "2 of 2"}
    graded = {"half": 1, "new": 0, "ungraded": 0}
    assert told == [
        f"warning: {runs[name].path}: {n} attempts, {graded[name]} graded"
        for name, n in counts.items()
    ]


def test_a_file_where_a_folder_should_be(root: Path, tmp_path: Path, capsys: Capsys) -> None:
    (tmp_path / "file").touch()
    assert main(["export", f"runs={root}", "to=csv", f"out={tmp_path / 'file' / 'x'}"]) == 1
    said = capsys.readouterr().err
    assert "file'; mend it or name another place" in said


@pytest.fixture(scope="module")
def data_set(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export for the hub."""
    return tmp_path_factory.mktemp("hub") / "out"


def test_the_folder_for_the_hub_is_a_data_set_with_the_results_on_its_card(
    root: Path,
    data_set: Path,
    tmp_path: Path,
    undrawn: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capsys,
) -> None:
    read, was = list[str](), graded.graded
    monkeypatch.setattr(
        graded,
        "graded",
        lambda run, *of, **how: read.append(run.path.name) or was(run, *of, **how),
    )
    out(root, "to=hub", "logprobs=true", f"out={data_set}")
    assert sorted(read) == ["x", "x <b>", "y"]  # once each
    head = yaml.safe_load((data_set / "README.md").read_text().split("---\n")[1])
    tables = {
        one["config_name"]: [pq.read_table(file) for file in data_set.glob(one["data_files"])]
        for one in head["configs"]
    }
    assert {name: sum(t.num_rows for t in of) for name, of in tables.items()} == ROWS
    for first, *more in tables.values():
        assert all(table.schema.equals(first.schema) for table in more)
        row = first.slice(0, 1).to_pylist()[0]
        assert (row["trial"], len(row["completion_token_list"])) == (0, 5)
    card = (data_set / "README.md").read_text()
    for line in ("| y ", "95% interval", "images/sums.png", '"sampling.temperature": 0.6'):
        assert line in card
    assert not [text for text in ("<b>", "nowhere", '": null') if text in card]
    assert (data_set / "images" / "terms.png").exists()
    back(data_set / "data" / "sums", tmp_path / "back")
    again, run = (outcome_words(opened(f / "sums" / "x")) for f in (tmp_path / "back", root))
    assert (again == run).all()
    for table in ("attempts", "grades"):
        (tmp_path / "back" / "sums" / "x" / table / "torn.parquet").write_text("no")
    capsys.readouterr()
    out(tmp_path / "back", "to=hub")
    told = [line for line in capsys.readouterr().err.splitlines() if "torn.parquet" in line]
    assert len(told) == len({*told}) == 3  # keys and texts of attempts, grades
    card = (tmp_path / "back" / "sums" / "_export-hub" / "README.md").read_text()
    assert "95% interval" in card and "sampling." not in card  # that is not known of imports


@pytest.mark.soak
def test_the_folder_for_the_hub_is_loaded_by_datasets(
    root: Path, data_set: Path, tmp_path: Path, undrawn: None
) -> None:
    import datasets

    out(root, "to=hub", "logprobs=true", f"out={data_set}")
    for name, rows in ROWS.items():
        cache = str(tmp_path / "cache")
        data = datasets.load_dataset(str(data_set), name, split="train", cache_dir=cache)
        written = pq.read_schema(next((data_set / "data" / name).iterdir()))
        assert data.features.arrow_schema.types == written.types
        assert data.num_rows == rows and data[0]["trial"] == 0


def test_a_push_uploads_the_folder_and_says_what_keeps_it_from_that(
    root: Path, data_set: Path, monkeypatch: pytest.MonkeyPatch, undrawn: None
) -> None:
    import huggingface_hub

    def push() -> None:
        out(root, "to=hub", "logprobs=true", f"out={data_set}", "push=me/mine")

    sent = []  # a hub is not to be had here: what it would get is recorded
    api = huggingface_hub.HfApi("http://127.0.0.1:9")  # nobody is there
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: api)
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    with pytest.raises(UserError, match=r"push=me/mine: no token of the hub; .*HF_TOKEN"):
        push()
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: "hf_none")
    with pytest.raises(UserError, match=r"push=me/mine: could not be uploaded: .*same command"):
        push()
    monkeypatch.setattr(api, "create_repo", lambda repo, **said: sent.append(said) or repo)
    monkeypatch.setattr(api, "upload_folder", lambda **said: sent.append(said))
    push()
    made, uploaded = sent
    assert made["private"] and made["exist_ok"] and made["repo_type"] == "dataset"
    assert uploaded["repo_id"] == "me/mine" and uploaded["ignore_patterns"] == ["export.json"]
    assert (uploaded["folder_path"] / "data" / "sums" / "000-x.parquet").exists()


def test_scores_for_a_models_page_are_what_the_hubs_library_reads(tmp_path: Path) -> None:
    from huggingface_hub import ModelCard, parse_eval_result_entries

    revision = "633f5ee89ab8ad4522a9f850766b73f62147ffdd"
    of_hub = ("dataset.path=Idavidrein/gpqa", f"dataset.revision={revision}")
    marks = {"a": "1110", "b": "10~-", "c": "00"}
    run = run_of(tmp_path, "x", marks, *of_hub, dataset="gpqa")
    run_of(tmp_path, "x", {"a": "10"})
    out(tmp_path, "to=hf")
    folder = tmp_path / "_export-hf" / "x"
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.yaml"))
    assert files == [".eval_results/gpqa.yaml", "model-index.yaml"]  # sums is a file of mine
    [entry] = parse_eval_result_entries(yaml.safe_load((folder / files[0]).read_text()))
    assert (entry.dataset_id, entry.task_id) == ("Idavidrein/gpqa", "gpqa_diamond")
    assert entry.dataset_revision == revision and entry.date and "/nowhere" not in entry.notes
    assert entry.value == pytest.approx(100 * (3 / 4 + 1 / 4 + 0) / 3, abs=1e-4)
    for words in ("avg@4, %", "95% interval", "over trials", "10 attempts", "temperature 0.6"):
        assert words in entry.notes
    results = ModelCard(f"---\n{(folder / files[1]).read_text()}---\n").data.eval_results
    assert {result.dataset_type for result in results} == {"Idavidrein/gpqa", "sums"}
    metric, score = (
        parse("avg"),
        parse("avg").summary(outcomes.correct(outcomes.read(run).codes), 0.95),
    )
    first = next(of for of in results if of.metric_name == f"{metric.title(4)}, %")
    assert first.metric_value == entry.value and first.metric_args["trials"] == 4
    ends = [first.metric_args[key] for key in ("stderr", "low", "high")]
    assert ends == pytest.approx([100 * float(part) for part in score[1:]], abs=1e-4)
