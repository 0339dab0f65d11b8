"""Settings of judges that write: their sampling, and how their judgements are read."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field

from bayes_at_n.pipeline.config.checks import Named, Positive, must, one_of
from bayes_at_n.pipeline.config.sampling import SamplingConfig
from bayes_at_n.verifiers.judge import judgement

MOST_SCORES = 127  # different scores of an attempt
_GROUP = "a regular expression with one group, the label"
Pattern = Annotated[str, must(_GROUP, lambda text: _groups(text) == 1)]


def _groups(text: str) -> int:
    try:
        return re.compile(text).groups
    except re.error:
        return 0


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
