"""The settings of a run: one dataclass per group, with what its values may be.

A YAML file in `configs/<group>/` fills one of these dataclasses. A key that is not here is an
error, so a misspelt override never passes in silence.
"""

import datetime
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any, get_args, get_type_hints

from omegaconf import MISSING

from bayes_at_n.pipeline.base.engines import kind
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.budget import BudgetConfig
from bayes_at_n.pipeline.config.checks import TRUST, limited
from bayes_at_n.pipeline.config.cluster import ClusterConfig
from bayes_at_n.pipeline.config.engine import EngineConfig, VerifierEngine, VerifierEngineConfig
from bayes_at_n.pipeline.config.official import OFFICIAL, OfficialPrompt
from bayes_at_n.pipeline.config.scoring import (
    PriorConfig,
    RubricConfig,
    ScoringConfig,
    ThresholdsConfig,
)
from bayes_at_n.pipeline.config.tracking import TrackConfig
from bayes_at_n.verifiers import Conventions, Policy, own, problems

DTYPES = ("auto", "bfloat16", "float16", "float32")
STAGES = ("prepare", "generate", "grade", "verify", "categorize", "score")


@dataclass
class ModelConfig:
    """A generator model: where its weights are and how its chat template is called."""

    key = "model"  # where these settings stand, for messages
    name: str = MISSING
    id: str = MISSING  # Hugging Face hub id, or a local folder; of a server, any name
    tokenizer: str | None = None  # hub id or folder, where it is not the model's own
    check_tokens: bool = True  # whether the token ids of prompts must decode to their texts
    revision: str | None = None
    checkpoint: str | None = None  # one of a family, for an `id` that interpolates it
    table_id: int | None = None  # the paper's Table 6
    short_name: str | None = None
    dtype: str = limited("bfloat16", one_of=DTYPES)
    context: int | None = limited(None, "[1, inf)")  # tokens; default: the model's own config
    trust_remote_code: bool = False
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    template_date: str | None = None  # YYYY-MM-DD, for templates that print today's date
    system: str | None = None
    reasoning_end: str | None = "</think>"  # the answer is looked for after this marker
    skip_special_tokens: bool = True
    engine_args: dict[str, Any] = field(default_factory=dict)

    def problems(self) -> Iterator[str]:
        yield from bad_folder_name("name", self.name)
        try:
            datetime.date.fromisoformat(self.template_date or "2025-01-01")
        except ValueError:
            yield f"template_date={self.template_date}: no date; write YYYY-MM-DD"


class VerifierModel(ModelConfig):
    """The verifier in the place of the model."""

    key = "verifier"


def bad_folder_name(key: str, name: str | None) -> Iterator[str]:
    """What keeps a name from being part of a folder's, in a line; nothing where it can be."""
    if name is not None and (name.strip() in ("", ".", "..") or {"/", "\0"} & set(name)):
        yield f"{key}={name}: becomes part of a folder's name, so it takes no / and no .."


_READINGS = {name: get_args(kind) for name, kind in get_type_hints(Conventions).items()}


@dataclass
class FieldNames:
    """The columns or JSON keys of a data set that hold each part of a question."""

    id: str | None = "id"
    problem: str = "problem"
    solution: str = "solution"  # of examples, where prompt.solved shows it
    form: str | None = None  # "strict" in it: an answer must have the form of the gold answer
    answer: str = "answer"  # of multiple choice a letter, an index from 0, or an option's text
    choices: Any = None  # of multiple choice: a column with a list of options, or a list of columns


@dataclass
class ConventionsConfig:
    """What counts as the same answer where its kind leaves it open: verifiers.Conventions."""

    lists: str = limited("unordered", one_of=_READINGS["lists"])  # ordered: `1,2` is not `2,1`
    units: str = limited("optional", one_of=_READINGS["units"])
    decimals: str = limited("exact", one_of=_READINGS["decimals"])  # rounded: 0.333 is 1/3
    percent: str = limited("hundredth", one_of=_READINGS["percent"])  # either: 2% may stand for 2
    tolerance: float = limited(0.0, "[0, inf)")  # of answer=number
    relative: float = limited(0.0, "[0, inf)")  # share of the gold answer; the larger counts
    text: str = limited("space", one_of=_READINGS["text"])  # of answer=exact and regex


@dataclass
class DatasetConfig:
    """Questions with gold answers: a file, or a Hugging Face data set."""

    name: str = MISSING
    path: str = MISSING  # a file, JSON Lines or array, CSV or Parquet; or a hub id
    subset: str | None = None
    split: str = "test"
    revision: str | None = None
    fields: FieldNames = field(default_factory=FieldNames)
    gold_after: str | None = limited(None, named=True)  # the gold answer follows its last mark
    limit: int | None = limited(None, "[1, inf)")  # only the first so many questions
    # The kind of answer: a name of verifiers.KINDS; of python python:FILE.py:function. And judge:
    # math, where the verifier decides.
    answer: str = "math"
    # Which are the answer; auto: the last, or those that close the text, if the gold has parts.
    boxes: str = limited("auto", one_of=get_args(Policy))
    pattern: str | None = None  # of answer=regex: its group is the answer
    conventions: ConventionsConfig = field(default_factory=ConventionsConfig)
    # The verifier decides: unmatched: what the rule grader does not accept; all: every answer.
    judge: str | None = limited(None, one_of=("unmatched", "all"))

    def __post_init__(self) -> None:
        if self.answer == "judge":
            self.answer, self.judge = "math", self.judge or "all"

    def problems(self) -> Iterator[str]:
        yield from bad_folder_name("name", self.name)
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
    # plain: the text alone, for base models; chat: a user's turn of the model's chat template
    kind: str = limited("chat", one_of=("chat", "plain"))
    prefix: str = ""  # how the answer begins: the model goes on, and it is graded with the rest
    stop: list[str] = limited([])  # texts that end an attempt where the model writes them
    shots: int = limited(0, "[0, 1000]")  # solved examples in front of the question
    shots_from: str | None = limited(None, named=True)  # a file, or a split of the data set
    shots_seed: int | None = None  # their order; null: as they come
    solved: str = "{solution}"  # an example's answer, with {solution} or {answer} of its row
    # "user": put the system text in front of the user's turn
    system_role: str = limited("system", one_of=("system", "user"))

    # The order of `{choices}`: as the data set has it, one for each question, or for each attempt.
    shuffle: str = limited("none", one_of=("none", "question", "trial"))
    shuffle_seed: int = limited(0, "[0, 4611686018427387904)")

    def problems(self) -> Iterator[str]:
        if "{problem}" not in self.template:
            yield "template: must contain {problem}, where the problem text goes"
        if self.shots and self.shots_from is None:
            yield f"shots={self.shots}: from where? prompt.shots_from=FILE.jsonl, or a split"
        if self.shots and not ("{solution}" in self.solved or "{answer}" in self.solved):
            yield "solved: must contain {solution} or {answer}, or no example shows one"
        if "" in self.stop:
            yield "stop: holds an empty text, which would end every attempt before it begins"


@dataclass
class SamplingConfig:
    """The sampling protocol."""

    name: str = MISSING
    trials: int = limited(80, "[1, 1000000]")  # more is a slip of the finger, not a protocol
    temperature: float = limited(0.6, "[0, 2]")
    top_p: float = limited(0.95, "(0, 1]")
    top_k: int | None = limited(None, "[1, inf)")  # null: no limit
    max_tokens: int = limited(32768, "[1, inf)")
    seed: int | None = limited(1234, "[0, 4611686018427387904)")  # null: none; of 62 bits
    # Of an attempt, see `config/seeds.py`; run folders that do not say it are `shared`.
    seeds: str = limited("shared", one_of=("shared", "independent"))
    logprobs: bool = True
    prompt_logprobs: bool = True

    def problems(self) -> Iterator[str]:
        if self.temperature == 0 and self.trials > 1:
            yield "temperature=0: greedy attempts are all alike; set sampling.trials=1"


@dataclass
class GradingConfig:
    """How answers are compared with gold answers: limits for a pair."""

    timeout_s: float = limited(3.0, "(0, inf]")  # processor seconds
    memory_mb: int = limited(1024, "[256, inf)")
    workers: int | None = limited(None, "[1, inf)")
    # Instead of our own grader math_verify alone judges the full text, to compare with.
    compat: str | None = limited(None, one_of=("math_verify",))


@dataclass
class LabelTokens:
    """What a verifier answers for each label: one token each, in the order of columns a, b, c."""

    correct: str = "A"
    incorrect: str = "B"
    invalid: str | None = "C"  # cut off, in circles, off the question, refused; null: it has none


CALIBRATIONS = ("contextual", "question", "domain", "graded", "batch", "none")


@dataclass
class VerifierConfig:
    """The model that judges attempts, how it is asked, and how its answer is calibrated."""

    key = "verifier"
    name: str = "compass-3b"
    # A hub id or a local folder; null: none.
    id: str | None = limited("opencompass/CompassVerifier-3B", named=True)
    tokenizer: str | None = None  # these two as those of the model
    check_tokens: bool = True
    revision: str | None = None
    prompt: str = limited("compass", named=True)  # official, prompts/verifier/NAME.txt, or a path
    official: OfficialPrompt = field(default_factory=OfficialPrompt)
    # plain: the prompt is the whole text; chat: a user's turn of the model's chat template
    kind: str = limited("chat", one_of=("chat", "plain"))
    prefix: str = ""  # how the answer begins; the label comes next
    labels: LabelTokens = field(default_factory=LabelTokens)
    dtype: str = limited("bfloat16", one_of=DTYPES)
    context: int | None = limited(None, "[1, inf)")  # tokens; default: the model's own config
    trust_remote_code: bool = False
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    # What is subtracted from the log-probs: see docs/verifier.md.
    calibration: str = limited("contextual", one_of=CALIBRATIONS)
    # Nats; null: the formula as printed, all of it and of C, too.
    clip: float | None = limited(1.0, "(0, inf)")
    content_free: list[str] = field(default_factory=lambda: ["N/A", "", "[MASK]"])
    # Of the baselines over content_free, or over random words.
    average: str = limited("probability", one_of=("probability", "logit"))
    temperature: float = limited(1.5, "(0, inf)")
    fit_temperature: bool = False  # to labels of people; calibration=graded: to the grader's
    least_mass: float = limited(0.5, "[0, 1)")  # mean of the labels' under which the stage stops
    batch_size: int = limited(256, "[1, inf)")  # prompts that run at once
    engine: VerifierEngineConfig = field(default_factory=VerifierEngineConfig)

    def problems(self) -> Iterator[str]:
        tokens = [self.labels.correct, self.labels.incorrect, self.labels.invalid]
        if "" in tokens or len(set(tokens)) < len(tokens):
            yield f"labels: {', '.join(map(repr, tokens))}: must be three different texts"
        if self.prompt == OFFICIAL and not re.fullmatch("[0-9a-f]{64}", self.official.sha256):
            yield (
                f"official.sha256={self.official.sha256}: must be 64 digits; prompt=official is for"
                " a verifier whose YAML says where its prompt is (configs/verifier)"
            )
        if not self.content_free or len(set(self.content_free)) < len(self.content_free):
            yield f"content_free={list(self.content_free)}: must be at least one text, each once"

    def form(self) -> dict[str, str]:
        """What makes its prompt, where that is not as it was before there was a choice."""
        form = {"kind": self.kind, "prefix": self.prefix}
        own = {"tokenizer": self.tokenizer} if self.tokenizer else {}
        return own | ({} if form == {"kind": "chat", "prefix": ""} else form)


@dataclass
class LabelsConfig:
    """What people say of attempts: `verify` draws a sample for them, and reads what they said."""

    file: str | None = limited(None, named=True)  # JSON Lines with question_id, trial, correct
    sample: int | None = limited(None, "[1, inf)")  # so many attempts go to labels.jsonl


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
    stages: list[str] = limited(list(STAGES), one_of=STAGES)
    trust_parts: bool = False  # take back attempts that another model may have made; not kept
    tag: str | None = None  # tells protocols of one model and data set apart
    trust: str = limited("false", one_of=TRUST)  # use what a folder says (`trust.py`); never kept
    run_dir: str = limited(named=True)

    def problems(self) -> Iterator[str]:
        if not self.stages:
            yield f"stages=[]: nothing to do; name some of {', '.join(STAGES)}"
        yield from bad_folder_name("tag", self.tag)
        yield from _choice_problems(self.dataset.fields.choices, self.prompt)
        if self.prompt.stop and "stop" in self.engine.args:
            yield "engine.args.stop: leave it out; prompt.stop says it"
        yield from (f"verifier.engine.{line}" for line in verifier_engine(self).problems())
        if self.dataset.judge and self.verifier.id is None:
            yield f"dataset.judge={self.dataset.judge}: the verifier decides, and verifier=none"
        if self.dataset.judge == "unmatched" and self.verifier.calibration == "batch":
            yield (
                "verifier.calibration=batch: not with dataset.judge=unmatched, which asks about"
                " few attempts that are right; choose contextual, domain or none"
            )
        if self.dataset.judge == "unmatched" and self.verifier.fit_temperature:
            yield (
                "verifier.fit_temperature=true: not with dataset.judge=unmatched, which asks about"
                " no attempt that the rule grader accepts"
            )
        if self.budget.money is not None and not (self.engine.price_in or self.engine.price_out):
            yield (
                f"budget.money={self.budget.money:g}: nothing has a price; set engine.price_in and"
                " engine.price_out, of a million tokens"
            )
        if self.budget.gpu_hours is not None and kind(self.engine.name).served:
            yield (
                f"budget.gpu_hours={self.budget.gpu_hours:g}: a server's GPUs are not known here;"
                " set budget.tokens, budget.money or budget.until"
            )
        if kind(self.engine.name).in_process:
            for key in ("logprobs", "prompt_logprobs"):
                if getattr(self.sampling, key):
                    yield f"sampling.{key}=true: engine=callable gives texts alone; set it to false"


def _choice_problems(choices: Any, prompt: PromptConfig) -> Iterator[str]:
    names = [choices] if isinstance(choices, str) else choices or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        yield f"dataset.fields.choices={choices}: must be a column's name, or a list of them"
    if bool(names) and "{choices}" not in prompt.template:
        yield "prompt.template: must contain {choices}, where the options go (prompt=choice does)"
    if not names and "{choices}" in prompt.template:
        yield "prompt.template: contains {choices}; set dataset.fields.choices, a column or several"
    if not names and prompt.shuffle != "none":
        yield f"prompt.shuffle={prompt.shuffle}: there are no options; set dataset.fields.choices"


def verifier_engine(cfg: RunConfig) -> VerifierEngine:
    """The engine that the verifier runs in: the kind of the run's, unless `verifier.engine` says.

    What is said of the machine and the process, GPU memory, kernels and (for the same kind) device,
    counts for both; what is said of the generator's model, `engine.args` and GPUs that it is
    spread over, does not. A generator's server has no verifier: without an address of its own it
    runs here, in vLLM.
    """
    own, theirs = cfg.verifier.engine, cfg.engine
    name = own.name or ("openai" if own.url else theirs.name)
    if kind(name).served and own.name is None and not own.url:
        name = "vllm"
    used = own.gpu_memory_utilization
    return VerifierEngine(
        name=name,
        batch_size=cfg.verifier.batch_size,
        replicas=own.replicas,
        tensor_parallel_size=own.tensor_parallel_size,
        gpu_memory_utilization=theirs.gpu_memory_utilization if used is None else used,
        batch_invariant=theirs.batch_invariant and kind(name).batch_invariant,
        device=own.device or (theirs.device if name == theirs.name else None),
        args=dict(own.args),
        url=list(own.url),
        served_name=own.served_name,
        key_env=own.key_env or theirs.key_env,
        in_flight=theirs.in_flight if kind(name).served else None,
        patience_s=theirs.patience_s,
        timeout_s=theirs.timeout_s,
        api="completions" if kind(name).served else "auto",  # labels are tokens
    )


def verifier_as_model(cfg: RunConfig) -> RunConfig:
    """The configuration with the verifier, which there must be, in the place of the model."""
    v = cfg.verifier
    assert v.id is not None
    keys = "name id tokenizer check_tokens revision dtype context trust_remote_code"
    model = VerifierModel(**{key: getattr(v, key) for key in keys.split()})
    return replace(cfg, model=model, engine=verifier_engine(cfg))
