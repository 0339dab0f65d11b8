"""The settings of a run: one dataclass per group, with the limits of its values.

A YAML file in `configs/<group>/` fills one of these dataclasses. Any other key is an error, so a
misspelt override is never ignored.
"""

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

from pydantic import Field

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import PACKAGES, kind
from bayes_at_n.pipeline.config.checks import (
    MISSING,
    Above0,
    Amount,
    FolderName,
    Named,
    Positive,
    Seed,
    Trust,
    must,
    one_of,
)
from bayes_at_n.pipeline.config.judging import MOST_SCORES, JudgementConfig, JudgeSampling
from bayes_at_n.pipeline.config.resources import (
    BudgetConfig,
    ClusterConfig,
    EngineConfig,
    VerifierEngine,
    VerifierEngineConfig,
)
from bayes_at_n.pipeline.config.sampling import CardConfig, Day, SamplingConfig, Stops
from bayes_at_n.pipeline.config.scoring import (
    PriorConfig,
    RubricConfig,
    ScoringConfig,
    ThresholdsConfig,
)
from bayes_at_n.pipeline.config.where import parse as parse_filter
from bayes_at_n.scoring.metrics import By
from bayes_at_n.verifiers.answers import own
from bayes_at_n.verifiers.code.languages import NAMES as LANGUAGE_NAMES
from bayes_at_n.verifiers.maths.boxed import Policy
from bayes_at_n.verifiers.maths.conventions import Conventions

OFFICIAL = "official"  # the verifier.prompt that `prefetch` downloads
FOLDER = PACKAGES / "prompts" / "verifier"
FIELDS = ("question", "gold", "response", "answer")  # of a verifier's prompt
STRUCTURED = ("vllm", "openai")  # engines that enforce a JSON schema
GOLD = ("auto", "any", "box", "index", "letter", "list", "literal", "text")
TRACKERS = ("wandb", "mlflow", "trackio")
PROJECT = "bayes-at-n"
STAGES = ("prepare", "generate", "grade", "verify", "categorize", "score")
Dtype = Annotated[str, one_of("auto", "bfloat16", "float16", "float32")]
Stages = Annotated[list[Annotated[str, one_of(*STAGES)]], Field(min_length=1)]
Kind = Annotated[str, one_of("chat", "plain")]
JudgeKind = Annotated[str, one_of("chat", "plain", "generate")]
_reads = {name: one_of(*get_args(hint)) for name, hint in get_type_hints(Conventions).items()}


def _are_names(names: Any) -> bool:
    return all(isinstance(n, str) for n in (names if isinstance(names, list) else [names or ""]))


Names = Annotated[Any, must("a name, or a list of names", _are_names)]


@dataclass
class AboutConfig:
    """Where the facts in a YAML file come from; read by `catalogue` and tests only."""

    license: str | None = None  # SPDX id, or the words of its page; null: no source names it
    source: str | None = None  # public file that confirms the other keys: OWNER/NAME@COMMIT/PATH
    unverified: bool = False  # no public file confirms some of it; a run warns


@dataclass
class AboutDatasetConfig(AboutConfig):
    """Where the facts about a dataset come from, its size, and a row of its form."""

    questions: Positive | None = None  # number of questions; null: no source names it
    sample: dict[str, Any] = field(default_factory=dict)  # a made-up row with the same columns


@dataclass
class ModelConfig:
    """A generator model: its weights, tokenizer and chat template."""

    key = "model"  # the group of these settings, for messages
    name: FolderName = MISSING  # name in tables and of run folders
    id: str = MISSING  # Hugging Face hub id or local folder; any name if a server has the model
    tokenizer: str | None = None  # hub id or folder; default: the model's
    check_tokens: bool = True  # check that token ids of prompts decode to their texts
    revision: str | None = None  # commit, branch or tag on the hub
    checkpoint: str | None = None  # replaces ${model.checkpoint} in model.id
    table_id: int | None = None  # number in the paper's Table 6
    short_name: str | None = None  # name in the paper's figures
    dtype: Dtype = "bfloat16"  # dtype of weights and computation; auto: the checkpoint's
    quantization: Named | None = None  # vLLM's method for weights, such as fp8; null: as released
    adapter: Named | None = None  # LoRA adapter: hub id or local folder
    context: Positive | None = None  # context length; default: from the model's config.json
    trust_remote_code: bool = False  # run Python code that comes with the model
    # variables of the chat template
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    # date for chat templates that print the current one, so that prompts do not change
    template_date: Day | None = None
    system: str | None = None  # system message
    reasoning_end: str | None = "</think>"  # the answer is extracted from the text after it
    # vLLM's parser that finds that end; auto: by the model's type; null: the text of reasoning_end
    reasoning_parser: Named | None = None
    skip_special_tokens: bool = True  # leave special tokens out of responses
    engine_args: dict[str, Any] = field(default_factory=dict)  # engine arguments for this model
    card: CardConfig = field(default_factory=CardConfig)  # what its authors ask for
    about: AboutConfig = field(default_factory=AboutConfig)  # sources of these settings


class VerifierModel(ModelConfig):
    """The verifier's settings in the form of a model's."""

    key = "verifier"


@dataclass
class FieldNames:
    """The columns or JSON keys that hold the parts of a question.

    Texts may combine columns, as in `{passage}\\n\\n{question}`; `a.b` is the key b of column a.
    Hub datasets have the columns subset, split and row (number in its split) if not by other names.
    """

    id: str | None = "id"  # column of the id; null: row numbers
    problem: str = "problem"  # column of the text
    solution: str = "solution"  # column of the worked solution, for examples
    form: str | None = None  # column that says "strict" where the form must match, too
    cluster: str | None = None  # column that names what questions share, such as a passage
    answer: str = "answer"  # column of the gold answer; a choice's letter, index from 0, or text
    choices: Names = None  # columns of the options: one with a list, or several
    category: Names = None  # columns of subject, level, language: one, or a list of them
    date: str | None = None  # column of the date (or month, or year) when it was published


@dataclass
class ConventionsConfig:
    """Conventions for equal answers, see verifiers.Conventions."""

    lists: Annotated[str, _reads["lists"]] = "unordered"  # ordered: `1,2` is not `2,1`
    units: Annotated[str, _reads["units"]] = "optional"  # whether units must match
    decimals: Annotated[str, _reads["decimals"]] = "exact"  # rounded: 0.333 equals 1/3
    percent: Annotated[str, _reads["percent"]] = "hundredth"  # either: 2% may also mean 2
    tolerance: Amount = 0.0  # absolute tolerance, for answer=number
    relative: Amount = 0.0  # tolerance as a share of the gold answer; the larger counts
    text: Annotated[str, _reads["text"]] = "space"  # differences that answer=exact and regex ignore


@dataclass
class DatasetConfig:
    """Questions with gold answers: a file, or a Hugging Face dataset."""

    name: FolderName = MISSING  # name in tables and of the folder of its runs
    path: str = MISSING  # JSON, JSON Lines, CSV or Parquet file, or a hub id
    subset: Names = None  # configuration of a hub dataset, or a list of them
    split: Names = "test"  # split of a hub dataset, or a list of them
    revision: str | None = None  # commit, branch or tag on the hub
    fields: FieldNames = field(default_factory=FieldNames)
    where: str | None = None  # filter of rows: COLUMN == VALUE and ... (!= < <= > >= ~ !~)
    since: Day | None = None  # `score` compares questions before this date with later ones
    gold_after: Named | None = None  # the gold answer follows the last occurrence of this text
    # how the gold answer is read: box (the last one of a solution), list (all its items), any (one
    # of its items is enough; empty: "unanswerable"), literal (a list or value of Python or JSON);
    # of a choice letter, index (from 0) or text; auto: a text, or a choice in any of these forms
    gold: Annotated[str, one_of(*GOLD)] = "auto"
    limit: Positive | None = None  # use only this many of the first questions
    # kind of answer: a name in verifiers.KINDS, python:FILE.py:function, or judge (math, decided by
    # the verifier)
    answer: str = "math"
    # of programs (answer=code); others than Python are tested by input and output
    language: Annotated[str, one_of(*LANGUAGE_NAMES)] = "python"
    # boxes that are the answer; auto: the last, or the closing ones if the gold answer has parts
    boxes: Annotated[str, one_of(*get_args(Policy))] = "auto"
    pattern: str | None = None  # for answer=regex; its group is the answer
    conventions: ConventionsConfig = field(default_factory=ConventionsConfig)
    # answers that the verifier judges: all, or unmatched, those that the rules do not accept
    judge: Annotated[str, one_of("unmatched", "all")] | None = None
    about: AboutDatasetConfig = field(default_factory=AboutDatasetConfig)  # sources, size, a row

    def __post_init__(self) -> None:
        if self.answer == "judge":
            self.answer, self.judge = "math", self.judge or "all"

    def problems(self) -> Iterator[str]:
        try:
            parse_filter(self.where or "x == x")
        except ValueError as error:
            yield f"where={self.where}: {error}; write COLUMN == VALUE and COLUMN < VALUE"
        if (self.answer, self.pattern, self.conventions) != ("math", None, ConventionsConfig()):
            from bayes_at_n.verifiers.answers.kinds import problems  # a tenth of a second

            yield from problems(self.answer, self.pattern, Conventions(**asdict(self.conventions)))

    def grader(self) -> tuple[str, str | None]:
        """Return the kind of answer, with the resolved path and hash of a user's own grader.

        Raises UserError: the grader's file does not exist.
        """
        if not self.answer.startswith("python:"):
            return self.answer, None
        try:
            return own.resolved(self.answer)
        except ValueError as error:
            raise UserError(f"dataset.answer={self.answer}: {error}") from error


@dataclass
class PromptConfig:
    """How a problem becomes a prompt."""

    name: str = MISSING  # name in records
    template: str = MISSING  # user's turn, with {problem} and optionally {choices}
    # more such templates; trials use all of them in turn, `template` first
    variants: list[str] = field(default_factory=list)
    kind: Kind = "chat"  # chat: with the chat template; plain: the text alone
    prefix: str = ""  # start of the response, which the model continues; graded with it
    stop: Stops = field(default_factory=list)  # strings that end an attempt
    shots: Annotated[int, Field(ge=0, le=1000)] = 0  # number of solved examples
    shots_from: Named | None = None  # file of examples, or a split of the dataset
    shots_seed: int | None = None  # seed that shuffles examples; null: in order
    solved: str = "{solution}"  # an example's response, with {solution} or {answer}
    system_role: Annotated[str, one_of("system", "user")] = "system"  # user: in the user's turn
    option: str = "{letter}) {option}"  # a line of {choices}
    # order of {choices}; none: the dataset's; question: shuffled per question; trial: per attempt
    shuffle: Annotated[str, one_of("none", "question", "trial")] = "none"
    shuffle_seed: Seed = 0  # seed of prompt.shuffle

    @property
    def templates(self) -> list[str]:
        """Return the templates of trials 0, 1, ...; later trials begin again."""
        return [self.template, *self.variants]

    def problems(self) -> Iterator[str]:
        for key, texts in (("template", [self.template]), ("variants", self.variants)):
            if not all("{problem}" in text for text in texts):
                yield f"{key}: must contain {{problem}}, the place of the problem's text"
        if not ("{letter}" in self.option and "{option}" in self.option):
            yield "option: must contain {letter} and {option}"
        if self.shots and self.shots_from is None:
            yield f"shots={self.shots}: needs prompt.shots_from=FILE.jsonl, or a split"
        if self.shots and not ("{solution}" in self.solved or "{answer}" in self.solved):
            yield "solved: must contain {solution} or {answer}"


SANDBOXES = ("bubblewrap", "docker", "podman", "apptainer", "none")


@dataclass
class GradingConfig:
    """Limits of comparing one answer with its gold answer."""

    timeout_s: Annotated[float, Field(gt=0)] = 3.0  # processor seconds per answer
    memory_mb: Annotated[int, Field(ge=256)] = 1024  # memory per grading process
    workers: Positive | None = None  # grading processes; default: one per core
    # math_verify: grade the full text by plain math-verify, for comparison with other tools
    compat: Annotated[str, one_of("math_verify")] | None = None
    # log-prob by which sampling.likelihood=options chooses: sum, mean per token or UTF-8 byte, or
    # sum minus that without the prompt
    likelihood: Annotated[str, one_of(*get_args(By))] = "sum"
    # what shuts in the programs of answer=code; none: nothing does, they run with your rights
    sandbox: Annotated[str, one_of(*SANDBOXES)] = "bubblewrap"
    image: str | None = None  # of sandbox=docker, podman, apptainer; default: python:VERSION-slim


@dataclass
class LabelTokens:
    """A verifier's token for each label, in the order of columns a, b, c."""

    correct: str = "A"  # token for a correct answer
    incorrect: str = "B"  # token for an incorrect answer
    invalid: str | None = "C"  # token for truncated, repetitive, off-topic, refused; null: none


@dataclass
class OfficialPrompt:
    """A prompt in a Python file of a public GitHub repository, which `prefetch` downloads."""

    file: str | None = None  # OWNER/NAME/COMMIT/PATH; null: none
    sha256: str = ""  # SHA-256 of the file
    name: str = ""  # variable that holds the prompt
    fields: dict[str, str] = field(default_factory=dict)  # its placeholders and their meaning
    fallback: str | None = None  # verifier.prompt to use until it is downloaded; null: none

    def __str__(self) -> str:
        return f"{self.file}:{self.name}"


@dataclass
class VerifierConfig:
    """The model that judges attempts, its prompt, and the calibration of its labels."""

    key = "verifier"
    name: str = "compass-3b"  # name in records
    id: Named | None = "opencompass/CompassVerifier-3B"  # hub id or local folder; null: none
    tokenizer: str | None = None  # hub id or folder; default: the model's
    check_tokens: bool = True  # check that token ids of prompts decode to their texts
    revision: str | None = None  # commit, branch or tag on the hub
    prompt: Named = "compass"  # official, a name in prompts/verifier, or a path
    official: OfficialPrompt = field(default_factory=OfficialPrompt)
    # chat: one token after the chat template; plain: one after the text; generate: a judgement
    kind: JudgeKind = "chat"
    prefix: str = ""  # start of the response, which the label follows
    labels: LabelTokens = field(default_factory=LabelTokens)
    dtype: Dtype = "bfloat16"  # dtype of weights and computation; auto: the checkpoint's
    context: Positive | None = None  # context length; default: from the model's config.json
    trust_remote_code: bool = False  # run Python code that comes with the model
    # variables of the chat template
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    # prior that is divided out of label probabilities, see docs/verifier.md
    calibration: Annotated[str, one_of("contextual", "question", "graded", "none")] = "contextual"
    clip: Above0 | None = 1.0  # largest change of A and B, in nats; null: no limit, and C changes
    # texts that replace a response, for calibration=contextual
    content_free: Annotated[
        list[str], Field(min_length=1), must("each once", lambda texts: len({*texts}) == len(texts))
    ] = field(default_factory=lambda: ["N/A", "", "[MASK]"])
    # scale on which the priors from these texts are averaged
    average: Annotated[str, one_of("probability", "logit")] = "probability"
    temperature: Above0 = 1.5  # temperature of label probabilities
    fit_temperature: bool = False  # fit the temperature to human labels
    # stop if the labels together have less probability than this
    least_mass: Annotated[float, Field(ge=0, lt=1)] = 0.5
    batch_size: Positive = 256  # prompts at once
    engine: VerifierEngineConfig = field(default_factory=VerifierEngineConfig)
    # of kind=generate: how its judgements are read and sampled
    judgement: JudgementConfig = field(default_factory=JudgementConfig)
    sampling: JudgeSampling = field(default_factory=JudgeSampling)
    panel: list[str] = field(default_factory=list)  # names of earlier judges whose votes count too
    budget: BudgetConfig = field(default_factory=BudgetConfig)

    def problems(self) -> Iterator[str]:
        tokens = [self.labels.correct, self.labels.incorrect, self.labels.invalid]
        if "" in tokens or len(set(tokens)) < len(tokens):
            yield f"labels: {', '.join(map(repr, tokens))}: must be three different texts"
        if self.prompt == OFFICIAL and not re.fullmatch("[0-9a-f]{64}", self.official.sha256):
            yield f"official.sha256={self.official.sha256}: prompt=official needs one, of 64 digits"
        if self.kind != "generate" and (self.panel or self.judgement.points):
            yield "panel and judgement.points: need kind=generate"
        if len(self.scores or ()) > MOST_SCORES:
            yield f"judgement.votes=mean: has more than {MOST_SCORES} means; use majority"

    @property
    def ballots(self) -> int:
        """Return the number of votes on an attempt, of all judges."""
        return self.sampling.trials * (1 + len(self.panel))

    @property
    def scores(self) -> list[float] | None:
        """Return all scores of an attempt, see `JudgementConfig.means`."""
        return self.judgement.means(self.ballots) if self.kind == "generate" else None

    def form(self) -> dict[str, Any]:
        """Return the settings of its prompt that differ from those of the first run format."""
        form = {"kind": self.kind, "prefix": self.prefix}
        own: dict[str, Any] = {"tokenizer": self.tokenizer} if self.tokenizer else {}
        if self.kind == "generate":
            own |= {"judgement": asdict(self.judgement), "sampling": asdict(self.sampling)}
            own |= {"panel": self.panel}
        return own | ({} if form == {"kind": "chat", "prefix": ""} else form)


@dataclass
class LabelsConfig:
    """Human labels: `label` makes a page for them, `score` corrects scores by them."""

    file: Named | None = None  # labels to add: JSON Lines with question_id, trial, correct
    sample: Positive | None = None  # attempts to draw, beside those drawn before


@dataclass
class TrackConfig:
    """Experiment trackers; the libraries' own settings give addresses and keys."""

    to: list[Annotated[str, one_of(*TRACKERS)]] = field(default_factory=list)  # trackers to log to
    project: Named = PROJECT  # the tracker's project


@dataclass
class RunConfig:
    """One run: a dataset, a model, a sampling protocol, and how to execute it."""

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
    stages: Stages = field(default_factory=lambda: [*STAGES])  # stages that `run` runs
    trust_parts: bool = False  # keep attempts that may be of another model; not stored
    race: Named | None = None  # internal: the file with which `settle` controls a run; not stored
    tag: FolderName | None = None  # suffix of the run folder, for another protocol
    trust: Trust = "false"  # trust a folder's settings that run code or connect; not stored
    run_dir: Named = MISSING  # the run folder

    def problems(self) -> Iterator[str]:
        columns, templates = self.dataset.fields.choices, self.prompt.templates
        engine, judge, verifier = self.engine, self.dataset.judge, self.verifier
        budget, engine_kind = self.budget, kind(self.engine.name)
        if self.sampling.likelihood:
            yield from self._unscorable()
        elif columns and not all("{choices}" in template for template in templates):
            yield "prompt.template: must contain {choices}, for the options (prompt=choice does)"
        shuffled = self.prompt.shuffle != "none"
        if not columns and (shuffled or any("{choices}" in template for template in templates)):
            yield "prompt.shuffle, prompt.template: {choices} needs dataset.fields.choices"
        if self.stops and "stop" in engine.args:
            yield "engine.args.stop: leave it out and set sampling.stop"
        s, model, name = self.sampling, self.model, self.engine.name
        pattern = s.repetition_detection.max_pattern_size or None
        for key, value, engines in (
            ("sampling.thinking_budget", s.thinking_budget, ("vllm", "openai")),
            ("sampling.json_schema", s.json_schema or None, STRUCTURED),
            ("sampling.repetition_detection.max_pattern_size", pattern, ("vllm", "openai")),
            ("model.quantization", model.quantization, ("vllm",)),
            ("model.adapter", model.adapter, ("vllm", "transformers")),
            ("model.reasoning_parser", model.reasoning_parser, ("vllm", "transformers", "openai")),
        ):
            if value is not None and name not in engines:
                yield f"{key}={value}: needs engine={' or '.join(engines)}, not {name}"
        if s.thinking_budget is not None and name == "vllm" and model.reasoning_parser is None:
            yield f"sampling.thinking_budget={s.thinking_budget}: needs model.reasoning_parser=auto"
        if model.reasoning_parser and not model.reasoning_end:
            yield f"model.reasoning_parser={model.reasoning_parser}: needs model.reasoning_end"
        yield from (f"verifier.engine.{line}" for line in verifier_engine(self).problems())
        if judge and verifier.id is None:
            yield f"dataset.judge={judge}: needs a verifier, not verifier=none"
        if judge == "unmatched" and verifier.fit_temperature:
            yield "verifier.fit_temperature=true: not supported with dataset.judge=unmatched"
        if budget.money is not None and not (engine.price_in or engine.price_out):
            yield f"budget.money={budget.money:g}: needs engine.price_in and engine.price_out"
        if budget.gpu_hours is not None and engine_kind.served:
            yield f"budget.gpu_hours={budget.gpu_hours:g}: not for a server; use budget.tokens"
        for key in ("logprobs", "prompt_logprobs") if engine_kind.in_process else ():
            if getattr(self.sampling, key):
                yield f"sampling.{key}=true: engine=callable returns texts only; set it to false"

    @property
    def point_weights(self) -> list[float] | None:
        """Return all scores of an attempt that a judge decides; None: it is correct or not."""
        return self.verifier.scores if self.dataset.judge else None

    @property
    def boxed(self) -> bool:
        """Return whether answers are expected in boxes."""
        return self.dataset.answer not in ("code", "regex") and not self.sampling.likelihood

    @property
    def stops(self) -> list[str]:
        """Return the strings that end an attempt: the prompt's and the protocol's."""
        return [*dict.fromkeys([*self.prompt.stop, *self.sampling.stop])]

    def _unscorable(self) -> Iterator[str]:
        """Yield a line for each setting that does not allow to score texts."""
        name, solved, gold = self.sampling.likelihood, self.prompt.solved, self.dataset.gold
        if name == "options" and not self.dataset.fields.choices:
            yield "sampling.likelihood=options: needs dataset.fields.choices"
        if name == "gold" and gold in ("any", "list"):
            yield f"sampling.likelihood=gold: needs one text, not dataset.gold={gold}"
        if "{answer}" not in solved or "{solution}" in solved:
            yield (
                f"prompt.solved: must contain {{answer}}, which sampling.likelihood={name} scores,"
                " and no {solution}: prompt=letter, cloze and text do"
            )
        if self.prompt.shuffle == "trial" or len(self.prompt.templates) > 1:
            yield f"sampling.likelihood={name}: not with prompt.shuffle=trial or prompt.variants"
        if kind(self.engine.name).in_process:
            yield f"sampling.likelihood={name}: engine={self.engine.name} gives no log-probs"


def template_file(prompt: str) -> Path:
    """Return the file of a `verifier.prompt`, a name in prompts/verifier/ or a path."""
    named = FOLDER / f"{prompt}.txt"
    return named if named.is_file() else Path(prompt).expanduser()


def verifier_engine(cfg: RunConfig) -> VerifierEngine:
    """Return the verifier's engine: `verifier.engine`, and defaults from the run's `engine`.

    Settings of machine and process (GPU memory, kernels, device if the engine is the same) are the
    run's, those of the generator's model (`engine.args`, GPUs per replica) are not. If the model is
    on a server and the verifier has no URL, the verifier runs locally in vLLM.
    """
    own, engine = cfg.verifier.engine, cfg.engine
    name = "openai" if own.url else "vllm" if kind(engine.name).served else engine.name
    engine_kind = kind(name := own.name or name)
    settings = {
        "batch_size": cfg.verifier.batch_size,
        "gpu_memory_utilization": engine.gpu_memory_utilization,
        "device": engine.device if name == engine.name else None,
        "key_env": engine.key_env,
        "in_flight": engine.in_flight if engine_kind.served else None,
        "patience_s": engine.patience_s,
        "timeout_s": engine.timeout_s,
        # Labels are tokens.
        "api": "completions" if engine_kind.served and cfg.verifier.kind != "generate" else "auto",
    }
    given = {key: value for key, value in asdict(own).items() if value is not None}
    return VerifierEngine(**settings | given | {"name": name})


def verifier_as_model(cfg: RunConfig) -> RunConfig:
    """Return the configuration with its verifier as the model; it must have one."""
    v = cfg.verifier
    assert v.id is not None
    keys = "name id tokenizer check_tokens revision dtype context trust_remote_code"
    model = VerifierModel(**{key: getattr(v, key) for key in keys.split()})
    return replace(cfg, model=model, engine=verifier_engine(cfg))
