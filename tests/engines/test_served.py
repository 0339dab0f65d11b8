"""What servers of several makers answer, read; and whatever else one may send."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.config.protocol import SamplingConfig
from bayes_at_n.pipeline.engines import served
from bayes_at_n.pipeline.engines.client import Retryable
from bayes_at_n.pipeline.engines.served import Response, SampleRequest
from bayes_at_n.pipeline.store.provenance import identity

SAMPLING = SamplingConfig(name="x", temperature=0.6, top_p=0.95)
ASK = SampleRequest([5, 6, 7], 100, 1234, SAMPLING, logprobs=True)
CHAT = SampleRequest([{"role": "user", "content": "1+1?"}], 100, 1234, SAMPLING, logprobs=True)
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


def read(data: Any) -> Response:
    return served.read(json.dumps(data).encode())


@pytest.mark.parametrize("ask", [ASK, CHAT])
def test_nothing_that_shapes_a_sample_is_left_open(ask: SampleRequest) -> None:
    body = ask.body("m")
    fields = {"temperature": 0.6, "top_p": 0.95, "top_k": -1, "min_p": 0.0, "seed": 1234}
    fields |= {"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
    assert fields.items() <= body.items()
    assert body["max_tokens"] == 100 and not body["stream"]
    assert "seed" not in replace(ask, seed=None).body("m")


def test_the_tokens_of_vllm() -> None:
    logprobs = {"token_logprobs": [-0.5, -1.5], "tokens": ["a", "b"], "top_logprobs": None}
    choice = {"text": "ab", "finish_reason": "stop", "token_ids": [8, 2], "logprobs": logprobs}
    choice |= {"prompt_token_ids": [5, 6, 7]}
    own = {"7": {"logprob": -4.0}, "1": {"logprob": -9.0}}
    choice["prompt_logprobs"] = [None, {"6": {"logprob": -3.0}}, own]
    answer = read({"id": "cmpl-1", "choices": [choice], "usage": USAGE})
    assert (answer.token_ids, answer.logprobs) == ([8, 2], [-0.5, -1.5])
    assert (answer.prompt_token_ids, answer.prompt_logprobs) == ([5, 6, 7], [None, -3.0, -4.0])


def test_reasoning_and_answer_are_both_kept() -> None:
    for name in ("reasoning", "reasoning_content"):
        message = {"role": "assistant", "content": "so 2", name: "1+1"}
        data = {"choices": [{"message": message, "finish_reason": "stop"}], "usage": USAGE}
        answer = read(data)
        assert (answer.reasoning, answer.text, answer.token_ids) == ("1+1", "so 2", None)
        assert (answer.prompt_tokens, answer.completion_tokens) == (3, 2)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"choices": [{}, {}]},
        {"choices": [{"text": 1}]},
        {"choices": [{"token_ids": [-1]}]},
        {"choices": [{"token_ids": [True]}]},
        {"choices": [{"logprobs": {"token_logprobs": [math.nan]}}]},
        {"choices": [{"logprobs": {"content": [None]}}]},
    ],
)
def test_what_is_no_answer_is_asked_for_again(data: Any) -> None:
    with pytest.raises(Retryable, match="answer"):
        read(data)


OF_CHOICES = ["choices", "usage", "message", "content", "text", "finish_reason", "reasoning", "id"]
OF_TOKENS = ["logprobs", "token_logprobs", "top_logprobs", "token_ids", "logprob"]
KEYS = st.sampled_from([*OF_CHOICES, *OF_TOKENS, "prompt_logprobs"])
LEAVES = st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=3)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(KEYS, JSON, max_size=4))
def test_any_object_is_an_answer_or_none(data: dict[str, Any]) -> None:
    for sent in (data, {"choices": [data], "usage": data}):
        try:
            answer = read(sent)
        except Retryable:
            continue
        assert isinstance(answer.finish_reason, str)
        for ids in (answer.token_ids, answer.prompt_token_ids):
            assert ids is None or all(type(i) is int for i in ids)
        assert answer.logprobs is None or all(map(math.isfinite, answer.logprobs))


def config(*settings: str) -> Any:
    return compose.load(["engine=openai", "engine.url=http://h/v1", *settings])


def test_fields_of_requests_are_part_of_what_a_run_is() -> None:
    plain, more = config(), config("engine.args.presence_penalty=1")
    assert identity(plain) != identity(more)
    local = [compose.load(["engine=vllm", *of]) for of in ([], ["engine.args.block_size=32"])]
    assert identity(local[0]) == identity(local[1])
