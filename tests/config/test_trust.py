"""A run folder of somebody else: what no verb does with it before the user says trust=true."""

import asyncio
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers import ROOT, THREE, Capsys, run_of

from bayes_at_n.pipeline.adaptive import plan
from bayes_at_n.pipeline.api.verbs import load_run
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.cli.main import main
from bayes_at_n.pipeline.config import compose, multirun, trust
from bayes_at_n.pipeline.config.folder import dump, load_folder
from bayes_at_n.pipeline.config.records import RecordsConfig
from bayes_at_n.pipeline.config.resources import EngineConfig
from bayes_at_n.pipeline.engines.client import Client, Rejected
from bayes_at_n.pipeline.records.importing import import_records
from bayes_at_n.pipeline.score.headline import is_current
from bayes_at_n.pipeline.store import runfolder
from bayes_at_n.pipeline.store.runfolder import Run

Heard = list[dict[str, str]]
Stopped = Callable[..., str]


@pytest.fixture
def stranger() -> Iterator[tuple[str, Heard]]:
    """The address of a server that sets a cookie and sends all elsewhere; the headers it got."""
    heard: Heard = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            heard.append(dict(self.headers))
            self.send_response(302)
            elsewhere = f"http://127.0.0.2:{self.server.server_address[1]}/v1"
            said = {"Location": elsewhere, "Set-Cookie": "who=you; Path=/", "Content-Length": "0"}
            for name, value in said.items():
                self.send_header(name, value)
            self.end_headers()

        do_POST = do_GET

    with http.server.ThreadingHTTPServer(("0.0.0.0", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1", heard
        server.shutdown()


@pytest.fixture
def stopped(capsys: Capsys) -> Stopped:
    """What a command says, without spaces, that stops."""

    def stopped(*arguments: object, status: int = 2) -> str:
        capsys.readouterr()
        assert main([*map(str, arguments)]) == status
        return "".join("".join(capsys.readouterr()).split())

    return stopped


def imported(source: Path, runs: Path) -> Path:
    import_records(compose.load_as(RecordsConfig, [f"source={source}", f"runs={runs}"]))
    return runs


def unmarked(run: Run) -> Path:
    """The folder as if another had made it."""
    path = run.path / "config.yaml"
    assert path.read_text().startswith("# ")
    path.write_text(path.read_text().partition("\n")[2])
    return run.path


def test_a_token_goes_to_no_host_that_a_folder_names(
    tmp_path: Path, stranger: tuple[str, Heard], stopped: Stopped, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, heard = stranger
    for name in ("HF_TOKEN", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "hf_secret")
    settings = ["engine=openai", f"engine.url={url}", "engine.key_env=HF_TOKEN", "verifier=none"]
    settings += [f"model.tokenizer={ROOT}/demo/models/step-3900"]
    questions = tmp_path / "sums.jsonl"  # `prepare` reads it before it asks the server
    questions.write_text('{"id": "a", "problem": "1+1?", "answer": 2}\n')
    settings += [f"dataset.path='{questions}'"]
    folder = unmarked(run_of(tmp_path, "evil", THREE, *settings))
    own, other = (run_of(tmp_path, name, THREE, *settings).path for name in ("own", "other"))
    previews = ("run --dry-run", "submit cluster=h200-8 --dry-run")  # they read the prompts, too
    for verb in ("run", "prepare", "generate", "submit", f"equivalence {other}", *previews):
        words = ["stages=[score]"] if verb.startswith(("run -", "submit")) else []
        said = stopped(*verb.split(), folder, *words)
        assert all(w in said for w in ("config.yaml:", "engine.url=", "'HF_TOKEN'", "trust=true"))
    # The word is not enough for a key: its host, and a name that is no key's, have to be typed.
    assert "engine.key_env=" in stopped("generate", folder, "trust=true")
    assert "url=" in stopped("generate", folder, "trust=true", "engine.key_env=OPENAI_API_KEY")
    for verb in ("score", "status", "categorize", f"compare {other} out={tmp_path / 'out'}"):
        assert main([*verb.split(), str(folder)]) == 0, verb
    assert heard == []
    main(["prepare", str(folder), "trust=true", "engine.key_env=NO_API_KEY"])
    assert heard and not any("Authorization" in headers for headers in heard)
    heard.clear()
    main(["prepare", str(own)])
    assert {headers.get("Authorization") for headers in heard} == {"Bearer hf_secret"}
    config = own / "config.yaml"
    config.write_text(config.read_text().replace("/v1", "/v2"))
    assert "/v2" in stopped("prepare", own)


def test_code_of_a_folder_runs_when_the_user_says_so(tmp_path: Path, stopped: Stopped) -> None:
    grader, ran = tmp_path / "g.py", tmp_path / "ran"
    grader.write_text(f"open({str(ran)!r}, 'w')\ndef grade(gold, response): return True\n")
    answer, ungraded = f"dataset.answer=python:{grader}:grade", {"a": "++", "b": "++"}
    folder = unmarked(run_of(tmp_path / "there", "evil", ungraded, answer))
    for words in (["grade"], ["run", "stages=[grade]"], ["run", "sampling.trials=2"]):
        assert "dataset.answer=" in stopped(words[0], folder, *words[1:])
    copy = imported(tmp_path / "there", tmp_path / "runs") / "sums" / "evil"
    assert str(grader) not in (copy / "config.yaml").read_text()
    assert "dataset.answer=" in stopped("grade", copy)
    for word in ("stages=[categorize]", "trust=submitted"):
        runfolder.save_config(Run(load_folder(folder, [word], "run")))
        assert "dataset.answer=" in stopped("grade", folder) and not ran.exists()
    assert main(["grade", str(folder), "trust=true"]) == 0 and ran.exists()
    runfolder.save_config(Run(load_folder(folder, ["trust=true"], "run")))
    assert main(["grade", str(folder)]) == 0  # it is this user's now


def test_a_metric_of_a_folder_is_its_users_own(tmp_path: Path, stopped: Stopped) -> None:
    code, ran = tmp_path / "m.py", tmp_path / "ran"
    code.write_text(f"open({str(ran)!r}, 'w')\ndef most(correct, trials): return correct / trials")
    metric = f"scoring.metrics=[{code}:most]"
    folder = unmarked(run_of(tmp_path / "there", "evil", THREE, metric))
    for words in (["score"], ["run", "stages=[score]"]):
        assert "scoring.metrics=" in stopped(words[0], folder, *words[1:])
    with pytest.raises(UserError, match=r"scoring\.metrics="):
        load_run(folder).scores()
    for verb in ("compare", "status", "export"):  # what only reads runs nothing
        more = ["to=lm_eval", f"out={tmp_path / 'out'}"] if verb == "export" else []
        assert main([verb, str(folder), *more]) == 0
    copy = imported(tmp_path / "there", tmp_path / "runs") / "sums" / "evil"
    assert str(code) not in (copy / "config.yaml").read_text() and not ran.exists()
    assert main(["score", str(folder), metric]) == 0 and ran.exists()
    scores = json.loads((folder / "scores.json").read_text())["metrics"]
    assert scores[f"{code}:most"]["value"] == scores["avg"]["value"]
    assert is_current(Run(load_folder(folder, [metric])))
    code.write_text("def most(correct, trials): return 2")
    assert not is_current(Run(load_folder(folder, [metric])))  # its file is another one now


def test_import_keeps_what_a_run_was_and_nothing_that_acts(
    tmp_path: Path, stopped: Stopped, capsys: Capsys
) -> None:
    acts = """model.trust_remote_code=true engine.args.worker_extension_cls=evil.Evil
        verifier.engine.url=http://e/v1 verifier.engine.key_env=AWS_SECRET cluster.setup=pwned
        cluster.options=[--wrap=x] model.engine_args.mamba=float32"""
    run = run_of(tmp_path / "there", "m", THREE, *acts.split())
    made = imported(unmarked(run).parent.parent, tmp_path / "runs") / "sums" / "m"
    said = "".join(capsys.readouterr().err.split())
    assert all(key in said for key in ("remote_code", "evil", "http://e", "AWS", "pwned", "wrap"))
    text = (made / "config.yaml").read_text()
    assert not any(word in text for word in ("evil", "pwned", "wrap=", "http://e/", "AWS"))
    cfg = runfolder.open_run(made).cfg
    assert cfg.model.engine_args == {"mamba": "float32"} and not cfg.model.trust_remote_code
    assert "model.id='/nowhere/m'" in stopped("generate", made, "sampling.trials=9")


def test_what_a_folder_says_reaches_no_job_unasked(
    tmp_path: Path, stopped: Stopped, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cfg = compose.load(["cluster.setup=touch pwned", "run_dir=evil", "sampling.trials=2"])
    for name, word in (("almost", "false"), ("evil", "submitted")):  # read like the one before
        Path(name).mkdir()
        Path(name, "config.yaml").write_text(f"{dump(cfg)}trust: '{word}'\n")
        load_folder(Path(name), [])
    said = stopped("submit", "evil", "--dry-run")
    assert "cluster.setup='touchpwned'" in said and "model.id" not in said  # as in configs/
    script = stopped("submit", "evil", "--dry-run", "trust=true", status=0)
    assert "touchpwned" in script and 'grade"${runs[@]}"trust=submitted' in script
    # Nor does a race of somebody else bring its own grader.
    race = ["dataset=demo", "model=demo", "model.checkpoint=step-3800,step-3900", "until=best"]
    record = {"arguments": [*race, f"dataset.answer=python:{tmp_path}/g.py:grade", "trust=true"]}
    folder = Path("runs/demo/_settle/best")
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text(json.dumps(record))
    with pytest.raises(UserError, match=r"dataset\.answer="):
        plan.make(multirun.load_settle([str(folder)]))
    record["made_by_this_user"] = trust.sign(json.dumps(record["arguments"]))
    for words in (["trust=true"], []):
        assert len(plan.make(multirun.load_settle([str(folder), *words])).contenders) == 2
        (folder / "plan.json").write_text(json.dumps(record))


def test_the_key_is_the_users_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    mark = trust.sign("text")
    [key] = (tmp_path / "state" / "bayes-at-n").iterdir()
    assert key.stat().st_mode & 0o777 == 0o600
    assert trust.is_own("text", mark) and not trust.is_own("texT", mark)


def test_a_server_gets_no_cookies_and_another_host_no_key(
    stranger: tuple[str, Heard], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, heard = stranger
    monkeypatch.setenv("OWN_KEY", "secret")

    async def ask() -> None:
        client = Client(EngineConfig(name="openai", url=[url], key_env="OWN_KEY"))
        for _ in range(2):
            with pytest.raises(Rejected):
                await client.models()
        await client.close()

    asyncio.run(ask())
    assert [headers.get("Authorization") for headers in heard] == ["Bearer secret"] * 2
    assert not any("Cookie" in headers or "127.0.0.2" in headers["Host"] for headers in heard)
