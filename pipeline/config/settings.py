"""What can be configured: one dataclass per group; what cannot work is in `problems.py`.

A YAML file in `configs/<group>/` fills one of these dataclasses. A key that is not here is an
error, so a misspelt override never passes in silence.
"""

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING

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
    replicas: int = 1  # processes that share the run, each with GPUs of its own (data parallel)
    tensor_parallel_size: int = 1  # GPUs of one replica
    gpu_memory_utilization: float = 0.9
    device: str | None = None  # transformers only: cpu, cuda, cuda:1, mps
    args: dict[str, Any] = field(default_factory=dict)


@dataclass
class GradingConfig:
    """How answers are compared with gold answers: limits for a pair, where known grades stay."""

    timeout_s: float = 3.0  # processor seconds
    memory_mb: int = 1024
    workers: int | None = None
    compat: str | None = None  # "math_verify": it alone judges the full text, to compare with
    cache: str | None = None  # folder of known grades; default: _grading beside the run folder


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
class RubricConfig:
    """The rubrics that attempts are mapped into, and weights other than those of their files."""

    names: list[str] = field(default_factory=list)  # names in configs/rubric or files; none: all
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
class CpuJobs:
    """What jobs that need no GPU ask for: grade, score, report."""

    partition: str | None = None  # default: the site's own
    time: str | None = "08:00:00"
    cpus: int = 8
    memory: str | None = "32G"
    options: list[str] = field(default_factory=list)


@dataclass
class ClusterConfig:
    """What `submit` asks Slurm for; a resource, it never changes what a run *is*."""

    name: str = "default"
    partition: str | None = None  # default: the site's own
    account: str | None = None
    qos: str | None = None  # of jobs with GPUs
    time: str | None = "24:00:00"  # of one task: HH:MM:SS or D-HH:MM:SS; null: the partition's
    gpus: int = 1  # of one task; 0: engines on the CPU
    cpus: int = 8  # of one task
    memory: str | None = "64G"  # of one task; "0": all of the node
    workers: int = 1  # array tasks a run is shared by
    max_running: int | None = None  # array tasks at once, over all runs
    warn_s: int = 300  # a task is told so long before its time is up
    setup: str = ""  # shell lines before the program: module loads, environments, LAUNCH=
    options: list[str] = field(default_factory=list)  # of sbatch, for jobs with GPUs
    cpu_jobs: CpuJobs = field(default_factory=CpuJobs)


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
    rubric: RubricConfig = field(default_factory=RubricConfig)
    thresholds: ThresholdsConfig = field(default_factory=ThresholdsConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    stages: list[str] = field(default_factory=lambda: list(STAGES))
    tag: str | None = None  # tells protocols of one model and data set apart
    run_dir: str = MISSING
