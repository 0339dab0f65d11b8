"""export for the Hugging Face hub: a dataset with results on its card, and scores of a model."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from helpers import outcome_words, run_of
from record_files import bring, opened, out

from bayes_at_n.pipeline.base.errors import UserError

ROWS = {"sums": 12 + 13, "terms": 3}


@pytest.fixture(scope="module")
def data_set(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export for the hub."""
    return tmp_path_factory.mktemp("hub") / "out"


def test_the_folder_for_the_hub_is_a_data_set_with_the_results_on_its_card(
    root: Path, data_set: Path, tmp_path: Path
) -> None:
    out(root, "to=hub", "logprobs=true", f"out={data_set}")
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
    back = bring(tmp_path, data_set / "data" / "sums")
    again, run = (outcome_words(opened(runs / "sums" / "x")) for runs in (back, root))
    assert (again == run).all()
    out(back, "to=hub")
    card = (back / "sums" / "_export-hub-all" / "README.md").read_text()
    assert "95% interval" in card and "sampling." not in card  # that is not known of imports


def test_a_push_names_what_keeps_it_from_uploading(
    root: Path, data_set: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    def push() -> None:
        out(root, "to=hub", "logprobs=true", f"out={data_set}", "push=me/mine")

    api = huggingface_hub.HfApi("http://127.0.0.1:9")  # nobody is there
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: api)
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    with pytest.raises(UserError, match=r"push=me/mine: .*HF_TOKEN"):
        push()
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: "hf_none")
    with pytest.raises(UserError, match=r"push=me/mine: could not be uploaded: .*same command"):
        push()
    sent = []  # a hub is not to be had here: what it would get is recorded
    monkeypatch.setattr(api, "create_repo", lambda repo, **given: sent.append(given) or repo)
    monkeypatch.setattr(api, "upload_folder", lambda **given: sent.append(given))
    push()
    made, uploaded = sent
    assert made["private"] and made["repo_type"] == "dataset"
    assert uploaded["repo_id"] == "me/mine" and uploaded["ignore_patterns"] == ["export.json"]


def test_scores_for_a_models_page_are_what_the_hubs_library_reads(tmp_path: Path) -> None:
    from huggingface_hub import parse_eval_result_entries

    revision = "633f5ee89ab8ad4522a9f850766b73f62147ffdd"
    of_hub = ("dataset.path=Idavidrein/gpqa", f"dataset.revision={revision}")
    marks = {"a": "1110", "b": "10~-", "c": "00"}
    run_of(tmp_path, "x", marks, *of_hub, dataset="gpqa")
    run_of(tmp_path, "x", {"a": "10"})
    out(tmp_path, "to=hf")
    folder = tmp_path / "_export-hf-all" / "x"
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.yaml"))
    assert files == [".eval_results/gpqa.yaml"]  # sums is a file of mine
    [entry] = parse_eval_result_entries(yaml.safe_load((folder / files[0]).read_text()))
    assert (entry.dataset_id, entry.task_id) == ("Idavidrein/gpqa", "gpqa_diamond")
    assert entry.dataset_revision == revision and entry.date and "/nowhere" not in entry.notes
    assert entry.value == pytest.approx(100 * (3 / 4 + 1 / 4 + 0) / 3, abs=1e-4)
    for words in ("avg@4, %", "95% interval", "over trials", "10 attempts", "temperature 0.6"):
        assert words in entry.notes
    with pytest.raises(UserError, match="to=hf: sums is not on the hub"):
        out(tmp_path, "to=hf", "dataset=sums")
