"""vLLM, driven through its step loop: one request per trial, each with its own seed."""

import gc
import logging
import os
import time
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline import models
from pipeline.children import tamed
from pipeline.engines import Completion, Request, load_errors
from pipeline.errors import UserError
from pipeline.schema import RunConfig

# Read when vLLM is imported. On a CPU: an engine in this process (a second one costs ten seconds
# and a core), no compilation of the log-prob kernels (it costs more than it saves), small cache.
_CPU_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "TORCH_COMPILE_DISABLE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
}
# Tokens between two outputs of a request, the first token's apart: none but the first and the last.
_FIRST_AND_LAST = 1 << 30


class VllmEngine:
    """The vLLM engine of one model; see `pipeline.engines.Engine`."""

    def __init__(self, cfg: RunConfig, longest: int) -> None:
        self.cfg = cfg
        vllm, self.on_cpu = _import()
        args = self._arguments(longest)
        with load_errors(cfg), tamed():
            self.llm = vllm.LLM(**args)
        self.engine = self.llm.llm_engine
        self.settings = {"vllm": vllm.__version__, "device": "cpu" if self.on_cpu else "gpu"}
        self.settings |= {k: v for k, v in args.items() if isinstance(v, str | int | float | bool)}

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
            "generation_config": "vllm",  # the model's own top_k and the like must not slip in
            "logprobs_mode": "raw_logprobs",
            "disable_log_stats": True,  # statistics cost a CPU engine a tenth of its speed
            "stream_interval": _FIRST_AND_LAST,
            "use_tqdm_on_load": False,
            "seed": 0,
        }
        if self.on_cpu:
            # A seeded request whose prompt is split over two steps kills vLLM 0.32 on a CPU.
            args |= {
                "enforce_eager": True,
                "enable_chunked_prefill": False,
                "max_num_batched_tokens": max(longest, 8192),
            }
            del args["gpu_memory_utilization"]
        return args | dict(cfg.model.engine_args) | dict(cfg.engine.args)

    def generate(self, requests: Iterable[Request]) -> Iterator[Completion | None]:
        waiting = iter(requests)
        flying: dict[str, tuple[Request, float]] = {}
        first_token: dict[str, float] = {}
        exhausted = False
        most = self.cfg.engine.in_flight or 3 * self.cfg.engine.batch_size
        try:
            while True:
                while not exhausted and len(flying) < most:
                    request = next(waiting, None)
                    if request is None:
                        exhausted = True
                        break
                    name = f"{request.question_id}/{request.trial}"
                    self._add(name, request)
                    flying[name] = (request, time.time())
                if not flying:
                    return
                for output in self.engine.step():
                    first = first_token.setdefault(output.request_id, time.time())
                    if output.finished:
                        del first_token[output.request_id]
                        yield _completion(output, *flying.pop(output.request_id), first)
                yield None
        finally:
            if flying:
                self._abort(list(flying))

    def _add(self, name: str, request: Request) -> None:
        from vllm import SamplingParams, TokensPrompt
        from vllm.sampling_params import RequestOutputKind

        s = self.cfg.sampling
        params = SamplingParams(
            temperature=s.temperature,
            top_p=s.top_p,
            top_k=s.top_k or 0,
            seed=request.seed,
            max_tokens=request.max_tokens,
            logprobs=0 if s.logprobs else None,
            flat_logprobs=s.logprobs,
            skip_special_tokens=self.cfg.model.skip_special_tokens,
            output_kind=RequestOutputKind.CUMULATIVE,
        )
        self.engine.add_request(
            name, TokensPrompt(prompt_token_ids=request.prompt_token_ids), params
        )

    def _abort(self, names: list[str]) -> None:
        self.engine.abort_request(names)

    def prompt_logprobs(self, prompts: list[list[int]]) -> list[npt.NDArray[np.float32]]:
        from vllm import SamplingParams, TokensPrompt

        params = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0)
        inputs = [TokensPrompt(prompt_token_ids=prompt) for prompt in prompts]
        found = []
        for output in self.llm.generate(inputs, params, use_tqdm=False):
            entries = zip(output.prompt_token_ids, output.prompt_logprobs, strict=True)
            values = [np.nan if entry is None else entry[token].logprob for token, entry in entries]
            found.append(np.array(values, dtype=np.float32))
        return found

    def describe(self) -> dict[str, Any]:
        return {"engine": "vllm", **self.settings}

    def close(self) -> None:
        from vllm.distributed import cleanup_dist_env_and_memory

        self.engine.engine_core.shutdown()
        del self.engine, self.llm
        gc.collect()
        cleanup_dist_env_and_memory()


def _completion(output: Any, request: Request, started: float, first: float) -> Completion:
    [made] = output.outputs
    return Completion(
        request=request,
        text=made.text,
        finish_reason=made.finish_reason,
        token_ids=list(made.token_ids),
        logprobs=None if made.logprobs is None else list(made.logprobs.logprobs),
        started=started,
        first_token=first,
        finished=time.time(),
    )


def _import() -> tuple[Any, bool]:
    """Import vLLM in a quiet and, on a CPU, a light configuration; says whether it is a CPU build.

    Raises:
        UserError: when vLLM is not installed, or it is a GPU build and there is no GPU.
    """
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    warnings.filterwarnings("ignore", category=FutureWarning, module="vllm")
    logging.getLogger("torch._library.triton").setLevel(logging.ERROR)  # Triton is for GPUs
    if _is_cpu_build():
        for key, value in _CPU_ENVIRONMENT.items():
            os.environ.setdefault(key, value)
    try:
        import vllm
        from vllm.platforms import current_platform
    except ImportError as error:
        raise UserError(
            f"engine=vllm: vLLM cannot be imported ({error}). On a GPU machine: pip install -e"
            ' ".[vllm]"; on a CPU: make demo sets it up; or use engine=transformers'
        ) from error
    if current_platform.is_unspecified():
        raise UserError(
            "engine=vllm: this vLLM is built for GPUs and no GPU is visible (CUDA_VISIBLE_DEVICES="
            f"{os.environ.get('CUDA_VISIBLE_DEVICES', 'unset')}); run on a GPU node, or use"
            " engine=transformers"
        )
    return vllm, bool(current_platform.is_cpu())


def _is_cpu_build() -> bool:
    from importlib import metadata

    try:
        metadata.version("vllm-cpu")
    except metadata.PackageNotFoundError:
        return False
    return True
