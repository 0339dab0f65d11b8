"""The settings of a run: one dataclass per group, with what its values may be.

A YAML file in `configs/<group>/` fills one of these dataclasses. A key that is not here is an
error, so a misspelt override never passes in silence.
"""

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

from pydantic import Field

from bayes_at_n.pipeline.base.engines import kind
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import PACKAGES
from bayes_at_n.pipeline.config.checks import (
    MISSING,
    Above0,
    Amount,
    FolderName,
    Named,
    Positive,
    Seed,
    Share,
    Trust,
    must,
    one_of,
)
from bayes_at_n.pipeline.config.resources import (
    BudgetConfig,
    ClusterConfig,
    EngineConfig,
    VerifierEngine,
    VerifierEngineConfig,
)
from bayes_at_n.pipeline.config.scoring import (
    PriorConfig,
    RubricConfig,
    ScoringConfig,
    ThresholdsConfig,
)
from bayes_at_n.verifiers.answers import own
from bayes_at_n.verifiers.maths.boxed import Policy
from bayes_at_n.verifiers.maths.conventions import Conventions

OFFICIAL = "official"  # the verifier.prompt that is fetched
FOLDER = PACKAGES / "prompts" / "verifier"
FIELDS = ("question", "gold", "response", "answer")  # of a prompt, as the project names them
TRACKERS = ("wandb", "mlflow", "trackio")
PROJECT = "bayes-at-n"
STAGES = ("prepare", "generate", "grade", "verify", "categorize", "score")
Dtype = Annotated[str, one_of("auto", "bfloat16", "float16", "float32")]
Stages = Annotated[list[Annotated[str, one_of(*STAGES)]], Field(min_length=1)]
Kind = Annotated[str, one_of("chat", "plain")]  # a user's turn of the chat template; the text alone
_reads = {name: one_of(*get_args(hint)) for name, hint in get_type_hints(Conventions).items()}


def _are_columns(names: Any) -> bool:
    return all(isinstance(n, str) for n in (names if isinstance(names, list) else [names or ""]))


@dataclass
class ModelConfig:
    """A generator model: where its weights are and how its chat template is called."""

    key = "model"  # where these settings stand, for messages
    name: FolderName = MISSING
    id: str = MISSING  # Hugging Face hub id, or a local folder; of a server, any name
    tokenizer: str | None = None  # hub id or folder, where it is not the model's own
    check_tokens: bool = True  # whether the token ids of prompts must decode to their texts
    revision: str | None = None
    checkpoint: str | None = None  # one of a family, for an `id` that interpolates it
    table_id: int | None = None  # the paper's Table 6
    short_name: str | None = None
    dtype: Dtype = "bfloat16"
    context: Positive | None = None  # tokens; default: the model's own config
    trust_remote_code: bool = False
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    template_date: Annotated[str, must("a date, YYYY-MM-DD", date.fromisoformat)] | None = None
    system: str | None = None
    reasoning_end: str | None = "</think>"  # the answer is looked for after this marker
    skip_special_tokens: bool = True
    engine_args: dict[str, Any] = field(default_factory=dict)


class VerifierModel(ModelConfig):
    """The verifier in the place of the model."""

    key = "verifier"


@dataclass
class FieldNames:
    """The columns or JSON keys of a data set that hold each part of a question."""

    id: str | None = "id"
    problem: str = "problem"
    solution: str = "solution"  # of examples, where prompt.solved shows it
    form: str | None = None  # "strict" in it: an answer must have the form of the gold answer
    answer: str = "answer"  # of multiple choice a letter, an index from 0, or an option's text
    choices: Annotated[Any, must("a column's name, or a list of them", _are_columns)] = None


@dataclass
class ConventionsConfig:
    """What counts as the same answer where its kind leaves it open: verifiers.Conventions."""

    lists: Annotated[str, _reads["lists"]] = "unordered"  # ordered: `1,2` is not `2,1`
    units: Annotated[str, _reads["units"]] = "optional"
    decimals: Annotated[str, _reads["decimals"]] = "exact"  # rounded: 0.333 is 1/3
    percent: Annotated[str, _reads["percent"]] = "hundredth"  # either: 2% may stand for 2
    tolerance: Amount = 0.0  # of answer=number
    relative: Amount = 0.0  # share of the gold answer; the larger counts
    text: Annotated[str, _reads["text"]] = "space"  # of answer=exact and regex


@dataclass
class DatasetConfig:
    """Questions with gold answers: a file, or a Hugging Face data set."""

    name: FolderName = MISSING
    path: str = MISSING  # a file, JSON Lines or array, CSV or Parquet; or a hub id
    subset: str | None = None
    split: str = "test"
    revision: str | None = None
    fields: FieldNames = field(default_factory=FieldNames)
    gold_after: Named | None = None  # the gold answer follows its last mark
    limit: Positive | None = None  # only the first so many questions
    # The kind of answer: a name of verifiers.KINDS; of python python:FILE.py:function. And judge:
    # math, where the verifier decides.
    answer: str = "math"
    # Which are the answer; auto: the last, or those that close the text, if the gold has parts.
    boxes: Annotated[str, one_of(*get_args(Policy))] = "auto"
    pattern: str | None = None  # of answer=regex: its group is the answer
    conventions: ConventionsConfig = field(default_factory=ConventionsConfig)
    # The verifier decides: unmatched: what the rule grader does not accept; all: every answer.
    judge: Annotated[str, one_of("unmatched", "all")] | None = None

    def __post_init__(self) -> None:
        if self.answer == "judge":
            self.answer, self.judge = "math", self.judge or "all"

    def problems(self) -> Iterator[str]:
        if (self.answer, self.pattern, self.conventions) != ("math", None, ConventionsConfig()):
            from bayes_at_n.verifiers.answers.kinds import problems  # a tenth of a second

            yield from problems(self.answer, self.pattern, Conventions(**asdict(self.conventions)))

    def grader(self) -> tuple[str, str | None]:
        """The kind of answer; of a user's own grader where its file is, and the hash of that.

        Raises UserError: it is not there.
        """
        if not self.answer.startswith("python:"):
            return self.answer, None
        try:
            return own.resolved(self.answer)
        except ValueError as error:
            raise UserError(f"dataset.answer={self.answer}: {error}") from error


@dataclass
class PromptConfig:
    """How a problem becomes what the model sees; `{problem}` stands for the problem text."""

    name: str = MISSING
    template: str = MISSING
    kind: Kind = "chat"
    prefix: str = ""  # how the answer begins: the model goes on, and it is graded with the rest
    stop: list[Annotated[str, Field(min_length=1)]] = field(default_factory=list)  # end an attempt
    shots: Annotated[int, Field(ge=0, le=1000)] = 0  # solved examples in front of the question
    shots_from: Named | None = None  # a file, or a split of the data set
    shots_seed: int | None = None  # their order; null: as they come
    solved: str = "{solution}"  # an example's answer, with {solution} or {answer} of its row
    system_role: Annotated[str, one_of("system", "user")] = "system"  # user: before the user's turn
    # The order of `{choices}`: as the data set has it, one for each question, or for each attempt.
    shuffle: Annotated[str, one_of("none", "question", "trial")] = "none"
    shuffle_seed: Seed = 0

    def problems(self) -> Iterator[str]:
        if "{problem}" not in self.template:
            yield "template: must contain {problem}, where the problem text goes"
        if self.shots and self.shots_from is None:
            yield f"shots={self.shots}: from where? prompt.shots_from=FILE.jsonl, or a split"
        if self.shots and not ("{solution}" in self.solved or "{answer}" in self.solved):
            yield "solved: must contain {solution} or {answer}, or no example shows one"


@dataclass
class SamplingConfig:
    """The sampling protocol."""

    name: str = MISSING
    trials: Annotated[int, Field(ge=1, le=10**6)] = 80  # more is a slip of the finger
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.6
    top_p: Share = 0.95
    top_k: Positive | None = None  # null: no limit
    max_tokens: Positive = 32768
    seed: Seed | None = 1234  # null: none; of 62 bits
    # Of an attempt, see `config/seeds.py`; run folders that do not say it are `shared`.
    seeds: Annotated[str, one_of("shared", "independent")] = "shared"
    logprobs: bool = True
    prompt_logprobs: bool = True

    def problems(self) -> Iterator[str]:
        if self.temperature == 0 and self.trials > 1:
            yield "temperature=0: greedy attempts are all alike; set sampling.trials=1"


@dataclass
class GradingConfig:
    """How answers are compared with gold answers: limits for a pair."""

    timeout_s: Annotated[float, Field(gt=0)] = 3.0  # processor seconds
    memory_mb: Annotated[int, Field(ge=256)] = 1024
    workers: Positive | None = None
    # Instead of our own grader math_verify alone judges the full text, to compare with.
    compat: Annotated[str, one_of("math_verify")] | None = None


@dataclass
class LabelTokens:
    """What a verifier answers for each label: one token each, in the order of columns a, b, c."""

    correct: str = "A"
    incorrect: str = "B"
    invalid: str | None = "C"  # cut off, in circles, off the question, refused; null: it has none


@dataclass
class OfficialPrompt:
    """A text in a Python file of a public GitHub repository, at one commit; `prefetch` has it."""

    file: str | None = None  # OWNER/NAME/COMMIT/PATH; null: there is none
    sha256: str = ""  # of the file
    name: str = ""  # of the text in it
    fields: dict[str, str] = field(default_factory=dict)  # what its fields are here
    fallback: str | None = None  # the verifier.prompt until `prefetch` has it; null: none

    def __str__(self) -> str:
        return f"{self.file}:{self.name}"


@dataclass
class VerifierConfig:
    """The model that judges attempts, how it is asked, and how its answer is calibrated."""

    key = "verifier"
    name: str = "compass-3b"
    id: Named | None = "opencompass/CompassVerifier-3B"  # or a local folder; null: none
    tokenizer: str | None = None  # these two as those of the model
    check_tokens: bool = True
    revision: str | None = None
    prompt: Named = "compass"  # official, prompts/verifier/NAME.txt, or a path
    official: OfficialPrompt = field(default_factory=OfficialPrompt)
    kind: Kind = "chat"
    prefix: str = ""  # how the answer begins; the label comes next
    labels: LabelTokens = field(default_factory=LabelTokens)
    dtype: Dtype = "bfloat16"
    context: Positive | None = None  # tokens; default: the model's own config
    trust_remote_code: bool = False
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    calibration: Annotated[str, one_of("contextual", "question", "graded", "none")] = "contextual"
    clip: Above0 | None = 1.0  # nats; null: the formula as printed, all of it and of C, too
    content_free: Annotated[
        list[str], Field(min_length=1), must("each once", lambda texts: len({*texts}) == len(texts))
    ] = field(default_factory=lambda: ["N/A", "", "[MASK]"])
    average: Annotated[str, one_of("probability", "logit")] = "probability"  # of the baselines
    temperature: Above0 = 1.5
    fit_temperature: bool = False  # to labels of people
    least_mass: Annotated[float, Field(ge=0, lt=1)] = 0.5  # of labels; under it the stage stops
    batch_size: Positive = 256  # prompts that run at once
    engine: VerifierEngineConfig = field(default_factory=VerifierEngineConfig)

    def problems(self) -> Iterator[str]:
        tokens = [self.labels.correct, self.labels.incorrect, self.labels.invalid]
        if "" in tokens or len(set(tokens)) < len(tokens):
            yield f"labels: {', '.join(map(repr, tokens))}: must be three different texts"
        if self.prompt == OFFICIAL and not re.fullmatch("[0-9a-f]{64}", self.official.sha256):
            yield f"official.sha256={self.official.sha256}: prompt=official needs one, of 64 digits"

    def form(self) -> dict[str, str]:
        """What makes its prompt, where that is not as it was before there was a choice."""
        form = {"kind": self.kind, "prefix": self.prefix}
        own = {"tokenizer": self.tokenizer} if self.tokenizer else {}
        return own | ({} if form == {"kind": "chat", "prefix": ""} else form)


@dataclass
class LabelsConfig:
    """What people say of attempts: `verify` draws a sample for them, and reads what they said."""

    file: Named | None = None  # JSON Lines with question_id, trial, correct
    sample: Positive | None = None  # so many attempts go to labels.jsonl


@dataclass
class TrackConfig:
    """Where a run is shown while it is made; addresses and keys are settings of the libraries."""

    to: list[Annotated[str, one_of(*TRACKERS)]] = field(default_factory=list)
    project: Named = PROJECT


@dataclass
class RunConfig:
    """One run: a data set, a model and a sampling protocol, and how to execute it."""

    model: ModelConfig = field(default_factory=ModelConfig)
    dataset: DatasetConfig = field(default_factory=DatasetConfig)
    prompt: PromptConfig = field(default_factory=PromptConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    verifier: VerifierConfig = field(default_factory=VerifierConfig)
    labels: LabelsConfig = field(default_factory=LabelsConfig)
    grading: GradingConfig = field(default_factory=GradingConfig)
    scoring: ScoringConfig = field(default_factory=ScoringConfig)
    prior: PriorConfig = field(default_factory=PriorConfig)
    rubric: RubricConfig = field(default_factory=RubricConfig)
    thresholds: ThresholdsConfig = field(default_factory=ThresholdsConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    budget: BudgetConfig = field(default_factory=BudgetConfig)
    track: TrackConfig = field(default_factory=TrackConfig)
    stages: Stages = field(default_factory=lambda: [*STAGES])
    trust_parts: bool = False  # take back attempts that another model may have made; not kept
    race: Named | None = None  # of `settle`: the file that says what it wants by now; not kept
    tag: FolderName | None = None  # tells protocols of one model and data set apart
    trust: Trust = "false"  # use what a folder says (`trust.py`); never kept
    run_dir: Named = MISSING

    def problems(self) -> Iterator[str]:
        columns, template = self.dataset.fields.choices, self.prompt.template
        engine, judge, verifier = self.engine, self.dataset.judge, self.verifier
        budget, of = self.budget, kind(self.engine.name)
        if columns and "{choices}" not in template:
            yield "prompt.template: must contain {choices}, for the options (prompt=choice does)"
        if not columns and ("{choices}" in template or self.prompt.shuffle != "none"):
            yield "prompt.shuffle, prompt.template: {choices} needs dataset.fields.choices"
        if self.prompt.stop and "stop" in engine.args:
            yield "engine.args.stop: leave it out; prompt.stop says it"
        yield from (f"verifier.engine.{line}" for line in verifier_engine(self).problems())
        if judge and verifier.id is None:
            yield f"dataset.judge={judge}: the verifier decides, and verifier=none"
        if judge == "unmatched" and verifier.fit_temperature:
            yield "verifier.fit_temperature=true: not with dataset.judge=unmatched"
        if budget.money is not None and not (engine.price_in or engine.price_out):
            yield f"budget.money={budget.money:g}: needs engine.price_in and engine.price_out"
        if budget.gpu_hours is not None and of.served:
            yield f"budget.gpu_hours={budget.gpu_hours:g}: a server's are unknown; budget.tokens"
        for key in ("logprobs", "prompt_logprobs") if of.in_process else ():
            if getattr(self.sampling, key):
                yield f"sampling.{key}=true: engine=callable gives texts alone; set it to false"


def template_file(prompt: str) -> Path:
    """The file of a `verifier.prompt`: of a name in prompts/verifier/, or else a path."""
    named = FOLDER / f"{prompt}.txt"
    return named if named.is_file() else Path(prompt).expanduser()


def verifier_engine(cfg: RunConfig) -> VerifierEngine:
    """The engine that the verifier runs in: the kind of the run's, unless `verifier.engine` says.

    What is said of the machine and the process, GPU memory, kernels and (for the same kind) device,
    counts for both; what is said of the generator's model, `engine.args` and GPUs that it is
    spread over, does not. A generator's server has no verifier: without an address of its own it
    runs here, in vLLM.
    """
    own, theirs = cfg.verifier.engine, cfg.engine
    name = "openai" if own.url else "vllm" if kind(theirs.name).served else theirs.name
    of = kind(name := own.name or name)
    settings = {
        "batch_size": cfg.verifier.batch_size,
        "gpu_memory_utilization": theirs.gpu_memory_utilization,
        "batch_invariant": theirs.batch_invariant and of.batch_invariant,
        "device": theirs.device if name == theirs.name else None,
        "key_env": theirs.key_env,
        "in_flight": theirs.in_flight if of.served else None,
        "patience_s": theirs.patience_s,
        "timeout_s": theirs.timeout_s,
        "api": "completions" if of.served else "auto",  # labels are tokens
    }
    said = {key: value for key, value in asdict(own).items() if value is not None}
    return VerifierEngine(**settings | said | {"name": name})


def verifier_as_model(cfg: RunConfig) -> RunConfig:
    """The configuration with the verifier, which there must be, in the place of the model."""
    v = cfg.verifier
    assert v.id is not None
    keys = "name id tokenizer check_tokens revision dtype context trust_remote_code"
    model = VerifierModel(**{key: getattr(v, key) for key in keys.split()})
    return replace(cfg, model=model, engine=verifier_engine(cfg))
