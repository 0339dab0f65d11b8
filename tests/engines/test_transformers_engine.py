"""engine=transformers on a real, tiny, random model, against forward passes made here."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
import transformers
from helpers import enlarge, make_model
from scipy import stats

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.engines import Completion, Request, load
from bayes_at_n.pipeline.engines.text import decode
from bayes_at_n.pipeline.engines.transformers import TransformersEngine
from bayes_at_n.pipeline.generate.attempts import row_of
from bayes_at_n.pipeline.store.columns import ATTEMPTS

PROMPTS = ["1+1?", "What is 12 * 34?", "x", "Solve 3x = 12 for x, and then say why."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with larger weights.

    Its generation_config asks for top_k=1, which must not slip in.
    """
    path = make_model(tmp_path_factory.mktemp("model"))
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    enlarge(model, 8)
    model.generation_config.update(do_sample=True, top_k=1, top_p=0.5, repetition_penalty=5.0)
    model.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def plain(folder: Path) -> Any:
    """The same model without the engine."""
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def prompts(folder: Path) -> list[list[int]]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return [
        tokenizer.encode(f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n")
        for text in PROMPTS
    ]


def engine(folder: Path, *overrides: str) -> TransformersEngine:
    fixed = "model=custom model.dtype=float32 dataset=jsonl dataset.path=none.jsonl"
    fixed += " engine=transformers engine.device=cpu"
    made = load(compose.load([*fixed.split(), f"model.id={folder}", *overrides]), longest=500)
    assert isinstance(made, TransformersEngine)
    return made


def request(prompt: list[int], seed: int | None, max_tokens: int = 12, trial: int = 0) -> Request:
    return Request("q", trial, prompt, max_tokens, seed)


def complete(made: TransformersEngine, requests: list[Request]) -> list[Completion]:
    """All completions, in the order of the requests."""
    done = [c for c in made.generate(requests) if c is not None]
    assert len(done) == len(requests)
    place = {id(r): n for n, r in enumerate(requests)}
    return sorted(done, key=lambda c: place[id(c.request)])


def logprobs_of(model: Any, ids: list[int]) -> Any:
    """Log-probs, float64 [tokens, vocabulary], from one forward pass without cache or padding."""
    with torch.no_grad():
        return torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), -1)


def test_a_seed_gives_the_same_alone_and_in_company(folder: Path, prompts: list[list[int]]) -> None:
    made = engine(folder)
    mine = request(prompts[1], seed=7, max_tokens=24)
    others = [request(p, 100 + n, 5 + 7 * n) for n, p in enumerate(prompts * 2)]
    [alone] = complete(made, [mine])
    [again] = complete(made, [mine])
    together = complete(made, [*others, mine])[-1]
    assert alone.token_ids == again.token_ids == together.token_ids
    assert alone.text == again.text == together.text
    np.testing.assert_allclose(together.logprobs, alone.logprobs, atol=1e-4)
    by_seed = [c.token_ids for c in complete(made, [request(prompts[1], s) for s in range(8)])]
    assert len({tuple(ids) for ids in by_seed}) == 8
    unseeded = complete(made, [request(prompts[1], None) for n in range(4)])
    assert len({tuple(c.token_ids) for c in unseeded}) == 4


def test_logprobs_are_the_raw_ones_of_an_independent_forward_pass(
    folder: Path, plain: Any, prompts: list[list[int]]
) -> None:
    made = engine(folder, "sampling.top_k=20")
    for done in complete(made, [request(p, 1234 + n, 20) for n, p in enumerate(prompts)]):
        prompt = done.request.prompt_token_ids
        table = logprobs_of(plain, prompt + done.token_ids)[len(prompt) - 1 : -1]
        expected = [table[i, t].item() for i, t in enumerate(done.token_ids)]
        np.testing.assert_allclose(done.logprobs, expected, atol=1e-4)


@pytest.mark.parametrize(
    ("top_p", "top_k"),
    [(0.95, 6), *(pytest.param(p, None, marks=pytest.mark.soak) for p in (0.95, 1.0))],
)
def test_sampling_follows_the_distribution(
    folder: Path, plain: Any, prompts: list[list[int]], top_p: float, top_k: int | None
) -> None:
    settings = f"sampling.top_p={top_p}", f"sampling.top_k={top_k or 'null'}"
    made = engine(folder, *settings, "engine.batch_size=1000", "engine.in_flight=1000")
    count = 4000
    done = complete(made, [request(prompts[1], seed, 1) for seed in range(count)])
    found = np.bincount([c.token_ids[0] for c in done], minlength=plain.config.vocab_size)
    p = expected_probabilities(logprobs_of(plain, prompts[1])[-1].numpy(), 0.6, top_p, top_k)
    assert (p > 0).sum() >= 2 and 0.05 < p.max() < 0.9, "this model tests nothing"
    assert found[p == 0].sum() == 0
    # Cells of an expected count under 5 are pooled, as the chi-square test needs.
    large = p * count >= 5
    observed = [*found[large], found[~large].sum()]
    expected = [*(p[large] * count), p[~large].sum() * count]
    if expected[-1] == 0:
        observed, expected = observed[:-1], expected[:-1]
    assert stats.chisquare(observed, expected).pvalue > 1e-3


def expected_probabilities(
    logprobs: Any, temperature: float, top_p: float, top_k: int | None
) -> Any:
    """Temperature, then top-k, then the smallest set of tokens whose mass reaches top-p."""
    p = np.exp(logprobs / temperature)
    order = np.argsort(-p)
    if top_k is not None:
        p[order[top_k:]] = 0
    p /= p.sum()
    before = np.cumsum(p[order]) - p[order]
    p[order[before >= top_p]] = 0
    return p / p.sum()


def test_each_request_has_its_own_max_tokens(folder: Path, prompts: list[list[int]]) -> None:
    made = engine(folder, "engine.batch_size=3", "sampling.logprobs=false")
    made.stop_ids = set()  # nothing but the limit ends an attempt
    limits = [9, 2, 5, 1, 4]
    taken = []

    def requests() -> Any:
        for n, limit in enumerate(limits):
            taken.append(n)
            yield request(prompts[n % 4], n, limit, trial=n)

    order, steps = [], 0
    for item in made.generate(requests()):
        if item is None:
            steps += 1
            continue
        assert len(taken) == (3 if item.request.trial < 3 else 5)
        assert len(item.token_ids) == item.request.max_tokens
        assert item.finish_reason == "length"
        assert item.logprobs is None
        assert item.started <= item.first_token <= item.finished
        order.append((item.request.trial, steps))
    # One None a step: an attempt of n tokens comes after n - 1 of them, in its batch.
    assert order == [(1, 1), (2, 4), (0, 8), (3, 9), (4, 12)]
    assert steps == 9 + 4


def test_an_attempt_goes_on_from_its_tokens(
    folder: Path, plain: Any, prompts: list[list[int]]
) -> None:
    made = engine(folder)
    first = complete(made, [request(p, 7 + n, 9) for n, p in enumerate(prompts)])
    begun = [row_of(replace(c, started=0.0, first_token=0.5, finished=1.0)) for c in first]
    begun = [pa.Table.from_pylist([row], ATTEMPTS).to_pylist()[0] for row in begun]
    asked = [replace(c.request, begun=b, seed=99) for c, b in zip(first, begun, strict=True)]
    for done in complete(made, asked):
        prompt = done.request.prompt_token_ids
        ids = done.request.so_far(done.token_ids)
        table = logprobs_of(plain, prompt + ids)[len(prompt) - 1 : -1]
        row = row_of(done)
        assert row["token_ids"].tolist() == ids and row["continued_from"] == 9
        assert row["completion_tokens"] == len(ids) == len(row["logprobs"]) <= 18
        assert row["seed"] == done.request.begun["seed"] and row["prompt_tokens"] == len(prompt)
        expected = [table[i, t].item() for i, t in enumerate(ids)]
        np.testing.assert_allclose(row["logprobs"], expected, atol=1e-4)
        assert row["text"] == decode(made.tokenizer, ids, done.finish_reason == "stop", made.cfg)
        assert row["finished"] - row["started"] == pytest.approx(1 + done.finished - done.started)


def test_an_end_token_stops_and_is_kept(folder: Path, prompts: list[list[int]]) -> None:
    made = engine(folder)
    tokenizer = made.tokenizer
    assert made.stop_ids == {tokenizer.eos_token_id}
    requests = [request(p, n, 30) for n, p in enumerate(prompts * 2)]
    free = complete(made, requests)
    # What the seeds draw most often becomes the end token: the same draws, cut at the first one.
    pool = [t for c in free for t in c.token_ids if t not in tokenizer.all_special_ids]
    made.stop_ids = {stop := max(set(pool), key=pool.count)}
    for before, after in zip(free, complete(made, requests), strict=True):
        length = before.token_ids.index(stop) + 1 if stop in before.token_ids else None
        assert after.token_ids[: len(before.token_ids)] == before.token_ids[:length]
        assert len(after.logprobs or []) == len(after.token_ids)
        if length is not None:
            assert after.finish_reason == "stop" and after.token_ids[-1] == stop
            assert after.text == tokenizer.decode(after.token_ids[:-1], skip_special_tokens=True)


def test_a_stop_string_ends_an_attempt_also_across_a_raised_cap(
    folder: Path, prompts: list[list[int]]
) -> None:
    greedy = ["sampling.temperature=0", "sampling.trials=1"]
    [free] = complete(engine(folder, *greedy), [request(prompts[1], 0, 40)])
    ids, text = free.token_ids, free.text
    assert ids and free.logprobs
    word = next(
        text[i : i + 3]
        for i in range(5, len(text))
        if text.find(text[i : i + 3]) == i and text[i : i + 3].isprintable()
    )
    made = engine(folder, *greedy)
    made.cfg.prompt.stop, made.cfg.prompt.prefix = ["nowhere", word], "So "
    n = next(n for n in range(40) if word in made.tokenizer.decode(ids[:n]))
    for k in [0, *range(n - 4, n)]:
        begun = {"token_ids": ids[:k]} if k else None
        [done] = complete(made, [replace(request(prompts[1], 0, 40 - k), begun=begun)])
        assert done.request.so_far(done.token_ids or []) == ids[:n]
        assert done.finish_reason == "stop" and done.text == "So " + text[: text.find(word)]
        np.testing.assert_allclose(done.logprobs, free.logprobs[k:n], atol=1e-4)


def test_prompt_logprobs_equal_an_independent_forward_pass(
    folder: Path, plain: Any, prompts: list[list[int]]
) -> None:
    made = engine(folder)
    longer = [*prompts, (prompts[3] * 9)[:400], prompts[0][:1]]  # 400: more than one slice
    for prompt, found in zip(longer, made.prompt_logprobs(longer), strict=True):
        assert found.dtype == np.float32 and found.shape == (len(prompt),)
        assert math.isnan(found[0])
        table = logprobs_of(plain, prompt)
        expected = [table[i, t].item() for i, t in enumerate(prompt[1:])]
        np.testing.assert_allclose(found[1:], expected, atol=1e-4)


def test_what_prompts_begin_with_is_prefilled_once(folder: Path, prompts: list[list[int]]) -> None:
    made, fed = engine(folder), list[int]()
    head, forward = prompts[0], made.model.forward
    several = [[*head, 5, 6, 7], [*head, 6], [*head, 5, 6], [*prompts[1][:1], 5]]
    whole = made.prompt_logprobs(several)
    made.model.forward = lambda **of: fed.append(of["input_ids"].shape[1]) or forward(**of)
    known = [len(head)] * 3 + [1]
    for a, b, n in zip(made.prompt_logprobs(several, known), whole, known, strict=True):
        assert np.isnan(a[:n]).all()
        np.testing.assert_allclose(a[n:], b[n:], atol=1e-4)
    assert fed == [len(head) - 1, 4, 2, 3, 2]


def test_settings_that_torch_or_the_model_refuses_are_named(folder: Path) -> None:
    for override in ("engine.device=cuda:99", "engine.args.nonsense=1"):
        with pytest.raises(UserError, match=override.rpartition(".")[0]):
            engine(folder, override)
