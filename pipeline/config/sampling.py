"""The sampling protocol of a run, and what the authors of a model ask for."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from typing import Annotated, Any

from pydantic import Field

from bayes_at_n.pipeline.config.checks import (
    MISSING,
    Above0,
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
    # shared: seed + trial for all questions and models; independent: a hash (config/seeds.py)
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
