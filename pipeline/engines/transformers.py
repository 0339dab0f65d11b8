"""The engine `transformers`, for machines where vLLM cannot be installed.

It samples fixed batches step by step, with a random generator per attempt. The library's own
`generate` has one generator for a batch, and its continuous batching gives log-probs after top-p,
not the model's.
"""

import copy
import gc
import inspect
import itertools
import secrets
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
import transformers
from transformers.utils import is_flash_attn_2_available, is_peft_available

from bayes_at_n.pipeline.base.errors import UserError, install
from bayes_at_n.pipeline.config.protocol import SamplingConfig
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.engines import (
    Completion,
    Engine,
    Logprobs,
    OnStep,
    Request,
    Rows,
    load_errors,
    pull,
    steady_clock,
)
from bayes_at_n.pipeline.engines.text import Parser, ended, stop_length
from bayes_at_n.pipeline.prepare import models

_POSITIONS = 256  # of a prompt whose float32 log-probs over the vocabulary are in memory at once
_PADDED_TOKENS = 1 << 16  # of one forward pass over prompts, unless one prompt is longer
_NOISE_STEP = 2.0**-25  # half a step of the coarsest generator, which may draw exactly 0


class TransformersEngine(Engine):
    """A model loaded by transformers; see `pipeline.engines.Engine`.

    Requests run in batches of `engine.batch_size`, left-padded, in the order of arrival. A batch
    ends with its longest attempt, but each attempt is yielded at the step that ends it. The random
    numbers of an attempt depend on its seed alone; padding and the other attempts of a batch may
    change the low-order bits of its logits, most of all in bfloat16, and so now and then a token,
    as in vLLM (docs/architecture.md). `engine.args` goes to `from_pretrained`
    (attn_implementation, device_map). Prompts may have any length.
    """

    def __init__(self, cfg: RunConfig, longest: int, rows: Rows = ()) -> None:
        self.cfg = cfg
        device = _device(cfg.engine.device, f"{cfg.engine.key}.device")
        transformers.utils.logging.disable_progress_bar()
        args = {"dtype": cfg.model.dtype, "device_map": {"": device}} | dict(cfg.engine.args)
        with load_errors(cfg):
            self.tokenizer = models.tokenizer(cfg.model)
            self.model = transformers.AutoModelForCausalLM.from_pretrained(
                models.locate(cfg.model),
                revision=cfg.model.revision,
                trust_remote_code=cfg.model.trust_remote_code,
                **args,
            ).eval()
            if (folder := models.adapter(cfg.model)) is not None:
                if not is_peft_available():
                    remedy = f"{install('peft')}, or use engine=vllm"
                    raise UserError(f"model.adapter={folder}: transformers needs PEFT: {remedy}")
                self.model.load_adapter(str(folder))
        self.parser = Parser(cfg, self.tokenizer) if cfg.model.reasoning_parser else None
        ends = self.model.generation_config.eos_token_id
        ends = [*(ends if isinstance(ends, list) else [ends]), self.tokenizer.eos_token_id]
        self.stop_ids = {int(token) for token in ends if token is not None}
        # Logits of all positions over the whole vocabulary would take most of the memory.
        last_only = "logits_to_keep" in inspect.signature(self.model.forward).parameters
        self.last_only = {"logits_to_keep": 1} if last_only else {}
        # Inputs go to the device of the first layer, since device_map may split the model.
        self.device = self.model.get_input_embeddings().weight.device

    @staticmethod
    def label_args(cfg: RunConfig) -> dict[str, Any]:
        """Choose FlashAttention if the package is installed and a GPU supports it."""
        gpu = torch.cuda.is_available() and (cfg.engine.device or "cuda").startswith("cuda")
        half = cfg.model.dtype in ("bfloat16", "float16")
        flash = gpu and half and is_flash_attn_2_available()
        return {"attn_implementation": "flash_attention_2"} if flash else {}

    def generate(self, requests: Iterable[Request | None]) -> Generator[Completion | None]:
        waiting, more = iter(requests), True
        while more:
            taken, more = pull(waiting, self.cfg.engine.batch_size)
            if not taken:
                yield None
            for _, requests_of_run in itertools.groupby(taken, lambda request: request.run):
                try:
                    yield from self._sample(_Batch(self, [*requests_of_run]))
                except torch.OutOfMemoryError as error:
                    raise UserError(
                        f"out of memory with {len(taken)} attempts in a batch; lower"
                        " engine.batch_size (or sampling.max_tokens)"
                    ) from error

    def _sample(self, batch: "_Batch") -> Iterator[Completion | None]:
        """Yield the completions of a batch as they end, and None after every step."""
        ids, mask = self._left_padded([r.context for r in batch.requests])
        newest, cache = ids, None
        while batch.running:
            with torch.inference_mode():
                made = self._next(newest, mask, past_key_values=cache, use_cache=True)
                logits, cache = made.logits[:, -1].float().to(self.device), made.past_key_values
                sampled = batch.sample(ids, logits)
                newest = sampled[:, None]
                ids = torch.cat([ids, newest], dim=1)
                mask = torch.cat([mask, torch.ones_like(newest)], dim=1)
            yield from batch.step(sampled, logits)
            yield None

    def _next(self, ids: Any, mask: Any, **options: Any) -> Any:
        """Return the model's output on the last tokens of a left-padded batch."""
        positions = (mask.cumsum(-1) - 1).clamp_min(0)[:, -ids.shape[1] :]
        options |= self.last_only
        return self.model(input_ids=ids, attention_mask=mask, position_ids=positions, **options)

    def _left_padded(self, prompts: list[list[int]]) -> tuple[Any, Any]:
        """Return padded token ids and mask, int64 [prompts, longest]."""
        width = max(len(prompt) for prompt in prompts)
        ids = [[0] * (width - len(prompt)) + prompt for prompt in prompts]
        mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        return torch.tensor(ids, device=self.device), torch.tensor(mask, device=self.device)

    def prompt_logprobs(
        self, prompts: list[list[int]], after: Sequence[int] = ()
    ) -> list[Logprobs]:
        """Score one prompt at a time, so that memory depends on the longest one only.

        With `after` a prompt continues a copy of the cache of its tokens without a score.
        """
        scored = [np.full(len(prompt), np.nan, dtype=np.float32) for prompt in prompts]
        before, cache = list[int](), None
        for i, (prompt, values) in enumerate(zip(prompts, scored, strict=True)):
            # The last token without a score gives the first logits.
            head, rest = prompt[: (known := after[i] - 1 if after else 0)], prompt[known:]
            ids = torch.tensor([rest], device=self.device)
            with torch.inference_mode():
                if head and head != before:
                    first = torch.tensor([head], device=self.device)
                    made = self.model(input_ids=first, use_cache=True, **self.last_only)
                    before, cache = head, made.past_key_values
                kept = {"past_key_values": copy.deepcopy(cache)} if head else {"use_cache": False}
                logits = self.model(input_ids=ids, **kept).logits[0, :-1]
                targets = ids[0, 1:].to(logits.device)
                for start in range(0, len(targets), _POSITIONS):
                    part = slice(start, start + _POSITIONS)
                    logprobs = _logprobs(logits[part].float(), targets[part])
                    values[known + 1 :][part] = logprobs.cpu().numpy()
        return scored

    def next_logprobs(
        self, prompts: Sequence[list[int]], token_ids: list[int], on_step: OnStep
    ) -> Logprobs:
        """Score in batches of similar length, left-padded, so that the next token is last."""
        values = np.empty((len(prompts), len(token_ids)), dtype=np.float32)
        for rows in _batches(prompts, self.cfg.engine.batch_size):
            ids, mask = self._left_padded([prompts[row] for row in rows])
            with torch.inference_mode():
                logits = self._next(ids, mask, use_cache=False).logits[:, -1]
                logprobs = torch.log_softmax(logits.float(), dim=-1)
                values[rows] = logprobs[:, token_ids].cpu().numpy()
            on_step()
        return values

    def describe(self) -> dict[str, Any]:
        return {
            "engine": "transformers",
            "transformers": transformers.__version__,
            "torch": torch.__version__,
            "device": str(self.device),
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "attn_implementation": self.model.config._attn_implementation,
            "batch_size": self.cfg.engine.batch_size,
            "logprobs_mode": "raw_logprobs",
            "stop_token_ids": sorted(self.stop_ids),
        }

    def close(self) -> None:
        del self.model
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        elif self.device.type == "mps":
            torch.mps.empty_cache()


class _Batch:
    """The requests of one batch: of one run, sampled together until the last one has ended.

    In each step the penalties weaken tokens that were used, the warpers mask some, noise makes the
    arg max a sample of the rest, and `step` records the token of every unfinished row.
    """

    def __init__(self, engine: TransformersEngine, requests: list[Request]) -> None:
        self.engine, self.requests = engine, requests
        self.cfg = requests[0].cfg or engine.cfg
        self.warpers = _warpers(self.cfg.sampling)
        self.generators = [
            torch.Generator(engine.device).manual_seed(
                secrets.randbits(63) if request.seed is None else request.seed
            )
            for request in requests
        ]
        self.tokens: list[list[int]] = [[] for _ in requests]
        self.logprobs: list[list[float]] = [[] for _ in requests]
        # The most tokens of a stop string: one a byte, and some that decode to nothing.
        self.tail = max((len(word.encode()) + 4 for word in self.cfg.stops), default=0)
        self.begun = [r.so_far([])[-self.tail :] if self.tail else [] for r in requests]
        self.running = list(range(len(requests)))
        # Of tokens in the prompt, bool, and in the response, float32: [rows, vocabulary].
        self.in_prompt: Any = None
        self.counts: Any = None
        self.now = steady_clock()
        self.started = self.first_token = self.now()

    def sample(self, ids: Any, logits: Any) -> Any:
        """Return the next token of each row, int64 [rows]; `logits`: float32 [rows, vocabulary]."""
        s, scores = self.cfg.sampling, logits
        if (s.presence_penalty, s.frequency_penalty, s.repetition_penalty) != (0, 0, 1):
            scores = self.penalize(ids, scores)
        for warper in self.warpers:
            scores = warper(ids, scores)
        return (self._with_noise(scores) if s.temperature > 0 else scores).argmax(-1)

    def penalize(self, ids: Any, scores: Any) -> Any:
        """Weaken tokens that were used before, as vLLM defines penalties.

        A token in prompt or response has a positive logit divided by `repetition_penalty`, a
        negative one multiplied; then one in the response loses `presence_penalty`, and
        `frequency_penalty` for each time. Transformers has the first of them only, and applies it
        to padding, too.
        """
        s = self.cfg.sampling
        if self.counts is None:
            self.counts = torch.zeros_like(scores)
            self.in_prompt = torch.zeros_like(scores, dtype=torch.bool)
            for row, request in enumerate(self.requests):
                self.in_prompt[row, request.context] = True
        else:
            self.counts.scatter_add_(1, ids[:, -1:], torch.ones_like(scores[:, :1]))
        used = self.counts > 0
        factor = torch.where(scores > 0, 1 / s.repetition_penalty, s.repetition_penalty)
        scores = torch.where(self.in_prompt | used, scores * factor, scores)
        return scores - s.frequency_penalty * self.counts - s.presence_penalty * used

    def _with_noise(self, scores: Any) -> Any:
        """Add Gumbel noise: the arg max of the sum is an exact sample of softmax(scores).

        This is the Gumbel-max trick (Maddison, Tarlow and Minka, "A* Sampling", 2014, section 2).
        Each row has its own generator, so rows are filled in a loop: one short kernel per row, much
        less than a forward pass.
        """
        noise = torch.ones_like(scores)
        for row in self.running:
            noise[row].exponential_(generator=self.generators[row])
        return scores - noise.clamp_min_(_NOISE_STEP).log_()

    def step(self, newest: Any, logits: Any) -> Iterator[Completion]:
        """Record the newest token of every running row; yield those that it ends."""
        now, tokens = self.now(), newest.tolist()
        logprobs = _logprobs(logits, newest).tolist() if self.cfg.sampling.logprobs else None
        if not self.tokens[0]:
            self.first_token = now
        for row in list(self.running):
            self.tokens[row].append(tokens[row])
            if logprobs is not None:
                self.logprobs[row].append(logprobs[row])
            stopped = tokens[row] in self.engine.stop_ids or self._at_stop_string(row)
            if stopped or len(self.tokens[row]) >= self.requests[row].max_tokens:
                self.running.remove(row)
                yield self._completion(row, "stop" if stopped else "length", now)

    def _at_stop_string(self, row: int) -> bool:
        if not self.tail:
            return False
        last = (self.begun[row] + self.tokens[row][-self.tail :])[-self.tail :]
        return stop_length(self.engine.tokenizer, self.cfg, last) is not None

    def _completion(self, row: int, reason: str, now: float) -> Completion:
        request, tokens, tokenizer = self.requests[row], self.tokens[row], self.engine.tokenizer
        logprobs = self.logprobs[row] if self.cfg.sampling.logprobs else None
        return Completion(
            request=request,
            **ended(tokenizer, self.cfg, request, tokens, logprobs, reason, self.engine.parser),
            started=self.started,
            first_token=self.first_token,
            finished=now,
        )


def _warpers(s: SamplingConfig) -> list[Any]:
    """Return the functions from scores to scores, in vLLM's order; temperature 0 is greedy."""
    if s.temperature == 0:
        return []
    warpers: list[Any] = [transformers.TemperatureLogitsWarper(float(s.temperature))]
    if s.min_p > 0:
        warpers.append(transformers.MinPLogitsWarper(s.min_p))
    if s.top_k is not None:
        warpers.append(transformers.TopKLogitsWarper(s.top_k))
    if s.top_p < 1:
        warpers.append(transformers.TopPLogitsWarper(s.top_p))
    return warpers


def _logprobs(logits: Any, tokens: Any) -> Any:
    """Return natural log-probs, float32 [n], of tokens [n] under logits [n, vocabulary]."""
    return torch.log_softmax(logits, dim=-1).gather(-1, tokens[:, None])[:, 0]


def _batches(prompts: Sequence[list[int]], most: int) -> Iterator[list[int]]:
    """Yield batches of indices of prompts, longest first, limited in prompts and padded tokens."""
    order = sorted(range(len(prompts)), key=lambda row: -len(prompts[row]))
    while order:
        size = min(most, max(1, _PADDED_TOKENS // len(prompts[order[0]])))
        yield order[:size]
        del order[:size]


def _device(name: str | None, key: str) -> torch.device:
    """Return a device by name, by default the first available of GPU, Apple's GPU and CPU."""
    devices = [f"cuda:{n}" for n in range(torch.cuda.device_count())]
    devices += ["mps"] if torch.backends.mps.is_available() else []
    devices += ["cpu"]
    device = {None: devices[0], "cuda": "cuda:0"}.get(name, name)
    if device not in devices:
        raise UserError(
            f"{key}={name}: not available on this machine (torch sees {', '.join(devices)}); leave"
            f" {key} out to use the first of these, or install a torch built for it"
        )
    return torch.device(device)
