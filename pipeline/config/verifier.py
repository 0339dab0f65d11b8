"""The settings of the model that judges attempts: its prompt, labels and calibration.

A judge that writes also has a sampling protocol, and rules by which its judgements are read.
"""

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from bayes_at_n.pipeline.base.program import PACKAGES
from bayes_at_n.pipeline.config.checks import Above0, Named, Positive, must, one_of
from bayes_at_n.pipeline.config.protocol import Dtype, ModelConfig, SamplingConfig
from bayes_at_n.pipeline.config.resources import BudgetConfig, VerifierEngineConfig
from bayes_at_n.verifiers.judge import judgement

OFFICIAL = "official"  # the verifier.prompt that `prefetch` downloads
FOLDER = PACKAGES / "prompts" / "verifier"
FIELDS = ("question", "gold", "response", "answer")  # of a verifier's prompt
MOST_SCORES = 127  # different scores of an attempt
_GROUP = "a regular expression with one group, the label"
Pattern = Annotated[str, must(_GROUP, lambda text: re.compile(text).groups == 1)]


@dataclass
class JudgeSampling(SamplingConfig):
    """The sampling protocol of a judge; `trials` are its votes on an attempt."""

    name: str = "judge"  # name in records
    trials: Annotated[int, Field(ge=1, le=100)] = 1  # votes
    max_tokens: Positive = 8192  # completion tokens per vote
    prompt_logprobs: bool = False  # store log-probs of prompts


@dataclass
class JudgementConfig:
    """How the judgement of a judge with `kind=generate` is read."""

    # regular expression with one group, the label; its last match outside of quotations counts
    pattern: Pattern = judgement.LINE
    # read the label from this key of a JSON object instead, which the engine enforces
    key: Named | None = None
    # label: correct, wrong, no_answer or points; default: correct, incorrect, not_attempted
    labels: dict[str, Any] = field(default_factory=dict)
    # most points of an attempt; the labels are then 0 to this by default
    points: Annotated[int, Field(ge=1, le=100)] | None = None
    # score of 0, 1, ... points; default: their share of the most
    weights: list[float] = field(default_factory=list)
    # what several votes make of an attempt: the mean of their scores, or the most frequent vote
    votes: Annotated[str, one_of("mean", "majority")] = "mean"

    def problems(self) -> Iterator[str]:
        known = [*judgement.OUTCOMES] if self.points is None else [*range(self.points + 1)]
        if bad := [label for label, means in self.labels.items() if means not in known]:
            means = f"labels.{bad[0]}={self.labels[bad[0]]}"
            yield f"{means}: must be one of {', '.join(map(str, known))}"
        if self.weights and len(self.weights) != len(known) * (self.points is not None):
            yield f"weights: must be {len(known)} numbers, one for each number of judgement.points"

    @property
    def form(self) -> judgement.Form:
        """Return how judgements are read."""
        own = judgement.LABELS if self.points is None else judgement.points(self.points)
        labels = {str(k).casefold(): v for k, v in self.labels.items()} or own
        return judgement.Form(labels, self.pattern, self.key or "")

    @property
    def scores(self) -> list[float] | None:
        """Return the score of 0, 1, ... points; None: outcomes are correct or not."""
        if self.points is None:
            return None
        return self.weights or [n / self.points for n in range(self.points + 1)]

    def means(self, votes: int) -> list[float] | None:
        """Return all scores that an attempt may get by so many votes; None: correct or not.

        >>> JudgementConfig().means(4), JudgementConfig(points=2).means(1)
        ([0.0, 0.25, 0.5, 0.75, 1.0], [0.0, 0.5, 1.0])
        """
        if votes == 1 or self.votes == "majority":
            return self.scores
        each, sums = self.scores or [0.0, 1.0], {0.0: 0.0}
        for _ in range(votes):
            sums = {round(a + b, 9): a + b for a in sums.values() for b in each}
            if len(sums) > MOST_SCORES:
                break
        return [sums[near] / votes for near in sorted(sums)]

    @property
    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of a judge's text; empty without `key`."""
        if self.key is None:
            return {}
        whole: dict[str, Any] = {"type": "integer", "minimum": 0, "maximum": self.points}
        label = whole if self.points and not self.labels else {"enum": [*self.form.labels]}
        fields = {"reasoning": {"type": "string"}, self.key: label}
        shape = {"type": "object", "properties": fields, "required": [*fields]}
        return shape | {"additionalProperties": False}


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
    kind: Annotated[str, one_of("chat", "plain", "generate")] = "chat"
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


class VerifierModel(ModelConfig):
    """The verifier's settings in the form of a model's."""

    key = "verifier"


@dataclass
class LabelsConfig:
    """Human labels: `label` makes a page for them, `score` corrects scores by them."""

    file: Named | None = None  # labels to add: JSON Lines with question_id, trial, correct
    sample: Positive | None = None  # attempts to draw, beside those drawn before


def template_file(prompt: str) -> Path:
    """Return the file of a `verifier.prompt`, a name in prompts/verifier/ or a path."""
    named = FOLDER / f"{prompt}.txt"
    return named if named.is_file() else Path(prompt).expanduser()
