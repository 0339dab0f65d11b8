"""Published prompts of verifiers: fetched from a server, checked, read as syntax, and used."""

import functools
import hashlib
import http.server
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import transformers
from helpers import Capsys, again, make_run

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.cli.main import main
from bayes_at_n.pipeline.config.verifier import OfficialPrompt, VerifierConfig
from bayes_at_n.pipeline.prepare import prefetch
from bayes_at_n.pipeline.store import outcomes
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.verify import calibrate, stage
from bayes_at_n.pipeline.verify.prompts import Candidate, fill, read_template

FILE = f"some-one/judge.s/{'0123456789' * 4}/src/p.py"
TEXT = "\nIs \\boxed{{}} right?\n{question} {gold_answer}\n<Begin>{llm_response}<End>\n"
SOURCE = f"""raise SystemExit("this was run")
from nowhere import nothing
OTHER = "{{response}} too"
PROMPT = {TEXT!r}
SPREAD = ("{{response}}"
    " of two lines")
STRIPPED = '''
{{response}}
'''.strip()
"""
FIELDS = {"gold_answer": "gold", "llm_response": "response"}
TEXTS = [r"\boxed{2}", r"So \boxed{3}", "no box"]


def official(source: bytes, name: str = "PROMPT", **others: Any) -> OfficialPrompt:
    digest = hashlib.sha256(source).hexdigest()
    return OfficialPrompt(FILE, digest, name, FIELDS, **others)


PROMPT = official(SOURCE.encode())


class Server:
    """Answers every request with these bytes, this status and these headers."""

    def __init__(self) -> None:
        self.body, self.status, self.repeat = SOURCE.encode(), 200, 1
        self.headers: dict[str, str] = {}
        self.requests: list[str] = []

    def handler(self, *arguments: Any) -> None:
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.requests.append(self.path)
                self.send_response(server.status)
                for name, value in server.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                try:
                    for _ in range(server.repeat):
                        self.wfile.write(server.body)
                except OSError:
                    server.requests.append("hung up")

            def log_message(self, *_: Any) -> None:
                pass

        Handler(*arguments)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HOME", str(tmp_path / "hf"))
    return tmp_path / "hf" / "verifier-prompts"


@pytest.fixture
def server(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    server = Server()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(server.handler)) as at:
        monkeypatch.setattr(prefetch, "SOURCE", f"http://127.0.0.1:{at.server_port}")
        thread = threading.Thread(target=at.serve_forever, args=(0.01,))
        thread.start()
        yield server
        at.shutdown()
        thread.join()


def put(cache: Path, prompt: OfficialPrompt, source: bytes = SOURCE.encode()) -> None:
    cache.mkdir(parents=True, exist_ok=True)
    (cache / prompt.sha256).write_bytes(source)


def test_the_file_is_fetched_once_and_only_read(server: Server, cache: Path) -> None:
    assert prefetch.read(PROMPT) is None
    path = prefetch.fetch(PROMPT)
    assert path == cache / PROMPT.sha256 and path.read_text() == SOURCE
    assert prefetch.fetch(PROMPT) == path
    assert server.requests == [f"/{FILE}"]
    assert [p.name for p in cache.iterdir()] == [PROMPT.sha256]
    text = read_template(VerifierConfig(prompt="official", official=PROMPT))
    turn, start, end = fill(text, Candidate("q", "{gold} of 2?", "{2}", "{1} or <end>", "3"))
    theirs = TEXT.format(question="{gold} of 2?", gold_answer="{2}", llm_response="{1} or (end)")
    assert turn == theirs and turn[start:end] == "{1} or (end)"
    assert prefetch.template(replace(PROMPT, name="SPREAD")) == "{response} of two lines"
    assert prefetch.template(replace(PROMPT, name="STRIPPED")) == "{response}"
    path.write_text("damaged")
    assert prefetch.read(PROMPT) is None
    assert prefetch.fetch(PROMPT).read_text() == SOURCE and len(server.requests) == 2


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"body": b"PROMPT = 'another {response}'"}, "SHA-256"),
        ({"status": 404}, "HTTP status 404"),
        ({"status": 302, "headers": {"Location": "/elsewhere"}}, "HTTP status 302"),
        ({"body": b"x" * 65536, "repeat": 10**6}, "over 262144 bytes"),
    ],
)
def test_what_a_server_may_send(
    change: dict[str, Any], named: str, server: Server, cache: Path
) -> None:
    vars(server).update(change)
    with pytest.raises(UserError) as caught:
        prefetch.fetch(PROMPT)
    message = str(caught.value)
    assert named in message and FILE in message and "\n" not in message
    assert not cache.exists() and "/elsewhere" not in server.requests


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("PROMPT = 'a {response}' + str(1)", "PROMPT: the file does not assign"),
        ("PROMPT = '{response}'\0", "src/p.py"),
        ("PROMPT = " + "(" * 9999 + ")" * 9999, "src/p.py"),
        ("PROMPT = '{response.__class__}'", "'response.__class__' is not in"),
        ("PROMPT = '{response} {llm_response}'", "must contain {response} once"),
    ],
)
def test_a_file_that_holds_no_prompt(source: str, named: str, cache: Path) -> None:
    prompt = official(source.encode())
    put(cache, prompt, source.encode())
    with pytest.raises(UserError) as caught:
        read_template(VerifierConfig(prompt="official", official=prompt))
    assert named in str(caught.value) and "\n" not in str(caught.value)


@pytest.fixture
def run(tmp_path: Path, tiny_model: Path) -> Run:
    own = tmp_path / "own.txt"
    own.write_text("{question} {gold} {response}")
    settings = [f"id={tiny_model}", "engine=transformers", "engine.device=cpu", "least_mass=0"]
    settings += ["dtype=float32", "prompt=official", "official.name=PROMPT"]
    settings += [f"official.file={FILE}", f"official.sha256={PROMPT.sha256}"]
    fields = "{gold_answer: gold, llm_response: response}"
    settings += [f"official.fallback={own}", f"official.fields={fields}"]
    overrides = [f"verifier.{setting}" for setting in settings]
    return make_run(tmp_path / "run", {"q": "10-"}, *overrides, texts={"q": TEXTS})


def verdicts(run: Run) -> list[dict[str, Any]]:
    return sorted(pq.read_table(run.path / "verdicts").to_pylist(), key=lambda row: row["trial"])


def test_official_prompt(
    run: Run, server: Server, cache: Path, tmp_path: Path, capsys: Capsys
) -> None:
    judging = again(run, "dataset.judge=all")
    own = str(tmp_path / "own.txt")

    def prompt() -> str:
        assert outcomes.read_verdicts(judging, []).pending == 0
        return str(outcomes.verdicts_made_of(judging)["request"]["prompt"])

    stage.verify(judging)
    err = " ".join(capsys.readouterr().err.split())
    assert "results differ" in err and "pipeline prefetch" in err and own in err
    assert prompt() == own
    ours = verdicts(run)

    sums = tmp_path / "sums.jsonl"
    sums.write_text('{"id": 1, "problem": "1+1?", "answer": "2"}\n')
    here = [f"model.id={run.cfg.verifier.id}", f"dataset.path={sums}"]
    assert main(["prefetch", str(run.path), *here]) == 0
    assert str(cache / PROMPT.sha256) in capsys.readouterr().out and len(server.requests) == 1

    stage.verify(judging)
    assert prompt() == f"{FILE}:PROMPT"
    assert "other inputs (request, template, verifier)" in " ".join(capsys.readouterr().err.split())
    theirs = verdicts(run)
    assert [row["logprob_a"] for row in theirs] != [row["logprob_a"] for row in ours]

    (cache / PROMPT.sha256).unlink()  # another machine: what is there stays
    with pytest.raises(UserError, match=r"official: .*prefetch"):
        stage.verify(judging)
    assert verdicts(run) == theirs


def test_two_labels_behind_a_prefix(run: Run, tiny_model: Path, capsys: Capsys) -> None:
    """A plain text, the extracted answer alone, a prefix and no label for what is invalid."""
    own = Path(run.cfg.verifier.official.fallback or "")
    own.write_text("Q: {question}\nIs {answer} {gold}? Assistant:")
    new = [f"prompt={own}", "kind=plain", "prefix=' So: '", "labels={invalid: null}"]
    run = again(run, *(f"verifier.{setting}" for setting in new))
    stage.verify(run)
    rows = verdicts(run)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_model)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        tiny_model, dtype=torch.float32
    ).eval()
    labels = [tokenizer.convert_tokens_to_ids(x) for x in "AB"]
    problem, gold = (run.questions[0][name] for name in ("problem", "gold"))
    grades = sorted(pq.read_table(run.grades).to_pylist(), key=lambda row: row["trial"])
    for row, grade, text in zip(rows, grades, TEXTS, strict=True):
        turn = f"Q: {problem}\nIs {grade['answer'] or text} {gold}? Assistant:"
        first, second = tokenizer([turn, " So: "], add_special_tokens=False)["input_ids"]
        with torch.no_grad():
            logits = model(torch.tensor([first + second])).logits[0, -1].double()
        exact = torch.log_softmax(logits, -1)[labels].numpy()
        np.testing.assert_allclose([row["logprob_a"], row["logprob_b"]], exact, atol=1e-3)
        assert row["logprob_c"] == -np.inf and row["c"] == row["raw_c"] == row["direct_c"] == 0
        assert row["a"] + row["b"] == pytest.approx(1) and row["label"] in "AB"
    measures = calibrate.pooled([run])
    assert measures is not None and measures["before"]["nll"] < 10  # no answer is none of A: B
