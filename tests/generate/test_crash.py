"""kill -9, Ctrl-C and flipped bytes against the real command and the real vLLM engine."""

import json
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from forked import SETTINGS, TRIALS, Attempts, Command, Forker, assert_whole, rows, stored

from bayes_at_n.pipeline.store import shards

SAMPLED = "stages=[prepare,generate]"
# Holds a command that found no manifest and is about to make it, for as long as a file is there.
CLAIMING = """
import time
from pathlib import Path
from bayes_at_n.pipeline.base import lease
def hold(create=lease.create, held=Path({file!r})):
    def creating(path, text):
        if path.name == "manifest.json":
            held.with_suffix(".here").touch()
            while held.exists():
                time.sleep(0.01)
        return create(path, text)
    lease.create = creating
hold()
"""


def start(
    folder: Path, forker: Forker | None, *more: str, trials: int = TRIALS, hold: float | None = None
) -> Command:
    return Command(folder, forker, *SETTINGS, f"sampling.trials={trials}", *more, hold=hold)


# Of all kills, so many are of the command as a person types it.
def log_probs_of_all_prompts(folder: Path) -> bool:
    """Whether they are there: they come last."""
    return not pq.read_table(folder / "questions.parquet")["prompt_logprobs"].null_count


@pytest.mark.parametrize(
    ("wanted", "typed", "trials"), [(4, 0, TRIALS), pytest.param(20, 2, 12, marks=pytest.mark.soak)]
)
def test_kills_lose_nothing_and_double_nothing(
    forker: Forker, reference: tuple[Path, Attempts], tmp_path: Path, wanted: int, typed: int,
    trials: int,
) -> None:  # fmt: skip
    expected = reference[1]
    if trials > TRIALS:
        start(tmp_path / "whole", forker, SAMPLED, trials=trials).finish()
        expected = stored(tmp_path / "whole")
    moments, total, kills, began = random.Random(20), len(expected), 0, [tmp_path / "run-0"]
    before: Attempts = {}
    idle = 0  # commands that found everything made by one that was killed right after it
    while kills < wanted:
        folder, left = began[-1], total - len(before)
        made = not left and log_probs_of_all_prompts(folder)
        enough = moments.uniform(0, 2 * left / (wanted - kills + 1))
        command = start(folder, None if kills < typed else forker, trials=trials, hold=enough)
        just_before = command.held()
        if kills % 2:  # the other kills hit it anywhere
            command.release()
            time.sleep(moments.uniform(0, 0.1))
        if not just_before or not command.alive():
            command.finish()  # sampling was faster than we: the other kills hit another run
            idle += made
            began.append(tmp_path / f"run-{len(began)}")
            before = {}
            continue
        os.killpg(command.pid, signal.SIGKILL)
        assert command.wait() == -signal.SIGKILL
        kills, after = kills + 1, stored(folder)
        for earlier in (before, just_before):
            assert all(after.get(key) == row for key, row in earlier.items()), f"kill {kills}"
        before = after
    idle += len(before) == total and log_probs_of_all_prompts(began[-1])
    start(began[-1], forker, trials=trials).finish()
    sessions = [path for folder in began for path in (folder / "sessions").glob("*.json")]
    assert len(sessions) == wanted + len(began) - idle
    ended = [json.loads(path.read_text())["ended"] for path in sessions]
    assert len(began) - idle <= sum(ended) <= len(began)
    for folder in began:
        assert_whole(folder, expected)
        assert (folder / "scores.json").exists() and (folder / "matrix.npz").exists()


@pytest.mark.soak
def test_kills_before_the_first_attempt_do_no_harm(
    forker: Forker, reference: tuple[Path, Attempts], tmp_path: Path
) -> None:
    """Also while preparing, loading and taking the lease."""
    folder, moments = tmp_path / "run", random.Random(3)
    for _ in range(5):
        command = start(folder, forker, SAMPLED)
        time.sleep(moments.uniform(0, 1))
        os.killpg(command.pid, signal.SIGKILL)
        assert command.wait() in (0, -signal.SIGKILL)  # a fast machine is done by then
    start(folder, forker, SAMPLED).finish()
    assert_whole(folder, reference[1])


# When nothing is pending any more, while the last one out clears up.
KILLED = """
import os, signal
from bayes_at_n.pipeline.workers import claims
def killed(run, clear=claims.clear):
    if not (run / "leaving.lease").exists():
        return clear(run)
    (run / "claims" / ".clock-of-the-killed").touch()
    os.kill(os.getpid(), signal.SIGKILL)
claims.clear = killed
"""


def test_what_a_kill_left_is_cleared_away(forker: Forker, tmp_path: Path) -> None:
    folder, few = tmp_path / "run", ["dataset.limit=1", "sampling.trials=1", SAMPLED]
    command = Command(folder, forker, *SETTINGS, *few, before=KILLED)
    assert command.wait() == -signal.SIGKILL
    assert (folder / "leaving.lease").exists() and (folder / "claims").exists()
    Command(folder, forker, *SETTINGS, *few).finish()
    assert_whole(folder, stored(folder))


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.soak)],
)
def test_ctrl_c_and_sigterm_keep_what_is_finished(
    forker: Forker, reference: tuple[Path, Attempts], tmp_path: Path, number: int, code: int
) -> None:
    folder, total = tmp_path / "run", len(reference[1])
    command = start(folder, forker, SAMPLED, hold=total // 8)
    just_before = command.held()
    assert just_before
    command.signal(number)
    command.release()
    assert command.wait() == code, command.text()[-3000:]
    text, after = command.text(), stored(folder)
    assert f"{len(after)} of {total} attempts are kept" in text
    assert f"the other {total - len(after)}" in text and "Traceback" not in text
    assert all(after.get(key) == row for key, row in just_before.items())
    assert not list((folder / "attempts").glob("*.journal"))
    assert not list((folder / "claims").glob("*.lease"))
    start(folder, forker, SAMPLED).finish()
    assert_whole(folder, reference[1])


@pytest.mark.parametrize(
    "place", [*(pytest.param(p, marks=pytest.mark.soak) for p in ("question_id", "text")), "footer"]
)
def test_damaged_attempts_are_made_again_and_no_others(
    forker: Forker, reference: tuple[Path, Attempts], tmp_path: Path, place: str
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(reference[0], folder)
    [part] = (folder / "attempts").glob("*.parquet")
    shards.write_part(part, pq.read_table(part), rows_per_group := 32)  # two groups
    data, group = bytearray(part.read_bytes()), pq.ParquetFile(part).metadata.row_group(0)
    columns = {c.path_in_schema: c for c in map(group.column, range(group.num_columns))}
    if place == "footer":
        at = len(data) - 7
    else:
        at = columns[place].data_page_offset + columns[place].total_compressed_size - 50
    data[at] ^= 0xA5
    part.write_bytes(data)
    if place == "text":
        shutil.rmtree(folder / "grades")  # the stage that reads texts then does so again
    lost = len(reference[1]) - len(stored(folder))
    assert lost == (len(reference[1]) if place == "footer" else rows_per_group)
    said = start(folder, forker, *([] if place == "text" else [SAMPLED])).finish()
    assert part.name in said and "pending again" in said
    assert part.with_name(f"_{part.name}.damaged").exists()
    sessions = sorted((folder / "sessions").glob("*.json"))
    assert json.loads(sessions[-1].read_text())["attempts"] == lost
    assert_whole(folder, reference[1])


def test_of_two_commands_that_begin_in_one_new_folder_one_samples(
    forker: Forker, prepared: Path, tmp_path: Path
) -> None:
    folder, held = tmp_path / "run", tmp_path / "held"
    held.touch()
    before, line = CLAIMING.format(file=str(held)), [*SETTINGS, "sampling.trials=1", SAMPLED]
    late = Command(folder, forker, *line, "sampling.seed=5", "sampling.top_p=1", before=before)
    while not held.with_suffix(".here").exists():
        assert late.alive(), late.text()
        time.sleep(0.01)
    assert not (folder / "manifest.json").exists()
    Command(folder, forker, *line).finish()
    made = stored(folder)
    held.unlink()
    assert late.wait() == 2
    assert "sampling.seed is 1234 there and 5 here; sampling.top_p" in late.text()
    assert stored(folder) == made and len(made) == rows(folder) == 30
    [part] = (folder / "attempts").glob("*.parquet")
    its = json.loads((folder / "manifest.json").read_text())["identity_hash"]
    assert pq.read_metadata(part).metadata[b"identity_hash"].decode() == its
