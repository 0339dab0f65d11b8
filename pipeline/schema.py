"""What can be configured: one dataclass per group, and the combinations that cannot work.

A YAML file in `configs/<group>/` fills one of these dataclasses. A key that is not here is an
error, so a misspelt override never passes in silence.
"""

import datetime
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, get_args, get_type_hints

from omegaconf import MISSING

from verifiers import Conventions, Policy

DTYPES = ("auto", "bfloat16", "float16", "float32")
MOST_TRIALS = 1_000_000  # a slip of the finger, not a protocol
STAGES = ("prepare", "generate", "grade", "verify", "signals", "categorize", "score")


@dataclass
class ModelConfig:
    """A generator model: where its weights are and how its chat template is called."""

    name: str = MISSING
    id: str = MISSING  # Hugging Face hub id, or a local folder
    revision: str | None = None
    checkpoint: str | None = None  # one of a family, for an `id` that interpolates it
    table_id: int | None = None  # the paper's Table 6
    short_name: str | None = None
    dtype: str = "bfloat16"
    context: int | None = None  # tokens; default: the model's own config
    trust_remote_code: bool = False
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    template_date: str | None = None  # YYYY-MM-DD, for templates that print today's date
    system: str | None = None
    reasoning_end: str | None = "</think>"  # the answer is looked for after this marker
    skip_special_tokens: bool = True
    engine_args: dict[str, Any] = field(default_factory=dict)


@dataclass
class FieldNames:
    """The columns or JSON keys of a data set that hold each part of a question."""

    id: str | None = "id"
    problem: str = "problem"
    answer: str = "answer"


@dataclass
class ConventionsConfig:
    """What counts as the same answer where mathematics leaves it open: verifiers.Conventions."""

    lists: str = "unordered"  # or "ordered": `1,2` is not `2,1`
    units: str = "optional"  # or "required"
    decimals: str = "exact"  # or "rounded": 0.333 may stand for 1/3
    percent: str = "hundredth"  # or "either": 2% may stand for 2


@dataclass
class DatasetConfig:
    """Questions with gold answers: a JSON Lines file or a Hugging Face data set."""

    name: str = MISSING
    path: str = MISSING  # a .jsonl file, or a hub id
    subset: str | None = None
    split: str = "test"
    revision: str | None = None
    fields: FieldNames = field(default_factory=FieldNames)
    limit: int | None = None  # only the first so many questions
    boxes: str = "last"  # which boxes are the answer: last, all (several parts) or or_math
    conventions: ConventionsConfig = field(default_factory=ConventionsConfig)


@dataclass
class PromptConfig:
    """How a problem becomes the user's turn; `{problem}` stands for the problem text."""

    name: str = MISSING
    template: str = MISSING
    system_role: str = "system"  # "user": put the system text in front of the user's turn


@dataclass
class SamplingConfig:
    """The sampling protocol; trial i uses seed `seed + i`."""

    name: str = MISSING
    trials: int = 80
    temperature: float = 0.6
    top_p: float = 0.95
    top_k: int | None = None
    max_tokens: int = 32768
    seed: int | None = 1234
    logprobs: bool = True
    prompt_logprobs: bool = True


@dataclass
class EngineConfig:
    """The program that samples, and its resources (these never change what a run *is*)."""

    name: str = MISSING
    batch_size: int = 256  # sequences that run at once
    in_flight: int | None = None  # requests with the engine; vLLM only, default three batches
    tensor_parallel_size: int = 1
    gpu_memory_utilization: float = 0.9
    device: str | None = None  # transformers only: cpu, cuda, cuda:1, mps
    args: dict[str, Any] = field(default_factory=dict)


@dataclass
class GradingConfig:
    """How answers are compared with gold answers: limits for one pair, and where verdicts stay."""

    timeout_s: float = 3.0  # processor seconds
    memory_mb: int = 1024
    workers: int | None = None
    compat: str | None = None  # "math_verify": it alone judges the full text, to compare with
    cache: str | None = None  # folder of known verdicts; default: _grading beside the run folder


@dataclass
class ScoringConfig:
    """What the score table shows."""

    confidence: float = 0.95
    pass_k: list[int] = field(default_factory=lambda: [1, 2, 4, 8])
    empirical_bayes: bool = False  # a row with the prior that the questions share (docs/scoring.md)


@dataclass
class PriorConfig:
    """Another run of the same questions whose first `trials` trials act as the prior R0."""

    run: str | None = None
    trials: int | None = None


@dataclass
class SchemaConfig:
    """The rubrics that attempts are mapped into, and weights other than those of their files."""

    names: list[str] = field(default_factory=list)  # names in configs/schema or files; none: all
    weights: dict[str, Any] = field(default_factory=dict)  # per name a list, one a category


@dataclass
class ThresholdsConfig:
    """The quantiles that rubrics compare with: of which attempts, or frozen in a file."""

    file: str | None = None  # a thresholds.json that `categorize` wrote
    scope: str = "model"  # this run, or "cohort": all runs of the data set beside it
    include_invalid: bool = True  # whether invalid attempts enter the quantiles


@dataclass
class LabelTokens:
    """What a verifier answers for each label: one token each, in the order of columns a, b, c."""

    correct: str = "A"
    incorrect: str = "B"
    invalid: str = "C"  # cut off, in circles, off the question, refused


@dataclass
class VerifierConfig:
    """The model that judges attempts, how it is asked, and how its answer is calibrated."""

    name: str = "compass-3b"
    id: str | None = "opencompass/CompassVerifier-3B"  # hub id or local folder; null: none
    revision: str | None = None
    prompt: str = "compass"  # prompts/verifier/NAME.txt, or the path of a file
    labels: LabelTokens = field(default_factory=LabelTokens)
    dtype: str = "bfloat16"
    context: int | None = None  # tokens; default: the model's own config
    trust_remote_code: bool = False
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    content_free: list[str] = field(default_factory=lambda: ["N/A", "", "[MASK]"])
    average: str = "probability"  # of the baselines over content_free; or "logit"
    temperature: float = 1.5
    fit_temperature: bool = False  # to the grader's outcomes, tried on questions held out
    least_mass: float = 0.5  # mean probability of the labels under which the stage stops
    batch_size: int = 256  # prompts that run at once


@dataclass
class RunConfig:
    """One run: a data set, a model and a sampling protocol, and how to execute it."""

    model: ModelConfig = field(default_factory=ModelConfig)
    dataset: DatasetConfig = field(default_factory=DatasetConfig)
    prompt: PromptConfig = field(default_factory=PromptConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    verifier: VerifierConfig = field(default_factory=VerifierConfig)
    grading: GradingConfig = field(default_factory=GradingConfig)
    scoring: ScoringConfig = field(default_factory=ScoringConfig)
    prior: PriorConfig = field(default_factory=PriorConfig)
    schema: SchemaConfig = field(default_factory=SchemaConfig)
    thresholds: ThresholdsConfig = field(default_factory=ThresholdsConfig)
    stages: list[str] = field(default_factory=lambda: list(STAGES))
    tag: str | None = None  # tells protocols of one model and data set apart
    run_dir: str = MISSING


def problems(cfg: RunConfig) -> Iterator[str]:
    """One line for every value or combination that cannot work."""
    s, e = cfg.sampling, cfg.engine
    at_least_one = {
        "sampling.trials": s.trials,
        "sampling.max_tokens": s.max_tokens,
        "engine.batch_size": e.batch_size,
        "engine.in_flight": e.in_flight,
        "engine.tensor_parallel_size": e.tensor_parallel_size,
        "dataset.limit": cfg.dataset.limit,
        "prior.trials": cfg.prior.trials,
        "grading.workers": cfg.grading.workers,
        "model.context": cfg.model.context,
        "verifier.context": cfg.verifier.context,
        "verifier.batch_size": cfg.verifier.batch_size,
    }
    for key, value in at_least_one.items():
        if value is not None and value < 1:
            yield f"{key}={value}: must be at least 1"
    yield from _bad_text(cfg)
    if s.trials > MOST_TRIALS:
        yield f"sampling.trials={s.trials}: must be at most {MOST_TRIALS}"
    if s.seed is not None and not 0 <= s.seed < 1 << 62:
        yield f"sampling.seed={s.seed}: must be 0 or a larger 62-bit number, or null for no seeds"
    if not 0 <= s.temperature <= 2:
        yield f"sampling.temperature={s.temperature}: must lie between 0 and 2"
    if s.temperature == 0 and s.trials > 1:
        yield (
            f"sampling.temperature=0 with sampling.trials={s.trials}: greedy decoding gives the"
            " same attempt every time; set sampling.trials=1 or a temperature above 0"
        )
    if not 0 < s.top_p <= 1:
        yield f"sampling.top_p={s.top_p}: must lie in (0, 1]"
    if s.top_k is not None and s.top_k < 1:
        yield f"sampling.top_k={s.top_k}: must be at least 1, or null for no limit"
    if not 0 < e.gpu_memory_utilization <= 1:
        yield f"engine.gpu_memory_utilization={e.gpu_memory_utilization}: must lie in (0, 1]"
    if e.name not in ("vllm", "transformers"):
        yield f"engine.name={e.name}: there are two engines, vllm and transformers"
    if e.name == "transformers" and e.tensor_parallel_size > 1:
        yield (
            f"engine.tensor_parallel_size={e.tensor_parallel_size} with engine=transformers:"
            " only engine=vllm splits a model; set it to 1 or choose engine=vllm"
        )
    if e.name == "vllm" and e.device is not None:
        yield (
            f"engine.device={e.device} with engine=vllm: vLLM takes the device it was built for"
            " (choose GPUs with CUDA_VISIBLE_DEVICES); engine.device is for engine=transformers"
        )
    if "{problem}" not in cfg.prompt.template:
        yield "prompt.template: must contain {problem}, where the problem text goes"
    if cfg.prompt.system_role not in ("system", "user"):
        yield f"prompt.system_role={cfg.prompt.system_role}: must be system or user"
    unknown = [stage for stage in cfg.stages if stage not in STAGES]
    if not cfg.stages:
        yield f"stages=[]: nothing to do; name some of {', '.join(STAGES)}"
    if unknown:
        yield f"stages: unknown {', '.join(unknown)}; there are {', '.join(STAGES)}"
    if not 0 < cfg.scoring.confidence < 1:
        yield f"scoring.confidence={cfg.scoring.confidence}: must lie between 0 and 1"
    if any(k < 1 for k in cfg.scoring.pass_k):
        yield f"scoring.pass_k={list(cfg.scoring.pass_k)}: every k must be at least 1"
    if cfg.prior.trials is not None and cfg.prior.run is None:
        yield f"prior.trials={cfg.prior.trials} without prior=RUN: name the run folder to use"
    yield from _bad_grading(cfg)
    yield from _bad_rubrics(cfg)
    yield from _bad_verifier(cfg.verifier)


def _bad_text(cfg: RunConfig) -> Iterator[str]:
    if not cfg.run_dir.strip():
        yield "run_dir: is empty; name a folder, or leave it out for runs/DATASET/MODEL"
    parts = {"model.name": cfg.model.name, "dataset.name": cfg.dataset.name, "tag": cfg.tag}
    for key, name in parts.items():  # each becomes part of a path
        if name is not None and (name.strip() in ("", ".", "..") or {"/", "\0"} & set(name)):
            yield f"{key}={name}: becomes part of a folder's name, so it takes no / and no .."
    if cfg.model.dtype not in DTYPES:
        yield f"model.dtype={cfg.model.dtype}: choose from {', '.join(DTYPES)}"
    try:
        datetime.date.fromisoformat(cfg.model.template_date or "2025-01-01")
    except ValueError:
        yield f"model.template_date={cfg.model.template_date}: no date; write YYYY-MM-DD"


def _bad_grading(cfg: RunConfig) -> Iterator[str]:
    g = cfg.grading
    if not g.timeout_s > 0 or g.memory_mb < 256:
        yield "grading: timeout_s must be positive and memory_mb at least 256"
    if g.compat not in (None, "math_verify"):
        yield f"grading.compat={g.compat}: must be math_verify, or null for our own grader"
    if g.cache is not None and not g.cache.strip():
        yield "grading.cache: is empty; name a folder, or leave it out for _grading beside the run"
    if cfg.dataset.boxes not in get_args(Policy):
        known = ", ".join(get_args(Policy))
        yield f"dataset.boxes={cfg.dataset.boxes}: must be one of {known}"
    for name, kind in get_type_hints(Conventions).items():
        value = getattr(cfg.dataset.conventions, name)
        if value not in get_args(kind):
            known = " or ".join(get_args(kind))
            yield f"dataset.conventions.{name}={value}: must be {known}"


def _bad_verifier(v: VerifierConfig) -> Iterator[str]:
    if v.id is not None and not v.id.strip():
        yield "verifier.id: is empty; give a hub id or a folder, or verifier=none for no verifier"
    if v.dtype not in DTYPES:
        yield f"verifier.dtype={v.dtype}: choose from {', '.join(DTYPES)}"
    if not v.prompt.strip():
        yield "verifier.prompt: is empty; name a file of prompts/verifier, or give a path"
    tokens = [v.labels.correct, v.labels.incorrect, v.labels.invalid]
    if "" in tokens or len(set(tokens)) < len(tokens):
        yield f"verifier.labels: {', '.join(map(repr, tokens))}: must be three different texts"
    if not v.content_free or len(set(v.content_free)) < len(v.content_free):
        yield (
            f"verifier.content_free={list(v.content_free)}: must be at least one text, each once,"
            ' such as ["N/A", "", "[MASK]"]'
        )
    if v.average not in ("probability", "logit"):
        yield f"verifier.average={v.average}: must be probability or logit"
    if not 0 < v.temperature < float("inf"):
        yield f"verifier.temperature={v.temperature}: must be positive and finite"
    if not 0 <= v.least_mass < 1:
        yield f"verifier.least_mass={v.least_mass}: must lie in [0, 1)"


def _bad_rubrics(cfg: RunConfig) -> Iterator[str]:
    t = cfg.thresholds
    if t.scope not in ("model", "cohort"):
        yield f"thresholds.scope={t.scope}: must be model (this run) or cohort (all beside it)"
    if t.file is not None and not t.file.strip():
        yield "thresholds.file: is empty; name a thresholds.json, or leave it out"
    if any(not name.strip() for name in cfg.schema.names):
        yield "schema.names: a name is empty; name files of configs/schema, or leave it out for all"
