"""The settings of engines: the programs that sample, here or on a server, and the verifier's."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from bayes_at_n.pipeline.base.engines import KINDS, kind
from bayes_at_n.pipeline.config.checks import AUTO, Auto, limited


@dataclass
class EngineConfig:
    """The program that samples, and its resources (these never change what a run *is*)."""

    key = "engine"  # where these settings stand, for messages
    lighter = "sampling.max_tokens or engine.batch_size"  # settings: lower, they take less memory
    name: str = limited(one_of=tuple(KINDS))
    # Sequences that run at once; auto: 256, or as many as a GPU's cache has room for.
    batch_size: Auto = limited(256, "[1, inf)", auto=True)
    # Requests with the engine; of vLLM three batches by default.
    in_flight: int | None = limited(None, "[1, inf)")
    # Processes that share the run, each with GPUs of its own (data parallel); auto: all GPUs work.
    replicas: Auto = limited(AUTO, "[1, inf)", auto=True)
    # GPUs of one replica; auto: as few as the model fits.
    tensor_parallel_size: Auto = limited(1, "[1, inf)", auto=True)
    gpu_memory_utilization: float = limited(0.9, "(0, 1]")
    # vLLM's kernels whose results do not depend on the batch; GPUs only, and slower.
    batch_invariant: bool = False
    device: str | None = None  # transformers only: cpu, cuda, cuda:1, mps
    # What a million tokens of prompts and of completions cost, in whatever money one counts in.
    price_in: float | None = limited(None, "[0, inf)")
    price_out: float | None = limited(None, "[0, inf)")
    args: dict[str, Any] = field(default_factory=dict)  # of a server: fields of every request
    # engine=openai: its address, which ends in /v1; a key is only ever read from the environment.
    url: list[str] = field(default_factory=list)
    served_name: str | None = None  # of the model; default: the only one, or model.id
    key_env: str = "OPENAI_API_KEY"
    # completions and generate: token ids; chat: chat turns; auto: token ids where it takes them
    api: str = limited("auto", one_of=("auto", "completions", "chat", "generate"))
    # Of what a run asks for, what a server may lack.
    allow_missing: list[str] = limited([], one_of=("logprobs", "prompt_logprobs"))
    patience_s: float = limited(300.0, "[0, inf)")  # a failing request is sent again for so long
    timeout_s: float = limited(3600.0, "(0, inf)")  # of one request

    def problems(self) -> Iterator[str]:
        served, called = kind(self.name).served, kind(self.name).in_process
        if served and not called and not self.url:
            yield f"url: no value; engine={self.name} asks a server: {self.key}.url=http://HOST:8000/v1"
        if self.url and (called or not served):
            yield f"url={self.url}: is for engine=openai; {self.name} has the model here"
        if self.args and called:
            yield f"args: a function takes prompts alone; {self.key}.name={self.name} has none"
        if len(self.url) > 1:
            yield f"url={self.url}: one address; a router or load balancer takes it to several"
        for url in self.url:
            yield from _bad_address(url)
        if served and (said := sorted(_SAID & set(self.args))):
            yield f"args.{said[0]}: is not for engine.args; sampling.* and others say it"
        if self.replicas not in (1, AUTO) and served:
            yield f"replicas={self.replicas}: one process asks {self.name} as much as it can take"
        if self.tensor_parallel_size not in (1, AUTO) and not kind(self.name).tensor_parallel:
            able = _able("tensor_parallel")
            yield f"tensor_parallel_size={self.tensor_parallel_size}: needs {self.key}={able}"
        if self.device is not None and not kind(self.name).takes_device:
            able = _able("takes_device")
            yield (
                f"device={self.device}: is for {self.key}={able}; {self.name} takes what it finds"
                " (CUDA_VISIBLE_DEVICES)"
            )
        if self.batch_invariant and not kind(self.name).batch_invariant:
            yield f"batch_invariant=true: needs {self.key}={_able('batch_invariant')}, on a GPU"


class VerifierEngine(EngineConfig):
    """The verifier's engine in the place of the engine; `verifier_engine` makes it."""

    key = "verifier.engine"
    lighter = "verifier.context or verifier.batch_size"


# Of a request, what other settings say.
_SAID = {"model", "prompt", "messages", "token_ids", "input_ids", "sampling_params", "n", "stream"}
_SAID |= {"temperature", "top_p", "top_k", "seed", "max_tokens", "logprobs", "prompt_logprobs"}


def _able(what: str) -> str:
    """The engines of which a field of `Kind` is true."""
    return " or ".join(name for name, known in KINDS.items() if getattr(known, what))


def _bad_address(url: str) -> Iterator[str]:
    try:
        parts = urlsplit(url)
        whole = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port that is none
        whole = False
    if {"@", "?", "#"} & set(url):
        # Not shown again: it may hold a key.
        yield "url: only the address; a key goes into the environment variable of engine.key_env"
    elif not whole:
        yield f"url={url}: no address of a server; write http://HOST:8000/v1"


@dataclass
class VerifierEngineConfig:
    """The program that the verifier runs in; see `verifier_engine` for what is left null."""

    name: str | None = limited(None, one_of=[n for n, of in KINDS.items() if not of.in_process])
    url: list[str] = field(default_factory=list)
    served_name: str | None = None
    key_env: str | None = None
    # Processes that judge at once, each with GPUs of its own; auto: all GPUs work.
    replicas: Auto = limited(AUTO, "[1, inf)", auto=True)
    tensor_parallel_size: int = limited(1, "[1, inf)")  # GPUs of one replica
    gpu_memory_utilization: float | None = limited(None, "(0, 1]")
    device: str | None = None
    args: dict[str, Any] = field(default_factory=dict)
