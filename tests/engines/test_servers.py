"""A real server of OpenAI's protocol, and what is asked of it."""

import json
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from faulty_proxy import ERRORS, PASSING, RETRY_S, Proxy, always, at, faulty, spread
from forked import TRIALS, Attempts, Command, Forker, assert_whole, stored
from helpers import write_questions

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.engines import Request
from bayes_at_n.pipeline.engines.openai import OpenAIEngine
from benchmarks.servers import Server, serving, started

ROUNDING = 0.05  # nats: bfloat16, in batches of other sizes
QUICK = "from bayes_at_n.pipeline.engines import client; client._FIRST_PAUSE_S = 0.02"


def command(
    folder: Path,
    forker: Forker,
    url: str,
    *more: str,
    trials: int = TRIALS,
    before: str = "",
    hold: float | None = None,
    **variables: str,
) -> Command:
    """Sampling from a server, with as many requests at a time as it has room for."""
    settings = ["engine=openai", f"engine.url={url}", "engine.in_flight=32", "verifier=none"]
    settings += ["engine.timeout_s=60", f"sampling.trials={trials}", "stages=[prepare,generate]"]
    settings += more
    return Command(folder, forker, *settings, environment=variables, before=before, hold=hold)


def rows(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(folder / "attempts").to_pylist()
    return sorted(found, key=lambda row: (row["question_id"], row["trial"]))


def assert_same_logprobs(here: Path, there: Path) -> None:
    for a, b in zip(rows(here), rows(there), strict=True):
        assert a["logprobs"] == pytest.approx(b["logprobs"], abs=ROUNDING)


def findings(folder: Path) -> dict[str, Any]:
    """What the probe found, as the manifest has it."""
    [engine] = json.loads((folder / "manifest.json").read_text())["generated"]["engines"]
    [found] = engine["servers"]
    assert isinstance(found, dict)
    return found


def until(condition: Callable[[], bool], running: Command) -> None:
    while not condition():
        assert running.alive(), running.text()[-3000:]
        time.sleep(0.01)


def silent(proxy: Proxy, server: Server) -> None:
    """Returns when no request is left, neither on the way nor on the server."""
    while proxy.in_flight or server.requests():
        time.sleep(0.01)


@pytest.fixture(scope="module")
def proxy(server: Server) -> Iterator[Proxy]:
    with faulty(server.address) as made:
        yield made


@pytest.fixture
def plain(proxy: Proxy) -> Proxy:
    """The proxy with its counts at zero and no fault."""
    proxy.reset()
    return proxy


@pytest.fixture(scope="module")
def served(
    server: Server, forker: Forker, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str]:
    """A run on the server that nothing disturbed, and what it printed."""
    folder = tmp_path_factory.mktemp("served") / "run"
    return folder, command(folder, forker, server.url).finish()


def test_token_ids_are_those_of_the_engine_in_this_process(
    served: tuple[Path, str], reference: tuple[Path, Attempts]
) -> None:
    assert_whole(served[0], reference[1])
    assert_same_logprobs(reference[0], served[0])
    for a, b in zip(rows(reference[0]), rows(served[0]), strict=True):
        assert (a["finish_reason"], a["prompt_tokens"]) == (b["finish_reason"], b["prompt_tokens"])
        assert b["first_token"] is None and a["completion_tokens"] == b["completion_tokens"]
    tables = (pq.read_table(of / "questions.parquet") for of in (reference[0], served[0]))
    for a, b in zip(*(table.to_pylist() for table in tables), strict=True):
        assert a["prompt_token_ids"] == b["prompt_token_ids"]
        assert a["prompt_logprobs"][1:] == pytest.approx(b["prompt_logprobs"][1:], abs=ROUNDING)


def test_options_are_scored_by_log_probs_of_prompts_or_their_echo(
    plain: Proxy, forker: Forker, tmp_path: Path
) -> None:
    """By vLLM's field; where a server ignores that, by its echo; where it ignores both, not."""
    of = [{"q": f"What is {n} + 2?", "of": [str(n + 2), f"it is {n}"], "a": 0} for n in range(6)]
    data = f"dataset=jsonl dataset.path={write_questions(tmp_path / 'q.jsonl', of)}"
    data += " dataset.answer=choice dataset.gold=index prompt=cloze sampling=likelihood"
    data += " dataset.fields={id:null,problem:q,choices:of,answer:a} model=demo"
    found = []
    for fault in (None, "echo only", "no echo"):
        plain.reset(always(fault))
        more = [*data.split(), "engine.patience_s=20"]
        asked = command(tmp_path / str(fault), forker, plain.url, *more, trials=1)
        if fault == "no echo":
            assert asked.wait() == 2 and "sampling.likelihood=options needs" in asked.text()
            continue
        asked.finish()
        options = [option for row in rows(tmp_path / str(fault)) for option in row["options"]]
        found.append([option["logprob"] for option in options])
        assert len(options) == 12 and plain.hits[fault or ""] == (plain.posts if fault else 0)
    assert found[1] == pytest.approx(found[0], abs=20 * ROUNDING)


def test_what_the_probe_found_is_recorded(served: tuple[Path, str], server: Server) -> None:
    found = findings(served[0])
    assert found["served_name"] == server.name and found["software"] == "vllm"
    assert found["context"] == 8192
    assert found["token_ids"] and found["logprobs"] and found["prompt_logprobs"]
    assert found["named"] and found["not_taken"] == [] and found["replay"] < 0.05
    assert "warning" not in served[1]


# A fault of these is seen by the client whatever it is; others are only seen by a probe.
SEEN = [*PASSING, "endless", "same", "empty", "no token ids", "no log-probs"]
SEEN += ["half a prompt", "strange token"]


@pytest.mark.parametrize("faults", [len(SEEN), pytest.param(100, marks=pytest.mark.soak)])
def test_many_faults_lose_nothing_and_double_nothing(
    plain: Proxy, server: Server, forker: Forker, reference: tuple[Path, Attempts],
    tmp_path: Path, faults: int,
) -> None:  # fmt: skip
    times = -(-faults // len(SEEN))
    plan = spread(SEEN, times, every=1.5)
    plain.plan = lambda number: plan(number - 16)  # the probe has been before
    run = command(tmp_path / "run", forker, plain.url, before=QUICK)
    if run.wait() == 1:  # an attempt that has met three bad ends is left to the next command
        assert "pending" in run.text()
        run = command(tmp_path / "run", forker, plain.url)
    run.finish()
    assert plain.hits == {fault: times for fault in SEEN}
    assert_whole(tmp_path / "run", reference[1])
    assert_same_logprobs(reference[0], tmp_path / "run")
    assert plain.endless_bytes < 64 << 20
    silent(plain, server)


@pytest.mark.parametrize("fault", [next(iter(ERRORS)), pytest.param(None, marks=pytest.mark.soak)])
def test_what_a_server_will_never_take_stops_the_run_with_its_words(
    plain: Proxy, forker: Forker, reference: tuple[Path, Attempts], tmp_path: Path,
    fault: str | None,
) -> None:  # fmt: skip
    folder = tmp_path / "run"
    for code in [fault] if fault else list(ERRORS):
        # After the probe and, the first time, after the log-probs of prompts.
        plain.reset(at({25 if folder.exists() else 55: code}))
        stopped = command(folder, forker, plain.url)
        assert stopped.wait() == 2, stopped.text()
        assert f"the proxy says {code}" in stopped.text()
        assert "Traceback" not in stopped.text()
        kept = stored(folder)
        assert kept.items() <= reference[1].items()
        if len(kept) > 40:
            shutil.rmtree(folder)
    command(folder, forker, plain.url).finish()
    assert_whole(folder, reference[1])


@pytest.mark.soak
def test_a_server_that_hangs_is_asked_again(
    plain: Proxy, server: Server, forker: Forker, reference: tuple[Path, Attempts], tmp_path: Path
) -> None:
    plain.plan = spread(["hang"], times=20, every=7)
    command(tmp_path / "run", forker, plain.url, "engine.timeout_s=5").finish()
    assert plain.hits["hang"] > 10
    assert_whole(tmp_path / "run", reference[1])
    silent(plain, server)


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        *(pytest.param(n, marks=pytest.mark.soak) for n in (signal.SIGTERM, signal.SIGKILL)),
    ],
)
def test_a_stopped_run_leaves_no_request_on_the_server(
    plain: Proxy, server: Server, forker: Forker, tmp_path: Path, number: int
) -> None:
    """Requests of 8,000 tokens, which nobody waits for."""
    long = ["engine.args.ignore_eos=true", "sampling.max_tokens=8000"]
    run = command(tmp_path / "run", forker, plain.url, *long)
    until(lambda: server.requests() == 32, run)
    run.signal(number)
    assert run.wait() == (-number if number == signal.SIGKILL else 128 + number), run.text()
    silent(plain, server)
    assert plain.dropped == 32 and not stored(tmp_path / "run")
    assert "Traceback" not in run.text()


def test_the_key_is_nowhere(plain: Proxy, forker: Forker, tmp_path: Path) -> None:
    key, folder = "sesame-3141592653589793", tmp_path / "run"
    plain.plan = at({45: "401 with the key"})
    settings = ["dataset.limit=20", "engine.key_env=MY_KEY"]
    stopped = command(folder, forker, plain.url, *settings, MY_KEY=key)
    assert stopped.wait() == 2 and "Incorrect API key: [key]" in stopped.text()
    plain.plan = spread(["500", "cut", "abort"], times=5)
    done = command(folder, forker, plain.url, *settings, MY_KEY=key)
    done.finish()
    assert plain.keys == {f"Bearer {key}"}
    assert not [text for text in (stopped.text(), done.text()) if "sesame" in text]
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 5
    assert not [path for path in files if b"sesame" in path.read_bytes()]
    for path in folder.rglob("*.parquet"):
        assert "sesame" not in str(pq.read_table(path).to_pylist())


ALERT = f"{QUICK}; from bayes_at_n.pipeline.engines import openai; openai.SUSPECT_S = 0"


def test_a_server_that_dies_and_comes_back(
    plain: Proxy, forker: Forker, reference: tuple[Path, Attempts], tmp_path: Path
) -> None:
    plain.plan = at({60: "gone"})
    run = command(tmp_path / "run", forker, plain.url, before=ALERT)
    until(lambda: plain.hits["gone"] > 0, run)
    posts = plain.posts
    plain.open()
    assert "suspect" not in run.finish() and plain.posts > posts
    assert_whole(tmp_path / "run", reference[1])


@pytest.mark.soak
def test_a_server_that_comes_back_as_another_model(
    plain: Proxy, forker: Forker, reference: tuple[Path, Attempts], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    plain.plan = lambda number: None if number < 60 else "gone" if number == 60 else "another"
    run = command(folder, forker, plain.url, before=ALERT)
    until(lambda: plain.hits["gone"] > 0, run)
    plain.open()
    assert run.wait() == 2, run.text()
    assert "answers as another model" in run.text() and "attempts since 20" in run.text()
    assert not stored(folder)  # of none is known who made it
    begun = shutil.copytree(folder, tmp_path / "begun")
    plain.plan = always(None)
    said = command(folder, forker, plain.url).finish()
    assert "are suspect and do not count" in said
    assert_whole(folder, reference[1])
    status = " ".join(Command(folder, forker, verb="status").finish().split())
    assert "trust_parts=true accepts them" in status
    set_aside = sum(pq.read_metadata(f).num_rows for f in (begun / "attempts").glob("*.suspect"))
    assert 0 < set_aside < 60
    command(begun, forker, plain.url, "trust_parts=true").finish()
    kept = [key for key, row in stored(begun).items() if row != reference[1][key]]
    assert len(stored(begun)) == 60 and len(kept) <= set_aside
    assert "trust_parts: false" in (begun / "config.yaml").read_text()


@pytest.mark.parametrize("times", [1, pytest.param(5, marks=pytest.mark.soak)])
def test_of_two_models_at_once_the_first_is_the_run_s(
    plain: Proxy, server: Server, forker: Forker, reference: tuple[Path, Attempts],
    tmp_path: Path, times: int,
) -> None:  # fmt: skip
    with faulty(server.address, always("another")) as other:
        for folder in (tmp_path / f"run{i}" for i in range(times)):
            command(folder, forker, plain.url, "stages=[prepare]").finish()
            # Whoever samples first is held at work until the other one has come, and is refused.
            both = [command(folder, forker, url, hold=0) for url in (plain.url, other.url)]
            while all(run.alive() for run in both):
                time.sleep(0.02)
            for run in both:
                run.release()
            codes = [run.wait() for run in both]
            assert sorted(codes) == [0, 2], [run.text() for run in both]
            assert "answers as another model" in both[codes.index(2)].text()
            made = [json.loads(f.read_text())["attempts"] for f in folder.glob("sessions/*.json")]
            assert sorted(made) == [0, 60]
            assert (stored(folder) == reference[1]) == (codes[0] == 0)


@pytest.mark.soak
def test_replicas_of_one_model_are_no_other_model(
    plain: Proxy, server: Server, tiny_model: Path, forker: Forker, tmp_path: Path
) -> None:
    """A router over two of them; then an older checkpoint stands in the place of both."""
    often = f"{ALERT}; openai.PROBE_S = 0"
    with (
        serving(tiny_model, tmp_path / "log", "--max-num-seqs", "5") as equal,
        serving(tiny_model.with_name("step-3800"), tmp_path / "log2") as older,
    ):

        def either(number: int) -> None:
            plain.upstream = (server, equal)[number % 2].address

        def replaced(number: int) -> None:
            plain.upstream = (server if number < 60 else older).address

        try:
            plain.plan = either
            said = command(tmp_path / "run", forker, plain.url, before=often, trials=80).finish()
            probes = (plain.posts - 2400 - 45) // 3
            assert probes > 30 and "suspect" not in said, probes
            print(f"{probes} probes of two replicas, no alarm")
            for api in ("completions", "chat"):
                plain.reset(replaced)
                more = [f"engine.api={api}", f"sampling.prompt_logprobs={api != 'chat'}"]
                run = command(tmp_path / api, forker, plain.url, *more)
                assert run.wait() == 2 and "answers as another model" in run.text(), run.text()
                assert "attempts since" in run.text() and not stored(tmp_path / api)
        finally:
            plain.upstream = server.address


def test_a_withheld_answer_is_finished(plain: Proxy, forker: Forker, tmp_path: Path) -> None:
    plain.plan = lambda number: "filtered" if number in (20, 25, 30, 35) else None
    few = ["dataset.limit=10", "stages=[prepare,generate,grade]"]
    said = command(tmp_path / "run", forker, plain.url, *few).finish()
    ended = [row for row in rows(tmp_path / "run") if row["finish_reason"] == "content_filter"]
    assert len(ended) == plain.hits["filtered"] == 4 and len(rows(tmp_path / "run")) == 20
    assert f"{len(ended)} of 20 attempts ({len(ended) / 20:.1%})" in said
    grades = pq.read_table(tmp_path / "run" / "grades").to_pylist()
    outcomes = {(row["question_id"], row["trial"]): row["outcome"] for row in grades}
    assert {outcomes[row["question_id"], row["trial"]] for row in ended} == {"no_answer"}


def engine(folder: Path, url: str, *more: str) -> OpenAIEngine:
    """The client by itself, on the questions of a run; not probed."""
    settings = ["engine=openai", f"engine.url=[{url}]", "engine.in_flight=32", *more]
    return OpenAIEngine(compose.load([*settings, f"run_dir={folder}"]), 200, ())


def requests(folder: Path, trials: int) -> list[Request]:
    questions = pq.read_table(folder / "questions.parquet").to_pylist()
    return [
        Request(q["question_id"], t, q["prompt_token_ids"], q["max_tokens"], 1234 + t)
        for t in range(trials)
        for q in questions
    ]


def test_too_many_requests_lower_the_number_and_are_made_when_the_server_says(
    plain: Proxy, reference: tuple[Path, Attempts]
) -> None:
    asking = engine(reference[0], plain.url)
    start = plain.posts
    plain.plan = lambda number: "429" if number < start + 3 else None
    for completion in asking.generate(requests(reference[0], 1)):
        assert completion is None or completion.finish_reason in ("stop", "length")
    assert asking.client.in_flight == 32
    assert asking.client.limit < 18 and asking.client.limit not in (16, 8, 4)  # raised since
    assert asking.client.retries == {"HTTP 429": 3}
    plain.reset(at({0: "429 with seconds"}))
    [answer] = filter(None, asking.generate(requests(reference[0], 1)[:1]))
    assert answer.finish_reason == "stop" and plain.posts == 2
    assert answer.finished - answer.started >= RETRY_S
    asking.close()


def test_chat_turns_are_proposed(plain: Proxy, forker: Forker, tmp_path: Path) -> None:
    plain.plan = always("422")
    refused = command(tmp_path / "run", forker, plain.url, "engine.api=completions")
    assert refused.wait() == 2 and "engine.api=chat" in refused.text()


def test_a_key_that_cannot_be_sent_is_not_shown(
    reference: tuple[Path, Attempts], monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("sesame\nopen", "sesame-\N{LATIN SMALL LETTER E WITH ACUTE}"):
        monkeypatch.setenv("OPENAI_API_KEY", key)
        with pytest.raises(UserError, match="OPENAI_API_KEY: has characters") as error:
            engine(reference[0], "http://127.0.0.1:9/v1")
        assert "sesame" not in str(error.value)


def test_a_server_that_answers_everything_alike_is_not_believed(
    plain: Proxy, forker: Forker, tmp_path: Path
) -> None:
    plain.plan = always("same")
    refused = command(tmp_path / "alike", forker, plain.url)
    assert refused.wait() == 2 and "gives the same answer to 4 different seeds" in refused.text()
    assert not stored(tmp_path / "alike")


def test_a_server_without_token_ids_gives_texts(
    plain: Proxy, forker: Forker, reference: tuple[Path, Attempts], tmp_path: Path
) -> None:
    plain.plan = always("no token ids")
    command(tmp_path / "run", forker, plain.url, "dataset.limit=10", trials=1).finish()
    assert findings(tmp_path / "run")["token_ids"] is False
    texts = {key: row["text"] for key, row in reference[1].items()}
    found = rows(tmp_path / "run")
    assert len(found) == 10
    assert all(row["text"] == texts[row["question_id"], row["trial"]] for row in found)


def test_log_probs_that_are_lacking_have_to_be_done_without_on_purpose(
    plain: Proxy, forker: Forker, tmp_path: Path
) -> None:
    plain.plan = always("no log-probs")
    few, without = "dataset.limit=5", "sampling.logprobs=false"
    refused = command(tmp_path / "refused", forker, plain.url, few, trials=1)
    assert refused.wait() == 2 and without in refused.text()
    command(tmp_path / "run", forker, plain.url, few, without, trials=1).finish()
    assert len(rows(tmp_path / "run")) == 5
    assert all(row["logprobs"] is None and row["token_ids"] for row in rows(tmp_path / "run"))


def test_chat_turns_give_the_same_texts(
    plain: Proxy, forker: Forker, reference: tuple[Path, Attempts], tmp_path: Path
) -> None:
    # After the probe, which must have seen the whole prompt.
    plan = spread(["half a prompt"], times=4, every=4)
    plain.plan = lambda number: plan(number - 13)
    more = ["dataset.limit=2", "engine.api=chat", "sampling.prompt_logprobs=false"]
    command(tmp_path / "run", forker, plain.url, *more).finish()
    found = stored(tmp_path / "run")
    assert len(found) == 2 * TRIALS and plain.hits["half a prompt"] > 1
    for key, row in found.items():
        assert all(row[name] == reference[1][key][name] for name in ("text", "token_ids"))


@pytest.mark.soak
def test_a_server_of_another_maker(tiny_model: Path, forker: Forker, tmp_path: Path) -> None:
    """`transformers serve` lacks most, refuses what it does not know, and is greedy by default."""
    environment = os.environ | {"HF_HUB_CACHE": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    with socket.socket() as port:
        port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        port.bind(("127.0.0.1", 0))
        number, name = str(port.getsockname()[1]), str(tiny_model)
        line = [sys.executable, "-m", "transformers.cli.transformers", "serve", name]
        line += ["--host", "127.0.0.1", "--port", number, "--device", "cpu"]
        with started(line, environment, f"http://127.0.0.1:{number}/health", tmp_path / "log"):
            url = f"http://127.0.0.1:{number}/v1"
            more = ["sampling.logprobs=false", "sampling.prompt_logprobs=false"]
            more += ["dataset.limit=5", "engine.in_flight=4"]
            refused = command(tmp_path / "greedy", forker, url, *more)
            assert refused.wait() == 2
            assert "gives the same answer to 4 different seeds" in refused.text()
            sampling = 'engine.args.generation_config="{\\"do_sample\\": true, \\"top_k\\": 0}"'
            said = command(tmp_path / "run", forker, url, *more, sampling).finish()
    for words in ("no token ids", "does not accept min_p"):
        assert words in said
    found = rows(tmp_path / "run")
    assert len(found) == 5 * TRIALS and len({row["text"] for row in found}) > 5
    assert all(row["token_ids"] is None and row["completion_tokens"] > 0 for row in found)
    assert findings(tmp_path / "run")["api"] == "chat"
