"""The typed configuration: what composes, what is refused, and what comes back from a folder."""

import functools
import math
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from helpers import settings
from hypothesis import given
from hypothesis import strategies as st

from bayes_at_n.pipeline import engines
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import ROOT
from bayes_at_n.pipeline.config import compose, trust
from bayes_at_n.pipeline.config.checks import validated
from bayes_at_n.pipeline.config.folder import dump, load_folder
from bayes_at_n.pipeline.config.resources import EngineConfig, VerifierEngineConfig
from bayes_at_n.pipeline.config.seeds import attempt_seed
from bayes_at_n.pipeline.config.settings import RunConfig, verifier_engine
from bayes_at_n.pipeline.workers import devices

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
NEEDS["card"] = ["model.card.temperature=1.0"]


@functools.cache
def composed(name: str) -> RunConfig:
    """A model with one of the datasets: every dataset has its turn.

    One model has a prompt of its own, which shows no options.
    """
    datasets, models = [*compose.files("dataset")], [*compose.files("model")]
    own = name.startswith("openreasoning")
    dataset = "aime25" if own else datasets[models.index(name) % len(datasets)]
    needs = NEEDS.get(name, []) + NEEDS.get(dataset, [])
    return compose.load([f"model={name}", f"dataset={dataset}", *needs])


def written(folder: Path, *overrides: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.yaml").write_text(dump(compose.load([*overrides])))
    return folder


@pytest.fixture(scope="module")
def one_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("run"), "model=custom", "model.id=a/b")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if i % 4 == 0 else pytest.mark.soak)
        for i, name in enumerate(compose.files("model"))
    ],
)
def test_every_model_composes(name: str) -> None:
    cfg = composed(name)
    assert cfg.run_dir == f"runs/{cfg.dataset.name}/{cfg.model.name}"
    assert cfg.model.id and cfg.dataset.path


@pytest.mark.parametrize("group", ["prompt", "sampling", "engine"])
def test_every_other_choice_composes(group: str) -> None:
    for name in compose.files(group):
        needs = NEEDS.get(name, [])
        assert getattr(compose.load([f"{group}={name}", *needs]), group).name == name


def test_the_twenty_models_of_the_paper() -> None:
    models = [composed(name).model for name in compose.files("model")]
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
    of_paper = [m for m in (composed(name).model for name in compose.files("model")) if m.table_id]
    assert not any(m.trust_remote_code for m in of_paper)
    assert all(model.name in compose.files("model") for model in of_paper)  # folders of runs
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
    found = verifier_engine(load_folder(written(tmp_path, *overrides), []))
    assert (found.name, found.device) == (name, device)


def test_a_short_key_is_of_the_outermost_group() -> None:
    cfg = compose.load(["tensor_parallel_size=2", "gpu_memory_utilization=0.7"])
    assert (cfg.engine.tensor_parallel_size, cfg.engine.gpu_memory_utilization) == (2, 0.7)
    assert cfg.verifier.engine == VerifierEngineConfig()


def test_an_unknown_engine_is_an_error_wherever_one_is_asked_for() -> None:
    cfg = compose.load([])
    cfg.engine.name = "transformer"  # settings refuse it before
    loads = [partial(load, longest=9) for load in (engines.load, engines.load_verifier)]
    for ask in (devices.on_gpus, *loads):
        with pytest.raises(UserError, match="did you mean transformers"):
            ask(cfg)


# Overrides that cannot be, and the keys that the line must name, with what else counts in it.
REFUSED = """
+foo=1: foo, known, model
foo=1: foo
sampling.trails=3: sampling.trails, sampling.trials
++sampling.trails=3: sampling.trails, sampling.trials
id=a/b: id, model.id
dataset.fields.problm=x: dataset.fields.problm, dataset.fields.problem
hydra.run.dir=x: hydra.run.dir
model@x=demo: model@x
model/foo=bar: model/foo
model=qwen3-31b: model=qwen3-31b, qwen3-30b
dataset=aime: dataset=aime, aime25
engine=vlm: engine=vlm, vllm
prompt=nope: prompt=nope, boxed
model=: model=, catalogue
model=null: model=null
model=[demo,demo]: model=[demo,demo]
~sampling.trials=3: sampling.trials
foo: foo, KEY=VALUE
=1: =1
': KEY=VALUE
prompt.template="a: prompt.template, quote
sampling.trials=1,2: sampling.trials
sampling.trials=???: sampling.trials
sampling.trials={a: 1}: sampling.trials
sampling.logprobs=maybe: sampling.logprobs, maybe
prompt.template=${foo}: prompt.template, foo, \\${
model=custom: model.id, model.id=VALUE
dataset=jsonl: dataset.path, dataset.path=VALUE
dataset.fields=x: dataset.fields
stages=grade,: stages, comma
scoring.metrics=[bayes,]: scoring.metrics, comma
"""
# Limits of values, in the order of the dataclasses.
LIMITS = """
model.id=null; model.dtype=float7; model.context=0; model.template_date=hello
model.chat_template_kwargs=3; model.name=a/b; dataset.name=a/b; dataset.limit=0
dataset.gold_after=' '; dataset.boxes=first; dataset.judge=some; dataset.answer=maths
dataset.fields.choices=[1]; dataset.conventions.lists=x; dataset.conventions.tolerance=-1
prompt.template=hello; prompt.kind=talk; prompt.system_role=boss; prompt.stop=['']
prompt.shots=-1; prompt.shots=2; prompt.shots_from=''; prompt.shuffle=all; prompt.shuffle=trial
prompt.shuffle_seed=-1
sampling.trials=0; sampling.trials=99999999999999999999; sampling.trials=many; sampling.trials=1.5
sampling.trials=''; sampling.trials=null; sampling.max_tokens=0; sampling.seed=-1
sampling.seed=99999999999999999999; sampling.seeds=own; sampling.temperature=hot
sampling.temperature=-0.1; sampling.temperature=nan; sampling.temperature=0; sampling.top_p=0
sampling.top_p=nan; sampling.top_k=0; engine.batch_size=0; engine.batch_size=2.5; engine.in_flight=0
engine.replicas=all; engine.tensor_parallel_size=null; engine.gpu_memory_utilization=1.5
engine.device=cpu; engine.name=sglang; engine.price_in=-1; engine.price_out=inf; engine.api=x
engine.allow_missing=[top_k]; engine.patience_s=inf; engine.timeout_s=0; engine.url=[http://h/v1]
verifier.id=''; verifier.prompt=''; verifier.kind=x; verifier.dtype=x
verifier.labels={correct: ''}; verifier.context=0; verifier.calibration=x; verifier.clip=0
verifier.content_free=[]; verifier.content_free=[a,a]; verifier.average=x; verifier.temperature=0
verifier.least_mass=1; verifier.batch_size=0; verifier.engine.name=transformer
verifier.engine.batch_size=3; verifier.engine.tensor_parallel_size=0; verifier.engine.device=cpu
verifier.engine.gpu_memory_utilization=0; verifier.engine.replicas=0; labels.file=''
labels.sample=0
grading.timeout_s=0; grading.memory_mb=255; grading.workers=0; grading.compat=x
scoring.confidence=95; scoring.metrics=[pass@0]; scoring.metrics=[pas@2]; scoring.prior=x
scoring.caps=[0]; scoring.forecast=0; prior.trials=3; prior.weight=0; rubric.names=['']
thresholds.file=''; thresholds.scope=all; cluster.time=90; cluster.cpus=0; cluster.memory=lots
cluster.partition='a b'; cluster.account=''; cluster.qos='a b'; cluster.options=[x]; cluster.gpus=-1
cluster.workers=0; cluster.max_running=0; cluster.warn_s=0; cluster.warn_s=86400
cluster.cpu_jobs.time=90; budget.tokens=-1; budget.gpu_hours=inf; budget.money=nan; budget.money=3
budget.until=soon; track.to=[x]; track.project=''; stages=[prepare,genrate]; stages=[]; trust=maybe
"""
TOGETHER = [  # that are refused together: the line begins with the key of the last
    "verifier.prompt=official verifier.official.sha256=x",
    "engine=transformers verifier.engine.tensor_parallel_size=2",
    "engine=transformers engine.tensor_parallel_size=2",
    "engine=transformers engine.batch_invariant=true",
    "engine=openai engine.url=http://h/v1 budget.gpu_hours=3",
    "engine=openai engine.url=http://h/v1 engine.args.seed=3",
    "engine=openai engine.url=http://h/v1 engine.replicas=2",
    "verifier=none dataset.judge=all",
    "dataset.judge=unmatched verifier.fit_temperature=true",
    "dataset.judge=unmatched verifier.fit_temperature=true",
    "prompt.stop=[a] engine.args.stop=3",
]
ALONE = [limit.strip() for line in LIMITS.splitlines() for limit in line.split(";") if limit]


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(UserError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message and len(message) < 700
    return message


@pytest.mark.parametrize("line", REFUSED.strip().splitlines())
def test_a_bad_setting_is_one_line_that_names_it(line: str) -> None:
    override, _, named = line.rpartition(": ")
    message = refused(lambda: compose.load([override]))
    assert all(word in message for word in named.split(", "))


@pytest.mark.parametrize("settings", TOGETHER)
def test_settings_that_exclude_each_other(settings: str) -> None:
    key = settings.split()[-1].partition("=")[0]
    assert key in refused(lambda: compose.load(settings.split()))


@pytest.mark.parametrize("limit", ALONE)
def test_a_value_outside_its_limits_is_named_by_its_full_key(limit: str, one_run: Path) -> None:
    assert refused(lambda: load_folder(one_run, [limit])).startswith(limit.partition("=")[0])


def test_three_problems_are_said_at_once_and_the_rest_counted() -> None:
    bad = {"sampling": dict.fromkeys(("trials", "top_p", "top_k", "seed", "max_tokens"), -1)}
    said = refused(lambda: validated(RunConfig, bad))
    assert all(f"sampling.{key}=-1" in said for key in ("trials", "top_p")) and "2 more" in said


ODD = "1e3 1_0 0100 1.50 yes null ~ - : a:b 2025-09-01 24:00:00 0x1F .inf <<= ${a} \\${a} \x85"
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.sampled_from(
    ODD.split(" ")
)
FLOATS = st.floats(allow_nan=False) | st.sampled_from([1e3, 1e16, 1e-7, 1e300, math.inf])
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | FLOATS | TEXTS,
    lambda part: st.lists(part, max_size=3) | st.dictionaries(TEXTS, part, max_size=3),
    max_leaves=6,
)


@hypothesis.settings(
    max_examples=hypothesis.settings.default.max_examples // 5
)  # each composes twice
@given(TEXTS, FLOATS, st.lists(TEXTS, max_size=3), st.dictionaries(TEXTS, ANY, max_size=3), ANY)
def test_a_folder_gives_back_what_was_written(
    tmp_path_factory: pytest.TempPathFactory,
    text: str,
    number: float,
    several: list[str],
    free: dict[str, Any],
    nested: Any,
) -> None:
    folder = tmp_path_factory.mktemp("run")
    cfg = settings(f"run_dir={folder}")
    cfg.prompt.template, cfg.prompt.prefix = f"{{problem}} {text}", text
    cfg.prompt.stop = [one for one in several if one]
    cfg.grading.timeout_s = abs(number) or 1.0
    cfg.model.chat_template_kwargs, cfg.model.engine_args = free, {"x": nested}
    whole = dump(cfg)
    (folder / "config.yaml").write_bytes(f"# {trust.sign(whole)}\n{whole}".encode())
    assert load_folder(folder, []) == cfg


HOSTILE = {  # a file, and what the line must name; empty: what it says stays a text
    "": "",
    "[1, 2]": "",
    "a: [": "",
    "\0": "",
    "sampling: {trails: 3}": "sampling.trails",
    "model: 3": "model",
    "sampling: {}": "model.name",
    "a: &a [x, x]\nb: [*a, *a]": "line 2: has an alias",
    "a: " + "[" * 60_000: "too many levels",
    "- " * 60_000: "",
    "a: " + "x" * 140_000: "bytes",
    "a: !!python/object/apply:os.system [x]": "a tag",
    "tag: " + "9" * 5000: "",
}


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_config_yaml_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.yaml").write_text(text)
    message = refused(lambda: load_folder(tmp_path, []))
    assert message.startswith(str(tmp_path)) and HOSTILE[text] in message


def test_nothing_in_a_folder_is_interpolated(tmp_path: Path) -> None:
    path = written(tmp_path, "tag=x") / "config.yaml"
    path.write_text(path.read_text().replace("tag: x", "tag: ${oc.env:HOME}"))
    assert load_folder(tmp_path, []).tag == "${oc.env:HOME}"
    assert load_folder(tmp_path, ["prompt.prefix=\\${x}"]).prompt.prefix == "${x}"


def test_a_folder_takes_single_keys(tmp_path: Path) -> None:
    folder = written(tmp_path)
    cfg = load_folder(
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
        ("model=qwen3-30b", "model=qwen3-30b"),
        ("tag=x", "tag=x"),
        ("run_dir=elsewhere", "run_dir=elsewhere"),
        ("sampling.trails=3", "sampling.trials"),
        ("sampling.trials=[", "sampling.trials=["),
        ("foo=1", "foo"),
        ("~sampling.trials=1", "~sampling.trials"),
    ],
)
def test_a_folder_refuses_a_bad_setting_in_one_line(
    one_run: Path, override: str, named: str
) -> None:
    assert named in refused(lambda: load_folder(one_run, [override]))


def test_a_wrong_value_in_a_folder_names_its_file(tmp_path: Path) -> None:
    path = written(tmp_path) / "config.yaml"
    path.write_text(path.read_text().replace("top_p: 0.95", "top_p: 2", 1))
    with pytest.raises(UserError, match=f"{path}: sampling.top_p=2"):
        load_folder(tmp_path, ["sampling.trials=3"])
    assert load_folder(tmp_path, ["sampling.top_p=1"]).sampling.top_p == 1


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a run folder"):
        load_folder(tmp_path, [])


def test_one_s_own_questions_have_a_verifier_if_it_is_asked_for() -> None:
    for own in (["dataset=jsonl", "dataset.path=q.csv"], ["dataset=hub", "dataset.path=a/b"]):
        assert compose.load(own).verifier.id is None
        for asked in ("verifier=compass-3b", "verifier.batch_size=8", "judge=all", "answer=judge"):
            assert compose.load([*own, asked]).verifier.name == "compass-3b"
    assert compose.load(["dataset=aime25"]).verifier.name == "compass-3b"
    assert compose.load([]).verifier.name == "demo"
