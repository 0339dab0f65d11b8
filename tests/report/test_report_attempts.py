"""Side files: texts with the lengths and surprisal of their tokens."""

import signal
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from helpers import make_tokenizer
from report_runs import MARKS, columns, value

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config import analysis
from bayes_at_n.pipeline.report import attempts, build
from bayes_at_n.pipeline.store import runfolder


def test_a_written_replacement_character_keeps_the_heat() -> None:
    tokenizer = make_tokenizer()
    decoder = attempts.of_tokenizer(tokenizer.backend_tokenizer)
    for text in (
        "a\ufffdb",
        "\ufffd\ufffd€ \ufffd",
        "é\ufffd" * 40,
        "中\ufffd\U0001d465" * 9,
        "\ufffd",
    ):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        found = attempts.token_lengths(text, [*ids, tokenizer.eos_token_id], decoder)
        assert found is not None and len(found) == len(ids) + 1
        assert found.sum() == attempts.utf16(text)
    # A character that was cut off by the end of the completion decodes to U+FFFD, too.
    ids = tokenizer("ok €", add_special_tokens=False)["input_ids"][:-1]
    assert attempts.token_lengths("ok \ufffd", ids, decoder).tolist() == [1, 1, 1, 0, 1]


def test_lengths_cover_the_text_where_characters_share_tokens() -> None:
    tokenizer = make_tokenizer()
    decoder = attempts.of_tokenizer(tokenizer.backend_tokenizer)
    text = "é \U0001d465 ok"
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    found = attempts.token_lengths(text, [*ids, tokenizer.eos_token_id], decoder)
    assert len(ids) == len(text.encode()) and found is not None
    assert found.tolist() == [0, 1, 1, 0, 0, 0, 2, 1, 1, 1, 0]
    assert attempts.token_lengths("another text", ids, decoder) is None
    assert attempts.token_lengths(text, [*ids, -1, 10**9], decoder).tolist() == [
        *found,
        0,
    ]  # of another
    ids = tokenizer("4. Problem:", add_special_tokens=False)["input_ids"]  # with a stop string
    assert attempts.token_lengths("4", ids, decoder).tolist() == [1, *[0] * 10]
    made = attempts.of_tokens(decoder, "So 4", ids, [-1.0] * 11, "So ")
    assert made == {"lengths": [3, 1, *[0] * 10], "bits": [-1, *[144] * 11]}
    assert attempts.of_tokens(None, "", [], []) == {"lengths": None, "bits": None}
    text = "\u2713 4"
    ids = tokenizer(f"{text}. Problem:", add_special_tokens=False)["input_ids"]
    assert attempts.token_lengths(text, ids, decoder).tolist() == [0, 0, 1, 1, 1, *[0] * 10]


@pytest.mark.usefixtures("unseen")
def test_texts_are_in_the_files_that_numbers_name(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "FILE_BYTES", 200)
    build.report(analysis.load([f"runs={runs}", f"out={tmp_path}", "dataset=set"]))
    files = {one.stem: value(one) for one in tmp_path.glob("attempts/*/0-*-*.js")}
    assert {"0-0-p", "0-0-0", "0-0-1", "0-1-p", "0-1-0"} <= files.keys()
    numbers, ids = columns(next(tmp_path.glob("attempts/*/0-q0.js"))), [*MARKS]
    places = [*zip(*(numbers[name] for name in ("m", "q", "t")), strict=True)]
    for m, name in enumerate(("evil", "plain")):
        run = runfolder.open_run(runs / "set" / name)
        rows = [row for path in run.attempts.glob("*") for row in pq.read_table(path).to_pylist()]
        assert len(rows) == len(places) // 2
        for row in rows:
            q, t = ids.index(row["question_id"]), row["trial"]
            file = numbers["file"][places.index((m, q, t))]
            shown = files[f"0-{m}-{file}"]["rows"][f"{q}/{t}"]
            assert shown["text"] == row["text"]
            assert not shown["bits"] or len(shown["bits"]) == len(row["logprobs"])


def test_a_killed_process_is_an_error_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "SMALL", 0)
    monkeypatch.setattr(attempts, "stored", lambda runs: 1)
    monkeypatch.setattr(attempts, "write_texts", signal.raise_signal)
    with pytest.raises(UserError, match="killed"):
        list(attempts.write_all([signal.SIGKILL] * 2))


@pytest.mark.usefixtures("unseen")
def test_texts_of_the_first_trials_only(runs: Path, tmp_path: Path) -> None:
    cfg = analysis.load([f"runs={runs}", f"out={tmp_path}", "dataset=set", "report.trials=2"])
    build.report(cfg)
    [path] = tmp_path.glob("attempts/*/0-q0.js")
    index = columns(path)
    assert [file >= 0 for file in index["file"]] == [trial < 2 for trial in index["t"]]
    with pytest.raises(UserError, match=r"report\.trials=0"):
        build.report(analysis.load([f"runs={runs}", "report.trials=0"]))
