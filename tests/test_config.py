"""The typed configuration: what composes, what is refused, and what comes back from a folder."""

import functools
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pytest
from huggingface_hub import constants

from bayes_at_n.pipeline import engines
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.places import ROOT
from bayes_at_n.pipeline.config import compose, trust
from bayes_at_n.pipeline.config.engine import EngineConfig, VerifierEngineConfig
from bayes_at_n.pipeline.config.seeds import attempt_seed
from bayes_at_n.pipeline.config.settings import RunConfig, verifier_engine
from bayes_at_n.pipeline.engines import labels
from bayes_at_n.pipeline.replicas import devices

PINNED = [3632199407060549, 1889024924597497, 3819281815181469, 5520591707402991]

# Table 6 of arXiv 2510.04265 (20-model version), with the hub ids of the models.
TABLE_6 = {
    1: ("DS-R1-Qwen", "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B"),
    2: ("LIMO-v2", "GAIR/LIMO-v2"),
    3: ("OpenThinker2", "open-thoughts/OpenThinker2-32B"),
    4: ("OpenThinker3", "open-thoughts/OpenThinker3-1.5B"),
    5: ("Qwen3-Thinking", "Qwen/Qwen3-30B-A3B-Thinking-2507"),
    6: ("Sky-T1-Flash", "NovaSky-AI/Sky-T1-32B-Flash"),
    7: ("gpt-oss-high", "openai/gpt-oss-20b"),
    8: ("gpt-oss-low", "openai/gpt-oss-20b"),
    9: ("gpt-oss-medium", "openai/gpt-oss-20b"),
    10: ("EXAONE-4.0", "LGAI-EXAONE/EXAONE-4.0-1.2B"),
    11: ("OR-Nemotron", "nvidia/OpenReasoning-Nemotron-1.5B"),
    12: ("Phi-4", "microsoft/Phi-4-reasoning"),
    13: ("Phi-4-plus", "microsoft/Phi-4-reasoning-plus"),
    14: ("OR1-Distill", "open-r1/OpenR1-Distill-7B"),
    15: ("FuseO1-DS-QwQ-SkyT1", "FuseAI/FuseO1-DeepSeekR1-QwQ-SkyT1-Flash-32B-Preview"),
    16: ("Light-R1-DS", "qihoo360/Light-R1-14B-DS"),
    17: ("AR-Nemotron", "nvidia/AceReason-Nemotron-1.1-7B"),
    18: ("NVIDIA-Nemotron", "nvidia/NVIDIA-Nemotron-Nano-9B-v2"),
    19: ("Qwen3-4B", "Qwen/Qwen3-4B-Thinking-2507"),
    20: ("Bespoke", "bespokelabs/Bespoke-Stratos-7B"),
}
NEEDS = {
    "choice": ["dataset.fields.choices=options"],
    "custom": ["model.id=owner/name"],
    "jsonl": ["dataset.path=my/sums.jsonl"],
}
NEEDS["hub"] = ["dataset.path=owner/questions"]
NEEDS["openai"] = ["engine.url=http://node1:8000/v1"]


@functools.cache
def composed(name: str) -> RunConfig:
    """A model with one of the data sets: every data set has its turn."""
    datasets = compose.choices("dataset")
    dataset = datasets[compose.choices("model").index(name) % len(datasets)]
    needs = NEEDS.get(name, []) + NEEDS.get(dataset, [])
    return compose.load([f"model={name}", f"dataset={dataset}", *needs])


@pytest.mark.parametrize("name", compose.choices("model"))
def test_every_model_composes(name: str) -> None:
    cfg = composed(name)
    assert cfg.run_dir == f"runs/{cfg.dataset.name}/{cfg.model.name}"
    assert cfg.model.id and cfg.dataset.path


@pytest.mark.parametrize("group", ["prompt", "sampling", "engine"])
def test_every_other_choice_composes(group: str) -> None:
    for name in compose.choices(group):
        needs = NEEDS.get(name, [])
        assert getattr(compose.load([f"{group}={name}", *needs]), group).name == name


def test_the_twenty_models_of_the_paper() -> None:
    models = [composed(name).model for name in compose.choices("model")]
    known = {(model.table_id, model.short_name, model.id) for model in models}
    assert {(number, *names) for number, names in TABLE_6.items()} <= known  # others may be added


def test_models_keep_what_their_protocol_needs() -> None:
    low = compose.load(["model=gpt-oss-20b-low"]).model
    assert low.chat_template_kwargs == {"reasoning_effort": "low"}
    assert low.template_date == "2025-09-01" and low.dtype == "auto"
    assert not low.skip_special_tokens and low.reasoning_end == "<|channel|>final<|message|>"
    assert compose.load(["model=exaone-4.0-1.2b"]).model.chat_template_kwargs == {
        "enable_thinking": True
    }
    nano = compose.load(["model=nemotron-nano-9b-v2"]).model
    assert not nano.trust_remote_code and nano.engine_args == {"mamba_ssm_cache_dtype": "float32"}
    of_paper = [
        m for m in (composed(name).model for name in compose.choices("model")) if m.table_id
    ]
    assert not any(m.trust_remote_code for m in of_paper)
    assert all(model.name in compose.choices("model") for model in of_paper)  # folders of runs
    assert compose.load(["model=openreasoning-nemotron-1.5b"]).prompt.name == "openreasoning"


def test_the_paper_protocol() -> None:
    s = compose.load(["model=qwen3-30b", "dataset=aime25"]).sampling
    assert (s.trials, s.temperature, s.top_p, s.top_k, s.max_tokens, s.seed) == (
        (80, 0.6, 0.95, None, 32768, 1234)
    )
    assert s.logprobs and s.prompt_logprobs and s.seeds == "shared"


def test_seeds_of_attempts_are_the_same_for_ever() -> None:
    def seeds(*settings: str) -> list[int | None]:
        cfg = compose.load([*settings])
        return [attempt_seed(cfg, qid, trial) for qid in ("demo-01", "é/2") for trial in (0, 79)]

    assert seeds("sampling=paper") == [1234, 1313, 1234, 1313]
    assert seeds("sampling.seed=null") == [None] * 4
    assert seeds() == PINNED
    others = ("model.name=x", "dataset.name=x", "sampling.seed=1235")
    found = [seed for setting in others for seed in seeds(setting)]
    assert len({*PINNED, *found}) == 16 and max(*PINNED, *found) < 2**53
    assert seeds("tag=again", "engine=transformers", "sampling.temperature=1") == PINNED


def test_a_model_may_choose_the_sampling_and_the_command_line_wins() -> None:
    assert compose.load([]).sampling.name == "demo"  # model=demo asks for short completions
    assert compose.load(["model=qwen3-4b"]).sampling.name == "paper"
    assert compose.load(["model=demo", "sampling=paper"]).sampling.name == "paper"
    assert compose.load(["sampling=paper", "model=demo"]).sampling.max_tokens == 32768
    assert compose.load(["sampling.max_tokens=7"]).sampling.max_tokens == 7
    assert (
        compose.load(["model=openreasoning-nemotron-1.5b", "prompt=plain"]).prompt.name == "plain"
    )


def test_local_paths_name_the_run() -> None:
    cfg = compose.load(
        ["model=custom", "model.id=/data/my model", "dataset=jsonl", "dataset.path=../q/sums.jsonl"]
    )
    assert cfg.model.id == "/data/my model"
    assert cfg.run_dir == "runs/sums/my model"
    assert compose.load(["tag=hot"]).run_dir.endswith("-hot")
    assert Path(compose.load([]).dataset.path) == ROOT / "demo/questions.jsonl"


def test_the_verifier_s_engine_is_of_the_run_s_kind_with_nothing_of_its_arguments() -> None:
    on_gpus = ["model.engine_args.quantization=fp8", "engine.args.block_size=32"]
    on_gpus += ["engine.tensor_parallel_size=4", "engine.replicas=2", "engine.in_flight=9"]
    on_gpus += ["engine.gpu_memory_utilization=0.5", "verifier.batch_size=7"]
    plain = EngineConfig("vllm", batch_size=7, gpu_memory_utilization=0.5)
    assert asdict(verifier_engine(compose.load(on_gpus))) == asdict(plain)
    own = ["verifier.engine.tensor_parallel_size=2", "verifier.engine.args.quantization=fp8"]
    own += ["verifier.engine.gpu_memory_utilization=0.8"]
    found = verifier_engine(compose.load([*on_gpus, *own]))
    assert (found.tensor_parallel_size, found.gpu_memory_utilization) == (2, 0.8)
    assert found.args == {"quantization": "fp8"} and found.replicas == "auto"
    # vLLM chooses its kernels once a process, in which both engines run.
    both = ["engine.batch_invariant=true"]
    assert verifier_engine(compose.load(both)).batch_invariant
    other = verifier_engine(compose.load([*both, "verifier.engine=transformers"]))
    assert (other.name, other.batch_invariant) == ("transformers", False)


@pytest.mark.parametrize(
    ("overrides", "name", "device"),
    [
        (["verifier.engine.name=transformers"], "transformers", None),
        (
            ["verifier.engine.name=transformers", "verifier.engine.device=cpu"],
            "transformers",
            "cpu",
        ),
        (["engine=transformers", "engine.device=mps"], "transformers", "mps"),
        (
            ["engine=transformers", "device=mps", "verifier.engine.device=cpu"],
            "transformers",
            "cpu",
        ),
        (["engine=transformers", "device=cpu", "verifier.engine=vllm"], "vllm", None),
    ],
)
def test_the_verifier_may_have_another_engine(
    tmp_path: Path, overrides: list[str], name: str, device: str | None
) -> None:
    found = verifier_engine(compose.load_folder(written(tmp_path, *overrides), []))
    assert (found.name, found.device) == (name, device)


def test_a_short_key_is_of_the_outermost_group() -> None:
    cfg = compose.load(["tensor_parallel_size=2", "gpu_memory_utilization=0.7"])
    assert (cfg.engine.tensor_parallel_size, cfg.engine.gpu_memory_utilization) == (2, 0.7)
    assert cfg.verifier.engine == VerifierEngineConfig()


def test_an_unknown_engine_is_an_error_wherever_one_is_asked_for() -> None:
    cfg = compose.load([])
    cfg.engine.name = "transformer"  # settings refuse it before
    for ask in (devices.on_gpus, partial(engines.load, longest=9), partial(labels.load, longest=9)):
        with pytest.raises(UserError, match="did you mean transformers"):
            ask(cfg)


# override(s), what the line must name: the key, what was found, what to do
BAD = [
    ("sampling.trials=0", ["sampling.trials=0", "at least 1"]),
    ("sampling.trials=-3", ["sampling.trials=-3", "at least 1"]),
    ("sampling.trials=99999999999999999999", ["sampling.trials", "at most"]),
    ("sampling.trials=many", ["sampling.trials", "many", "Integer"]),
    ("sampling.trials=1.5", ["sampling.trials", "1.5", "Integer"]),
    ("sampling.trials=", ["sampling.trials", "''", "Integer"]),
    ("sampling.trials=null", ["sampling.trials", "not Optional"]),
    ("sampling.trials={a: 1}", ["sampling.trials"]),
    ("sampling.max_tokens=0", ["sampling.max_tokens=0", "at least 1"]),
    ("sampling.seed=-1", ["sampling.seed=-1", "null"]),
    ("sampling.seed=99999999999999999999", ["sampling.seed"]),
    ("sampling.temperature=hot", ["sampling.temperature", "hot", "Float"]),
    ("sampling.temperature=-0.1", ["sampling.temperature=-0.1", "at least 0 and at most 2"]),
    ("sampling.temperature=nan", ["sampling.temperature=nan", "at least 0 and at most 2"]),
    ("sampling.temperature=0", ["sampling.temperature=0", "sampling.trials=1"]),
    ("sampling.top_p=0", ["sampling.top_p=0", "above 0 and at most 1"]),
    ("sampling.top_k=0", ["sampling.top_k=0", "at least 1", "null"]),
    ("sampling.logprobs=maybe", ["sampling.logprobs", "maybe", "bool"]),
    ("engine.batch_size=0", ["engine.batch_size=0", "at least 1, or auto"]),
    ("engine.batch_size=2.5", ["engine.batch_size=2.5", "a whole number"]),
    ("engine.replicas=all", ["engine.replicas=all", "at least 1, or auto"]),
    ("engine.tensor_parallel_size=null", ["engine.tensor_parallel_size", "or auto"]),
    ("engine.gpu_memory_utilization=1.5", ["engine.gpu_memory_utilization=1.5"]),
    ("engine.device=cpu", ["engine.device=cpu", "engine=transformers"]),
    ("engine.name=sglang", ["engine.name=sglang", "vllm"]),
    ("engine.name=vlm", ["engine.name=vlm", "did you mean vllm"]),
    ("verifier.engine.name=transformer", ["verifier.engine.name", "did you mean transformers"]),
    ("verifier.engine=vlm", ["verifier.engine", "did you mean vllm"]),
    ("verifier.engine.batch_size=3", ["verifier.engine.batch_size", "verifier.batch_size"]),
    ("verifier.engine.tensor_parallel_size=0", ["verifier.engine.tensor_parallel_size=0"]),
    ("verifier.engine.device=cpu", ["verifier.engine.device=cpu", "verifier.engine=transformers"]),
    (
        "engine=transformers verifier.engine.tensor_parallel_size=2",
        ["verifier.engine.tensor_parallel_size=2", "needs verifier.engine=vllm"],
    ),
    (
        "engine=transformers engine.tensor_parallel_size=2",
        ["engine.tensor_parallel_size=2", "engine=vllm"],
    ),
    (
        "engine=transformers engine.batch_invariant=true",
        ["engine.batch_invariant=true", "engine=vllm"],
    ),
    ("prompt.template=hello", ["prompt.template", "{problem}"]),
    ("prompt.template=${foo}", ["prompt.template", "foo", "\\${"]),
    ("prompt.system_role=boss", ["prompt.system_role=boss", "system or user"]),
    ("model.id=null", ["model.id"]),
    ("model.context=0", ["model.context=0"]),
    ("model.dtype=float7", ["model.dtype=float7", "bfloat16"]),
    ("model.template_date=hello", ["model.template_date=hello", "YYYY-MM-DD"]),
    ("model.chat_template_kwargs=3", ["model.chat_template_kwargs"]),
    ("dataset.limit=0", ["dataset.limit=0"]),
    ("dataset.fields=x", ["dataset.fields"]),
    ("stages=[prepare,genrate]", ["stages", "genrate", "generate"]),
    ("stages=[]", ["stages", "prepare"]),
    ("scoring.metrics=[pass@0]", ["scoring.metrics", "pass@0"]),
    ("scoring.metrics=[pas@2]", ["scoring.metrics", "did you mean pass@2"]),
    ("scoring.pass_k=[1,2]", ["scoring.pass_k", "scoring.metrics"]),
    ("scoring.metrics=[bays]", ["scoring.metrics", "did you mean bayes"]),
    ("scoring.metrics=[bayes,]", ["scoring.metrics=[bayes,]", "comma"]),
    ("stages=grade,", ["stages", "comma"]),
    ("scoring.confidence=95", ["scoring.confidence=95"]),
    ("prior.trials=3", ["prior.trials=3", "prior=RUN"]),
    ("grading.timeout_s=0", ["grading", "timeout_s"]),
    ("run_dir=", ["run_dir"]),
    ("tag=../x", ["tag=../x"]),
    ("dataset.name=a/b", ["dataset.name=a/b"]),
]


@pytest.mark.parametrize(("overrides", "named"), BAD, ids=[overrides for overrides, _ in BAD])
def test_a_bad_setting_is_one_readable_line(overrides: str, named: list[str]) -> None:
    parts = overrides.split(" ") if overrides.startswith("engine=t") else [overrides]
    with pytest.raises(UserError) as caught:
        compose.load(parts)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 700
    for word in named:
        assert word in message


def written(folder: Path, *overrides: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.yaml").write_text(compose.dump(compose.load([*overrides])))
    return folder


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["model=gpt-oss-20b-high", "dataset=hmmt25", "sampling=greedy", "engine=transformers"],
        ["model.engine_args={a: {b: [1, 2.5, null]}}", "tag=x", "scoring.metrics=[bayes,pass@3]"],
        [r'prompt.template="{problem} as \${x}, {y} $z$ \\boxed{}"'],
        [r"prompt.template='{problem} costs \\\${5}'"],
        ["prompt.template='{problem}: yes # no\n\n- \"quoted\"'"],
    ],
)
def test_a_folder_gives_back_what_was_written(tmp_path: Path, overrides: list[str]) -> None:
    cfg = compose.load([*overrides, f"run_dir={tmp_path}"])
    text = compose.dump(cfg)
    (tmp_path / "config.yaml").write_text(f"# {trust.sign(text)}\n{text}")
    assert compose.load_folder(tmp_path, []) == cfg


def test_a_folder_takes_single_keys(tmp_path: Path) -> None:
    folder = written(tmp_path)
    cfg = compose.load_folder(
        folder,
        [
            "sampling.trials=160",
            "prior=other",
            "+engine.args.foo=1",
            "scoring.metrics=[bayes,pass@3]",
        ],
    )
    assert cfg.sampling.trials == 160 and cfg.prior.run == "other"
    assert cfg.engine.args == {"foo": 1} and cfg.scoring.metrics == ["bayes", "pass@3"]
    assert cfg.run_dir == str(folder)


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("model=qwen3-30b", ["model=qwen3-30b", "sampling.trials=N"]),
        ("tag=x", ["tag=x"]),
        ("run_dir=elsewhere", ["run_dir=elsewhere"]),
        ("sampling.trails=3", ["sampling.trails", "did you mean sampling.trials"]),
        ("sampling.trials=many", ["sampling.trials", "many"]),
        ("sampling.trials=0", ["sampling.trials=0"]),
        ("sampling.trials=[", ["sampling.trials=[", "quote"]),
        ("foo=1", ["foo", "no such key"]),
    ],
)
def test_a_folder_refuses_a_bad_setting_in_one_line(
    tmp_path: Path, override: str, named: list[str]
) -> None:
    with pytest.raises(UserError) as caught:
        compose.load_folder(written(tmp_path), [override])
    assert "\n" not in str(caught.value)
    for word in named:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1, 2]",
        "a: [",
        "sampling: {trails: 3}",
        "schema: {names: []}",
        "model: 3",
        "\x00",
        "sampling: {}",
    ],
)
def test_a_damaged_config_yaml_is_one_readable_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(UserError) as caught:
        compose.load_folder(tmp_path, [])
    assert "\n" not in str(caught.value)


def test_a_wrong_value_in_a_folder_names_its_file(tmp_path: Path) -> None:
    path = written(tmp_path) / "config.yaml"
    path.write_text(path.read_text().replace("top_p: 0.95", "top_p: 2"))
    with pytest.raises(UserError, match=f"{path}: sampling.top_p=2"):
        compose.load_folder(tmp_path, ["sampling.trials=3"])
    assert compose.load_folder(tmp_path, ["sampling.top_p=1"]).sampling.top_p == 1


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no run folder"):
        compose.load_folder(tmp_path, [])


def test_one_s_own_questions_have_a_verifier_if_it_is_asked_for_or_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    for own in (["dataset=jsonl", "dataset.path=q.csv"], ["dataset=hub", "dataset.path=a/b"]):
        assert compose.load(own).verifier.id is None
        for asked in ("verifier=compass-3b", "verifier.batch_size=8", "judge=all", "answer=judge"):
            assert compose.load([*own, asked]).verifier.name == "compass-3b"
    assert compose.load(["dataset=aime25"]).verifier.name == "compass-3b"
    assert compose.load([]).verifier.name == "demo"
    snapshot = tmp_path / "models--opencompass--CompassVerifier-3B" / "snapshots" / "c5d6"
    snapshot.mkdir(parents=True)
    assert compose.load(own).verifier.id is None
    (snapshot / "model.safetensors").touch()
    assert compose.load(own).verifier.name == "compass-3b"


def test_folders_that_differ_in_plain_values_are_read_by_one_merge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted, not timed; whatever else differs is read, or refused, as in a folder alone."""
    merges: list[int] = []
    merge = compose.OmegaConf.merge
    monkeypatch.setattr(compose.OmegaConf, "merge", lambda *a: merges.append(1) or merge(*a))
    plain = ("trials: 80", "trials: 7"), ("temperature: 0.6", "temperature: 0.7")
    other = ("trials: 80", "trials: many"), ("trials: 80", "trials: 0"), ("trials: 80", "trial: 8")
    other += (
        ("name: aime25", "name: ???"),
        ("name: aime25", r"name: \${x}"),
        ("stop: []", "stop: [a]"),
    )
    base = compose.dump(compose.load(["model=custom", "model.id=/m", "dataset=aime25"]))

    def read(number: int, text: str) -> str:
        folder = tmp_path / str(number)
        folder.mkdir(exist_ok=True)
        (folder / "config.yaml").write_text(text)
        compose._read.cache_clear()
        try:
            return repr(compose.load_folder(folder, []))
        except UserError as error:
            return str(error)

    compose._ANOTHER.clear()
    read(0, base)
    found = [read(i, base.replace(*of)) for i, of in enumerate(plain)]
    assert len(merges) == 1
    for i, of in enumerate((*plain, *other)):
        text = base.replace(*of)
        assert text != base
        compose._ANOTHER.clear()
        alone = read(i, text)
        compose._ANOTHER.clear()
        read(99, base)
        assert read(i, text) == alone and (i >= len(plain) or found[i] == alone)
