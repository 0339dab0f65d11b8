"""The settings of a run: one dataclass per group, with the limits of its values.

A YAML file in `configs/<group>/` fills one of these dataclasses. Any other key is an error, so a
misspelt override is never ignored.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, Field

from bayes_at_n.pipeline.base.program import kind
from bayes_at_n.pipeline.config.checks import (
    MISSING,
    FolderName,
    Level,
    Named,
    Points,
    Positive,
    Trust,
    must,
    one_of,
)
from bayes_at_n.pipeline.config.protocol import (
    DatasetConfig,
    ModelConfig,
    PromptConfig,
    SamplingConfig,
)
from bayes_at_n.pipeline.config.resources import (
    BudgetConfig,
    ClusterConfig,
    EngineConfig,
    VerifierEngine,
)
from bayes_at_n.pipeline.config.verifier import LabelsConfig, VerifierConfig, VerifierModel
from bayes_at_n.scoring.metrics import DEFAULT, OWN, By
from bayes_at_n.scoring.ranking import Method, Rule

STRUCTURED = ("vllm", "openai")  # engines that enforce a JSON schema
TRACKERS = ("wandb", "mlflow", "trackio")
PROJECT = "bayes-at-n"
STAGES = ("prepare", "generate", "grade", "verify", "categorize", "score")
SANDBOXES = ("bubblewrap", "docker", "podman", "apptainer", "none")
Stages = Annotated[list[Annotated[str, one_of(*STAGES)]], Field(min_length=1)]


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


def _metrics(names: list[str]) -> list[str]:
    if not {*names} <= {*DEFAULT}:
        from bayes_at_n.scoring.metrics.table import parse_all  # SciPy

        parse_all(names)
    return names


def own_metrics(names: list[str]) -> list[str]:
    """Return the files of the user's own metrics, FILE.py:function, among `names`."""
    return [own[1] for name in names if (own := re.fullmatch(OWN, name.strip()))]


Metrics = Annotated[list[str], AfterValidator(_metrics)]
_CAPS = re.compile("auto|(0*[1-9][0-9]{0,8},)*0*[1-9][0-9]{0,8}|")
Caps = Annotated[list[str], must("numbers, or auto", lambda v: _CAPS.fullmatch(",".join(v)))]


@dataclass
class MetricsConfig:
    """Metrics and intervals of all score tables."""

    confidence: Level = 0.95  # level of two-sided intervals
    # names such as bayes, avg, pass@8, g-pass@8:0.5, or FILE.py:function
    metrics: Metrics = field(default_factory=lambda: [*DEFAULT])


@dataclass
class CapsConfig(MetricsConfig):
    """The headline, and scores of the same attempts under smaller limits of tokens."""

    # prior of Bayes@N: estimated from each run's questions, or uniform, as in the paper
    prior: Annotated[str, one_of("estimated", "uniform")] = "estimated"
    # score under these token limits, too: 2048,4096; auto: powers of 2
    caps: Caps = field(default_factory=list)


@dataclass
class ScoringConfig(CapsConfig):
    """What the score table of a run shows."""

    # estimate the score at this larger max_tokens, from the lengths of the attempts
    forecast: Annotated[int, Field(ge=1, lt=10**9)] | None = None


@dataclass
class ComparisonConfig(CapsConfig):
    """How models are scored, when two of them are alike, and when the paper's rules tie them."""

    margin: Points = 1.0  # models within so many points of accuracy count as equal
    # threshold of `rule`: adjacent models whose z is below it share a rank
    z: Annotated[float, Field(gt=0, le=8)] = 1.645
    # consecutive_z: adjacent models with a small z tie; overlap: those whose intervals overlap
    rule: Annotated[str, one_of(*get_args(Rule))] = "consecutive_z"
    # how ties are numbered; dense: 1, 2, 2, 3; competition: 1, 2, 2, 4
    method: Annotated[str, one_of(*get_args(Method))] = "dense"


@dataclass
class PriorConfig:
    """Another run, possibly of other questions, whose first trials are the prior R0."""

    run: str | None = None  # run folder, or a folder of runs with one of the same name
    trials: Positive | None = None  # use only this many of its first trials; default: all
    weight: Annotated[float, Field(gt=0, le=10**6)] | None = None  # weight of the prior, in trials

    def problems(self) -> Iterator[str]:
        for key in ("trials", "weight"):
            if self.run is None and (value := getattr(self, key)) is not None:
                yield f"{key}={value:g} needs prior=RUN, the run folder to use"


@dataclass
class RubricConfig:
    """Rubrics, and weights that replace those of their files."""

    # names in configs/rubric, or files; default: all
    names: list[Named] = field(default_factory=list)
    # weights by rubric name: a list with one per category
    weights: dict[str, Any] = field(default_factory=dict)


@dataclass
class ThresholdsConfig:
    """The quantiles that rubrics compare with: computed, or frozen in a file."""

    file: Named | None = None  # a thresholds.json that `categorize` wrote
    # quantiles of each model, or of all runs of the dataset (cohort)
    scope: Annotated[str, one_of("model", "cohort")] = "cohort"
    include_invalid: bool = True  # include invalid attempts in the quantiles


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


def attempt_seed(cfg: RunConfig, question_id: str, trial: int) -> int | None:
    """Return the seed of one attempt; None if `sampling.seed` is null.

    With `sampling.seeds=shared` it is `sampling.seed` + trial for every question and model, the
    protocol of arXiv 2510.04265, appendix F.3. With `independent` it is a hash: the upper 53 bits
    of the 8-byte BLAKE2b digest (RFC 7693), big-endian, of the ASCII JSON array [seed,
    dataset.name, question_id, model.name, trial] without spaces. It never changes, because stored
    runs rely on it. Torch on a CPU uses the lower 32 bits of a seed, which are as good.
    """
    if cfg.sampling.seed is None or cfg.sampling.seeds == "shared":
        return None if cfg.sampling.seed is None else cfg.sampling.seed + trial
    return _hashed([cfg.sampling.seed, cfg.dataset.name, question_id, cfg.model.name, trial])


def continued_seed(seed: int | None, position: int) -> int | None:
    """Return the seed of an attempt that continues after `position` tokens: a hash of both.

    >>> continued_seed(1251, 32768), continued_seed(None, 32768)
    (3164383247724405, None)
    """
    return None if seed is None else _hashed([seed, position])


def option_order(
    cfg: RunConfig, question_id: str, count: int, trial: int | None = None
) -> tuple[int, ...]:
    """Return the order of a question's options in its prompt, as indices from 0.

    With `prompt.shuffle`, options are sorted by the hash of [prompt.shuffle_seed, dataset.name,
    question_id, trial, option], with trial null for `question`. It never changes.

    >>> cfg = RunConfig(dataset=DatasetConfig(name="gpqa"), prompt=PromptConfig(shuffle="trial"))
    >>> option_order(cfg, "q1", 4, trial=0), option_order(cfg, "q1", 4, trial=2)
    ((2, 0, 1, 3), (1, 3, 2, 0))
    """
    if cfg.prompt.shuffle == "none":
        return tuple(range(count))
    key = [cfg.prompt.shuffle_seed, cfg.dataset.name, question_id]
    key.append(trial if cfg.prompt.shuffle == "trial" else None)
    return tuple(sorted(range(count), key=lambda option: _hashed([*key, option])))


def _hashed(parts: list[Any]) -> int:
    digest = hashlib.blake2b(json.dumps(parts, separators=(",", ":")).encode(), digest_size=8)
    return int.from_bytes(digest.digest(), "big") >> 11  # 53 bits: exact in every JSON reader
