"""A raised sampling.max_tokens: truncated attempts go on, and everything else stays as it was."""

import json
import shutil
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from forked import SETTINGS, TRIALS, Attempts, Command, Forker, stored
from helpers import add_attempts, add_grades, make_run

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.compare import differences, equivalence
from bayes_at_n.pipeline.config.analysis import EquivalenceConfig
from bayes_at_n.pipeline.config.folder import load_folder
from bayes_at_n.pipeline.engines.text import decode
from bayes_at_n.pipeline.generate import attempts as continuing
from bayes_at_n.pipeline.grade import stage as grading
from bayes_at_n.pipeline.prepare import models, questions_table
from bayes_at_n.pipeline.status.progress import count, progress_of
from bayes_at_n.pipeline.store import outcomes, provenance, runfolder, shards
from bayes_at_n.pipeline.store.columns import ATTEMPTS
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers import claims
from benchmarks.servers import Server

SAMPLED = "stages=[prepare,generate]"
# Ends the program, as kill -9 does, when so many frames of attempts are in its journals.
KILLED_AT = """
import os, signal
from bayes_at_n.pipeline.base.journal import Journal
append, frames = Journal.append, []
def count(self, rows):
    append(self, rows)
    frames.append(rows)
    if len(frames) == {frames}:
        os.kill(os.getpid(), signal.SIGKILL)
Journal.append = count
from bayes_at_n.pipeline.generate import job
job._MOST_IN_FRAME = 4
"""


def attempts(folder: Path) -> Attempts:
    """What a reader finds, whole rows."""
    return stored(folder, ATTEMPTS.names)


def opened(folder: Path, *more: str) -> Run:
    return Run(load_folder(folder, list(more)))


def cut_at(source: Path, folder: Path, cap: int) -> Path:
    """A copy of a run as it is with a lower cap: the same seeds give the same first tokens."""
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("grades", "scores.json", "sig*"))
    run = opened(folder)
    tokenizer, rows = models.tokenizer(run.cfg.model), list(attempts(source).values())
    for row in rows:
        if row["completion_tokens"] > cap:
            ids = row["token_ids"][:cap]
            row |= {"token_ids": ids, "logprobs": row["logprobs"][:cap], "completion_tokens": cap}
            row |= {"finish_reason": "length", "text": decode(tokenizer, ids, False, run.cfg)}
    for path in (*folder.glob("attempts/*"), *folder.glob("attempts/_*")):
        path.unlink(missing_ok=True)
    table = pa.Table.from_pylist(rows, schema=ATTEMPTS)
    shards.write_part(folder / "attempts" / "00000.parquet", table)
    questions = [row | {"max_tokens": cap} for row in run.questions]
    questions_table.write(folder / "questions.parquet", questions)
    run.cfg.sampling.max_tokens = cap
    run.cfg.run_dir = str(folder)
    runfolder.save_config(run)
    manifest = runfolder.read_manifest(run)
    manifest["identity"]["sampling.max_tokens"] = cap
    runfolder.write_json(run.manifest, manifest)
    return folder


def assert_continued(folder: Path, before: Attempts, cap: int) -> None:
    """Every attempt that was cut goes on from its tokens; no other row has changed."""
    run, found = opened(folder), attempts(folder)
    tokenizer = models.tokenizer(run.cfg.model)
    assert found.keys() == before.keys() and not runfolder.pending(run)
    for key, row in found.items():
        was = before[key]
        if was["finish_reason"] != "length":
            assert row == was
            continue
        n = was["completion_tokens"]
        assert row["seed"] == was["seed"] and row["continued_from"] == n < row["completion_tokens"]
        assert row["token_ids"][:n] == was["token_ids"] and row["logprobs"][:n] == was["logprobs"]
        assert len(row["token_ids"]) == len(row["logprobs"]) == row["completion_tokens"] <= cap
        assert row["prompt_tokens"] == was["prompt_tokens"]
        stopped = row["finish_reason"] == "stop"
        assert row["text"] == decode(tokenizer, row["token_ids"], stopped, run.cfg)
        assert row["finish_reason"] == "length" or stopped
        # The time with the engine: of both parts, and not of the pause between.
        assert was["finished"] - was["started"] < row["finished"] - row["started"] < 3600
        first = row["first_token"]  # no server tells it
        assert first is None or row["started"] <= first <= row["finished"]


def test_a_raised_cap_continues_what_was_cut_through_a_kill(
    forker: Forker, whole_run: tuple[Path, str], tmp_path: Path
) -> None:
    folder = cut_at(whole_run[0], tmp_path / "run", 12)
    before = attempts(folder)
    cut = {key for key, row in before.items() if row["finish_reason"] == "length"}
    assert 20 < len(cut) < len(before)
    grading.grade(opened(folder))
    old = outcomes.read(opened(folder)).codes
    raised = [*SETTINGS, f"sampling.trials={TRIALS}", "sampling.max_tokens=96"]
    killed = Command(folder, forker, *raised, SAMPLED, before=KILLED_AT.format(frames=4))
    assert killed.wait() == -signal.SIGKILL
    assert f"continues {len(cut)} truncated attempts from 12 to 96 tokens" in killed.text()
    # Some went on and are there, the others are there as they were, and pending.
    run, now = opened(folder, "sampling.max_tokens=96"), attempts(folder)
    longer = {key for key in cut if now[key]["completion_tokens"] > 12}
    assert longer and now.keys() == before.keys()
    assert set(runfolder.pending(run)) == cut - longer == set(runfolder.continuing(run))
    # No grade of what was there before: it is pending with the attempt that went on.
    codes = outcomes.read(run).codes
    keys = [(q["question_id"], t) for q in run.questions for t in range(TRIALS)]
    masked = {key for key, code in zip(keys, codes.ravel(), strict=True) if code < 0}
    assert masked == longer and (codes[codes >= 0] == old[codes >= 0]).all()
    found = progress_of("run", count(run), [])
    assert f"continues {len(cut - longer)} truncated" in found.continues

    text = Command(folder, forker, *raised).finish()
    assert f"continues {len(cut - longer)} truncated attempts from 12 to 96 tokens" in text
    assert_continued(folder, before, 96)
    after = attempts(folder)
    assert all(after[key] == now[key] for key in longer)
    # What a kill takes with it no session counts; the rest is what is new, and nothing twice.
    new = sum(after[key]["completion_tokens"] - 12 for key in cut - longer)
    last = max((folder / "sessions").glob("*.json"), key=lambda path: path.name)
    assert json.loads(last.read_text())["completion_tokens"] == new
    # Grades are those of a run that was graded at once.
    graded = outcomes.read(run)
    shutil.rmtree(folder / "grades")
    grading.grade(run)
    assert (outcomes.read(run).codes == graded.codes).all() and (graded.codes >= 0).all()


def raised_run(folder: Path, tokens: int = 5) -> Run:
    """A run made by hand, of attempts with five tokens, some of them cut there."""
    return make_run(folder, {"a": "1~0", "b": "~~1"}, f"sampling.max_tokens={tokens}")


def rows(cap: int) -> list[dict[str, Any]]:
    return [{"question_id": name, "prompt_token_ids": [1], "max_tokens": cap} for name in "ab"]


def identity(run: Run, cap: int) -> dict[str, Any]:
    return provenance.identity(run.cfg) | {"sampling.max_tokens": cap}


def built(run: Run, rows: list[dict[str, Any]], cap: int = 9) -> Any:
    """What is used of the questions table that `prepare` has built."""
    return SimpleNamespace(rows=lambda: rows, identity=identity(run, cap))


def test_only_what_is_cut_below_its_own_limit_goes_on(tmp_path: Path) -> None:
    run = raised_run(tmp_path / "run")
    assert runfolder.continuing(run) == {}  # nothing was raised, whatever the lengths
    assert questions_table.check_raised(run, built(run, rows(5), 5)) == {}
    cut = questions_table.check_raised(run, built(run, rows(9)))
    assert cut == {("a", 1): 5, ("b", 0): 5, ("b", 1): 5}
    clamped = [rows(9)[0], rows(5)[1]]
    assert questions_table.check_raised(run, built(run, clamped)) == {("a", 1): 5}
    add_attempts(run, {"c": "~"}, part="other")  # of a question that is not the run's
    assert questions_table.check_raised(run, built(run, rows(9))) == cut
    runfolder.write_json(run.manifest, runfolder.read_manifest(run) | {runfolder.RAISED: [{}]})
    said = differences.differences({"a": run}, outcomes.read(run).codes[None])
    assert len(said) == 1 and "3 of a" in said[0]


def test_what_cannot_go_on_is_refused_before_it_costs_anything(tmp_path: Path) -> None:
    run = raised_run(tmp_path / "run")
    runfolder.check_same(run, identity(run, 9), raising=True)
    for cap, raising in ((9, False), (4, True)):
        with pytest.raises(UserError, match=f"is 5 there and {cap} here"):
            runfolder.check_same(run, identity(run, cap), raising=raising)
    other = identity(run, 9) | {"sampling.top_p": 0.5}
    with pytest.raises(UserError, match=r"sampling\.top_p"):
        runfolder.check_same(run, other, raising=True)

    def refused(match: str, table: list[dict[str, Any]] | None = None) -> None:
        with pytest.raises(UserError, match=match):
            questions_table.check_raised(run, built(run, table or rows(9)))

    run.cfg.engine.args["presence_penalty"] = 0.5
    refused(r"presence_penalty .*tag=NAME")
    run.cfg.engine.args.clear()
    with claims.Heartbeat(run.path, "0000000000000001-here-1"):
        refused("workers are sampling with 5")
    refused("chat turns have none", [row | {"prompt_token_ids": None} for row in rows(9)])
    part = run.attempts / "00000.parquet"
    table = pa.Table.from_pylist(
        [row | {"token_ids": None} for row in pq.read_table(part).to_pylist()], schema=ATTEMPTS
    )
    shards.write_part(part, table)
    refused(r"cannot continue: token ids .*tag=NAME")
    with pytest.raises(UserError, match=r"cannot continue: token ids .*tag=NAME"):
        continuing.stored(run, {("a", 1)})  # of trials that were not asked for when it was raised
    manifest = runfolder.read_manifest(run)
    runfolder.write_json(run.manifest, manifest | {"imported": {}})
    with pytest.raises(UserError, match="is 5 there and 9 here"):
        runfolder.check_same(run, identity(run, 9), raising=True)


def test_of_a_key_s_rows_the_one_of_the_highest_cap_is_read(tmp_path: Path) -> None:
    run = raised_run(tmp_path / "run", tokens=8)
    part = pq.read_table(run.attempts / "00000.parquet").to_pylist()
    for cap, start in ((9, 5), (10, 9)):
        longer = [r | {"completion_tokens": cap, "continued_from": start} for r in part[:2]]
        shards.write_part(
            run.attempts / f"00001-upto{cap}.parquet",
            pa.Table.from_pylist(longer[: 11 - cap], schema=ATTEMPTS),
        )
    read = {key: row["completion_tokens"] for key, row in attempts(run.path).items()}
    assert sorted(read.values()) == [5, 5, 5, 5, 9, 10]
    # The grade of the old row is none of what the attempt is now.
    assert outcomes.ruled(run, []).num_rows == 4
    grades = pq.read_table(run.grades / "00000.parquet").to_pylist()
    for cap in (9, 10):
        again = [row | {"outcome": "timeout", "reason": str(cap)} for row in grades[: 11 - cap]]
        add_grades(run, f"00001-upto{cap}", again)
        words = outcomes.ruled(run, ["reason"])["reason"].to_pylist()
        assert words.count("made by hand") == 4 and words.count("10") == (cap == 10)
    assert sorted(words)[:2] == ["10", "9"] and len(words) == 6


@pytest.mark.soak
def test_a_server_that_takes_token_ids_continues(
    forker: Forker, server: Server, prepared: Path, tmp_path: Path
) -> None:
    common = ["engine=openai", f"engine.url={server.url}", "engine.in_flight=32", SAMPLED]
    common += [f"sampling.trials={TRIALS}", "verifier=none"]
    folder, low, high = tmp_path / "run", "sampling.max_tokens=12", "sampling.max_tokens=96"
    Command(folder, forker, *common, low).finish()
    before = attempts(folder)
    text = Command(folder, forker, *common, high).finish()
    assert "truncated attempts from 12 to 96 tokens" in text
    assert_continued(folder, before, 96)

    chat, common = tmp_path / "chat", [*common, "engine.api=chat"]
    common += ["sampling.prompt_logprobs=false"]
    Command(chat, forker, *common, low).finish()
    refused = Command(chat, forker, *common, high)
    assert refused.wait() == UserError.exit_code and "tag=NAME" in refused.text()
    assert opened(chat).cfg.sampling.max_tokens == 12  # as it was


@pytest.mark.soak
def test_what_was_continued_has_the_distribution_of_what_was_not(
    forker: Forker, prepared: Path, tmp_path: Path
) -> None:
    """Equivalence in accuracy, no difference in length and log-prob; other seeds than the whole."""
    common = [*SETTINGS[:1], *SETTINGS[2:], "sampling.trials=200"]
    whole, folder = tmp_path / "whole", tmp_path / "continued"
    Command(whole, forker, *common).finish()
    for cap in (8, 16, 96):
        cut = [f"sampling.max_tokens={cap}", "sampling.seed=77777"]
        Command(folder, forker, *common, *cut).finish()
    found = attempts(folder).values()
    assert sum(row["continued_from"] is not None for row in found) > 0.8 * len(found)
    cfg = EquivalenceConfig([str(whole), str(folder)], margin=4, replay=0, out=str(tmp_path / "e"))
    equivalence.run(cfg)
    record = json.loads((tmp_path / "e" / "equivalence.json").read_text())
    assert record["shared_seeds"] == 0 and record["verdict"] == "equivalent", record["words"]
    for row in record["scores"]:
        assert abs(row["difference"]) < 3.3 * row["sigma"], row


def test_an_interrupted_change_of_the_cap_is_noticed(tmp_path: Path) -> None:
    from bayes_at_n.pipeline.generate.stage import generate

    run = raised_run(tmp_path / "run", tokens=5)  # its questions allow 8
    manifest = runfolder.read_manifest(run)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bayes_at_n.pipeline.prepare.models.fingerprint", lambda cfg: "weights")
        with pytest.raises(UserError, match="was interrupted; `run`"):
            generate(run)
    assert runfolder.read_manifest(run) == manifest
