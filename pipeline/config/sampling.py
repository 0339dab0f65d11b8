"""What is sampled and how: a model, what its authors ask for, a prompt, and the protocol."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from typing import Annotated, Any

from pydantic import Field

from bayes_at_n.pipeline.config.checks import (
    MISSING,
    Above0,
    FolderName,
    Named,
    Natural,
    Positive,
    Seed,
    Share,
    must,
    one_of,
)

Temperature = Annotated[float, Field(ge=0, le=2)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
MinP = Annotated[float, Field(ge=0, le=1)]
Stops = list[Annotated[str, Field(min_length=1)]]
Day = Annotated[str, must("a date, YYYY-MM-DD", date.fromisoformat)]


Dtype = Annotated[str, one_of("auto", "bfloat16", "float16", "float32")]


@dataclass
class AboutConfig:
    """Where the facts in a YAML file come from; read by `catalogue` and tests only."""

    license: str | None = None  # SPDX id, or the words of its page; null: no source names it
    source: str | None = None  # public file that confirms the other keys: OWNER/NAME@COMMIT/PATH
    unverified: bool = False  # no public file confirms some of it; a run warns


@dataclass
class CardConfig:
    """What a model's authors ask for beyond its generation_config.json; null: they do not say."""

    temperature: Temperature | None = None  # 0: greedy
    top_p: Share | None = None  # nucleus sampling; 1: off
    top_k: Natural | None = None  # most likely tokens; 0: off
    min_p: MinP | None = None  # least probability, relative to the likeliest token's; 0: off
    presence_penalty: Penalty | None = None  # subtracted from logits of tokens in the response
    frequency_penalty: Penalty | None = None  # as presence_penalty, times their count
    repetition_penalty: Above0 | None = None  # weakens logits of tokens in prompt and response
    max_tokens: Positive | None = None  # completion tokens per attempt
    context: Positive | None = None  # context length, for `model.context`
    system: str | None = None  # system message, for `model.system`
    # variables of the chat template, added to the model's
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    source: str | None = None  # address or file of the text that asks for this
    date: Day | None = None  # when it was read there


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


@dataclass
class PromptConfig:
    """How a problem becomes a prompt."""

    name: str = MISSING  # name in records
    template: str = MISSING  # user's turn, with {problem} and optionally {choices}
    # more such templates; trials use all of them in turn, `template` first
    variants: list[str] = field(default_factory=list)
    kind: Annotated[str, one_of("chat", "plain")] = (
        "chat"  # chat: with the chat template; plain: the text alone
    )
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


@dataclass
class RepetitionDetection:
    """vLLM's detector, which ends an attempt whose last tokens repeat one pattern."""

    max_pattern_size: Natural = 0  # tokens of the longest pattern looked for; 0: off
    min_pattern_size: Natural = 0  # tokens of the shortest; 0: 1
    min_count: Natural = 0  # repetitions that end an attempt

    def problems(self) -> Iterator[str]:
        if self.min_pattern_size > self.max_pattern_size:
            yield f"min_pattern_size={self.min_pattern_size}: must not exceed max_pattern_size"
        if self.max_pattern_size and self.min_count < 2:
            yield f"max_pattern_size={self.max_pattern_size}: needs a min_count of at least 2"


@dataclass
class SamplingConfig:
    """The sampling protocol."""

    name: str = MISSING  # name in records
    trials: Annotated[int, Field(ge=1, le=10**6)] = 80  # attempts per question
    temperature: Temperature = 0.6  # 0: greedy
    top_p: Share = 0.95  # nucleus sampling; 1: off
    top_k: Positive | None = None  # sample from the most likely tokens, this many; null: off
    min_p: MinP = 0.0  # least probability, relative to the likeliest token's; 0: off
    presence_penalty: Penalty = 0.0  # subtracted from logits of tokens in the response
    frequency_penalty: Penalty = 0.0  # as presence_penalty, times their count
    repetition_penalty: Above0 = 1.0  # weakens logits of tokens in prompt and response; 1: off
    stop: Stops = field(default_factory=list)  # strings that end an attempt, beside prompt.stop
    max_tokens: Positive = 32768  # completion tokens per attempt
    thinking_budget: Natural | None = None  # reasoning tokens per attempt, in vLLM; null: no limit
    repetition_detection: RepetitionDetection = field(default_factory=RepetitionDetection)
    json_schema: dict[str, Any] = field(default_factory=dict)  # responses must follow it
    seed: Seed | None = 1234  # up to 62 bits; null: not seeded
    # shared: seed + trial for all questions and models; independent: a hash (attempt_seed)
    seeds: Annotated[str, one_of("shared", "independent")] = "shared"
    logprobs: bool = True  # store log-probs of sampled tokens
    prompt_logprobs: bool = True  # store log-probs of prompts
    # score given texts by their log-probs instead of sampling: the options, or the gold answer
    likelihood: Annotated[str, one_of("options", "gold")] | None = None
    card: bool = False  # use what the model's authors ask for where no setting is typed

    def problems(self) -> Iterator[str]:
        if self.temperature == 0 and self.trials > 1:
            yield "temperature=0: all greedy attempts are equal; set sampling.trials=1"
        if self.likelihood and self.trials > 1:
            yield f"likelihood={self.likelihood}: nothing is random; set sampling.trials=1"
