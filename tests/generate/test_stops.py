"""Stop strings in vLLM and on its server: attempts are those without them, cut at the first."""

import json
from pathlib import Path

import pytest
from forked import BATCH, TRIALS, Attempts, Command, Forker, stored

from bayes_at_n.pipeline.config.folder import load_folder
from bayes_at_n.pipeline.prepare import models
from bayes_at_n.pipeline.store.columns import KEY
from bayes_at_n.pipeline.store.runfolder import Run
from benchmarks.servers import Server

STOP = [" = 1", "9", "boxed{2"]
ASKED = [BATCH, f"sampling.trials={TRIALS}", "stages=[prepare,generate]", "verifier=none"]
ASKED += [f"prompt.stop={json.dumps(STOP)}"]


def attempts(folder: Path) -> Attempts:
    names = ["text", "finish_reason", "token_ids", "logprobs", "completion_tokens"]
    return stored(folder, [*KEY, *names])


def assert_cut(folder: Path, whole: Path) -> None:
    """Each attempt of `folder` is the one of the run without stop strings, as far as it goes."""
    tokenizer = models.tokenizer(Run(load_folder(whole, [])).cfg.model)
    found, cut = attempts(folder), 0
    assert found.keys() == attempts(whole).keys()
    for key, free in attempts(whole).items():
        ids, row = free["token_ids"], found[key]
        texts = (tokenizer.decode(ids[:n], skip_special_tokens=True) for n in range(len(ids) + 1))
        done = ((n, t) for n, t in enumerate(texts) if any(word in t for word in STOP))
        n, text = next(done, (len(ids), ""))
        cut += bool(text)
        ends = [text.find(word) for word in STOP if word in text]
        assert row["text"] == (text[: min(ends)] if ends else free["text"])
        assert row["token_ids"] == ids[:n] and row["completion_tokens"] == n
        assert row["logprobs"] == pytest.approx(free["logprobs"][:n], abs=0.05)
        assert row["finish_reason"] == ("stop" if ends else free["finish_reason"])
    assert 20 < cut < len(found)


def test_vllm_ends_at_stop_strings(
    forker: Forker, whole_run: tuple[Path, str], tmp_path: Path
) -> None:
    Command(tmp_path / "run", forker, *ASKED).finish()
    assert_cut(tmp_path / "run", whole_run[0])


def test_a_server_ends_at_stop_strings(
    forker: Forker, server: Server, whole_run: tuple[Path, str], tmp_path: Path
) -> None:
    asked = ["engine=openai", f"engine.url={server.url}", "engine.in_flight=32"]
    Command(tmp_path / "run", forker, *asked, *ASKED[1:]).finish()
    assert_cut(tmp_path / "run", whole_run[0])
