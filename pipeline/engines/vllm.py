"""The engine `vllm`, driven through its step loop: one request per trial, each with its own seed.

vLLM's names are used in `vllm*.py` of this folder only.
"""

import copy
import gc
import os
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import asdict
from itertools import repeat
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np

from bayes_at_n.pipeline.base.children import dying_with_parent
from bayes_at_n.pipeline.base.errors import one_line
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.engines import (
    Completion,
    Engine,
    Logprobs,
    NotSupported,
    OnStep,
    Request,
    Rows,
    load_errors,
    pull,
    steady_clock,
)
from bayes_at_n.pipeline.engines.text import Parser, ended, name_of
from bayes_at_n.pipeline.engines.vllm_core import Core, import_vllm, without
from bayes_at_n.pipeline.prepare import models, sizing

# By name, because importing it imports torch.
_WORKER = "bayes_at_n.pipeline.engines.vllm_worker.WorkerExtension"
_CPU_BLOCK = 128  # tokens of a block of the cache
_GIB = 1 << 30
# A request has two outputs: its first token, for the time, and at the end the rest. An output per
# step would cost a tenth of a CPU engine's speed. (Only DELTA outputs respect the interval.)
_FIRST_AND_REST = 1 << 30
_ABORTED = SimpleNamespace(token_ids=(), finish_reason="abort")  # as vLLM's own CompletionOutput


class VllmEngine(Engine):
    """The vLLM engine of one model; see `pipeline.engines.Engine`."""

    def __init__(self, cfg: RunConfig, longest: int, rows: Rows = ()) -> None:
        self.cfg = cfg
        vllm, self.on_cpu = import_vllm(cfg.engine.key)
        args = self._arguments(longest)
        with load_errors(cfg), dying_with_parent(), without("llvmlite.binding.ffi"):
            self.llm = vllm.LLM(**args)
        self.engine, self.tokenizer = self.llm.llm_engine, self.llm.get_tokenizer()
        self.core = Core(self.engine)
        self.parser = Parser(cfg, self.tokenizer) if cfg.model.reasoning_parser else None
        folder, self.lora = models.adapter(cfg.model), None
        if folder is not None:
            from vllm.lora.request import LoRARequest

            self.lora = LoRARequest(folder.name, 1, str(folder))
        self.settings = {"vllm": vllm.__version__, "device": "cpu" if self.on_cpu else "gpu"}
        self.settings["batch_invariant"] = os.environ.get("VLLM_BATCH_INVARIANT") == "1"
        self.settings["runner"] = "V2" if self.engine.vllm_config.use_v2_model_runner else "V1"
        self.settings |= {k: v for k, v in args.items() if isinstance(v, str | int | float | bool)}
        if args["worker_extension_cls"] == _WORKER:  # else engine.args has another one
            self.settings["attention"] = self.llm.collective_rpc("attention_backends")[0]

    @staticmethod
    def label_args(cfg: RunConfig) -> dict[str, Any]:
        """Enable prefix caching: consecutive prompts of one question share a prefix."""
        return {"enable_prefix_caching": True}

    def _arguments(self, longest: int) -> dict[str, Any]:
        cfg = self.cfg
        args: dict[str, Any] = {
            "model": models.locate(cfg.model),
            "revision": cfg.model.revision,
            "dtype": cfg.model.dtype,
            "trust_remote_code": cfg.model.trust_remote_code,
            "max_model_len": longest,
            "max_num_seqs": cfg.engine.batch_size,
            "tensor_parallel_size": cfg.engine.tensor_parallel_size,
            "gpu_memory_utilization": cfg.engine.gpu_memory_utilization,
            "generation_config": "vllm",  # not the model's own top_k and the like
            "logprobs_mode": "raw_logprobs",
            "stream_interval": _FIRST_AND_REST,
            "use_tqdm_on_load": False,
            "seed": 0,
            "worker_extension_cls": _WORKER,
        }
        if self.on_cpu:
            # On a CPU, vLLM 0.32 crashes if the prompt of a seeded request is split over two steps.
            args |= {
                "enforce_eager": True,
                "enable_chunked_prefill": False,
                "max_num_batched_tokens": max(longest, 8192),
                "kv_cache_memory_bytes": _cache_bytes(cfg, longest),
            }
            del args["gpu_memory_utilization"]
        if cfg.model.tokenizer is not None:
            args["tokenizer"] = models.locate(models.tokenizer_source(cfg.model))
        if cfg.model.reasoning_parser:  # for `sampling.thinking_budget`
            args["reasoning_parser"] = name_of(cfg.model, models.tokenizer(cfg.model))
        if cfg.model.quantization:
            args["quantization"] = cfg.model.quantization
        if (rank := models.adapter_rank(cfg.model)) is not None:
            from vllm.config.lora import MaxLoRARanks

            least = next((size for size in get_args(MaxLoRARanks) if size >= rank), rank)
            args |= {"enable_lora": True, "max_loras": 1, "max_lora_rank": least}
        return args | dict(cfg.model.engine_args) | dict(cfg.engine.args)

    def generate(self, requests: Iterable[Request | None]) -> Generator[Completion | None]:
        waiting, more = iter(requests), True
        # By name: a request, its clock, and its outputs with times, the first of which is None.
        in_flight: dict[str, tuple[Request, Callable[[], float], list[tuple[float, Any]]]] = {}
        params: dict[int, Any] = {}  # by run
        most = self.cfg.engine.in_flight or 3 * self.cfg.engine.batch_size
        try:
            while True:
                if more and 3 * len(in_flight) <= 2 * most:  # adding many at a time is cheaper
                    taken, more = pull(waiting, most - len(in_flight))
                    for request in taken:
                        if request.run not in params:
                            params[request.run] = _sampling_params(request.cfg or self.cfg)
                        own = copy.copy(params[request.run])  # a tenth of the cost of a new one
                        own.seed, own.max_tokens = request.seed, request.max_tokens
                        prompt = {"prompt_token_ids": request.context}
                        self.engine.add_request(request.name, prompt, own, lora_request=self.lora)
                        now = steady_clock()
                        in_flight[request.name] = (request, now, [(now(), None)])
                if not in_flight and not more:
                    return
                for output in self.engine.step() if in_flight else ():
                    request, now, outputs = in_flight[output.request_id]
                    outputs.append((now(), output.outputs[0]))
                    if output.finished:
                        del in_flight[output.request_id]
                        yield self._completion(request, outputs)
                aborted = []  # these get no last output
                if self.engine.get_num_unfinished_requests() != len(in_flight):
                    known = self.engine.output_processor.external_req_ids
                    aborted = [name for name in in_flight if name not in known]
                for name in aborted:
                    request, now, outputs = in_flight.pop(name)
                    outputs.append((now(), _ABORTED))
                    yield self._completion(request, outputs)
                yield None
        finally:
            if in_flight and not self.core.ended():
                self.engine.abort_request(list(in_flight))

    def _completion(self, request: Request, outputs: list[tuple[float, Any]]) -> Completion:
        """Join the outputs of an attempt, each with the tokens and log-probs since the last one."""
        (started, *times), (_, *parts) = zip(*outputs, strict=True)
        reason = parts[-1].finish_reason
        sampled = [part for part in parts if part.token_ids]  # the last one after an abort has none
        token_ids = [token for part in sampled for token in part.token_ids]
        logprobs, cfg = None, request.cfg or self.cfg
        if cfg.sampling.logprobs:
            logprobs = [value for part in sampled for value in part.logprobs.logprobs]
        return Completion(
            request=request,
            **ended(self.tokenizer, cfg, request, token_ids, logprobs, reason, self.parser),
            started=started,
            first_token=times[0],
            finished=times[-1],
        )

    def prompt_logprobs(
        self, prompts: list[list[int]], after: Sequence[int] = ()
    ) -> list[Logprobs]:
        """Score prompts; with `after` by vLLM's prefix cache, whose tokens have no score.

        A prompt of which the cache has more than those is scored again, without it.
        """
        logprobs, options = list[Logprobs](), {"prompt_logprobs": 0, "detokenize": False}
        options["skip_reading_prefix_cache"] = not after
        outputs = self._prefill(prompts, lambda: None, **options)
        for prompt, output, first in zip(prompts, outputs, after or repeat(1), strict=False):
            if after and output.num_cached_tokens >= first:
                logprobs += self.prompt_logprobs([prompt])
                continue
            values = np.full(len(prompt), np.nan, dtype=np.float32)
            for i in range(first - len(prompt), 0):  # some versions return no others
                values[i] = output.prompt_logprobs[i][prompt[i]].logprob
            logprobs.append(values)
        return logprobs

    def next_logprobs(
        self, prompts: Sequence[list[int]], token_ids: list[int], on_step: OnStep
    ) -> Logprobs:
        values = np.empty((len(prompts), len(token_ids)), dtype=np.float32)
        outputs = self._prefill(prompts, on_step, logprob_token_ids=token_ids, detokenize=False)
        for row, output in zip(values, outputs, strict=True):
            [logprobs] = output.outputs[0].logprobs
            row[:] = [logprobs[token].logprob for token in token_ids]
        return values

    def _prefill(self, prompts: Sequence[list[int]], on_step: OnStep, **options: Any) -> list[Any]:
        """Return outputs of one greedy token after each prompt, with the options' log-probs."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        last = RequestOutputKind.FINAL_ONLY
        params = SamplingParams(temperature=0.0, max_tokens=1, output_kind=last, **options)
        for i, prompt in enumerate(prompts):
            prompt_ids = {"prompt_token_ids": prompt}
            self.engine.add_request(str(i), prompt_ids, params, lora_request=self.lora)
        outputs: dict[str, Any] = {}
        while self.engine.get_num_unfinished_requests():
            outputs |= {output.request_id: output for output in self.engine.step()}
            on_step()
        return [outputs[str(i)] for i in range(len(prompts))]

    def load_weights(self, cfg: RunConfig) -> None:
        if "attention" not in self.settings:
            raise NotSupported("engine.args has a worker extension of its own")
        folder = models.locate(cfg.model)
        try:
            self.llm.collective_rpc("load_checkpoint", args=(folder,))
        except Exception as error:  # vLLM raises whatever its parts raise
            raise NotSupported(one_line(error)) from error
        if not self.llm.reset_prefix_cache():  # its keys and values are of the old weights
            raise NotSupported("the prefix cache is in use")
        self.cfg, self.settings["model"], self.settings["weights"] = cfg, folder, "swapped in place"

    def describe(self) -> dict[str, Any]:
        return {"engine": "vllm", **self.settings}

    def close(self) -> None:
        from vllm.distributed import cleanup_dist_env_and_memory

        self.core.close()
        del self.engine, self.llm, self.core
        gc.collect()
        cleanup_dist_env_and_memory()


def _sampling_params(cfg: RunConfig) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import RepetitionDetectionParams, RequestOutputKind
    from vllm.sampling_params import StructuredOutputsParams as Structured

    s, stop, pattern = cfg.sampling, cfg.stops, cfg.sampling.repetition_detection
    detection = RepetitionDetectionParams(**asdict(pattern)) if pattern.max_pattern_size else None
    return SamplingParams(
        temperature=s.temperature,
        top_p=s.top_p,
        top_k=s.top_k or 0,
        min_p=s.min_p,
        presence_penalty=s.presence_penalty,
        frequency_penalty=s.frequency_penalty,
        repetition_penalty=s.repetition_penalty,
        thinking_token_budget=s.thinking_budget,
        repetition_detection=detection,
        structured_outputs=Structured(json=s.json_schema) if s.json_schema else None,
        seed=s.seed,
        max_tokens=1,
        logprobs=0 if s.logprobs else None,
        flat_logprobs=s.logprobs,
        stop=stop,
        detokenize=bool(stop),  # only to find stop strings; see `text.decode`
        skip_special_tokens=cfg.model.skip_special_tokens,
        output_kind=RequestOutputKind.DELTA,
    )


def _cache_bytes(cfg: RunConfig, longest: int) -> int:
    """Return a size for the key-value cache: two full batches, at most 1 GiB, at least a sequence.

    By default vLLM takes most of the machine's memory, and touches all of it in time.
    VLLM_CPU_KVCACHE_SPACE (in GiB) overrides this, as always in vLLM.
    """
    sequence = sizing.cache_bytes(cfg.model, (-(-longest // _CPU_BLOCK) + 1) * _CPU_BLOCK)
    if sequence is None:
        return _GIB
    return max(sequence, min(2 * int(cfg.engine.batch_size) * sequence, _GIB))
