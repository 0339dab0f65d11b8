"""Every name of vLLM that this project uses, and which of them the installed version lacks.

vLLM's step loop and its settings are no public interface and change between versions. Of the
pipeline only `engines/vllm*.py` touch them; `test_vllm_names.py` reads this table against the
installed version, and the project's files against this table.
"""

import dis
import importlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

# "module:object", and the attributes of it or of its instances.
ATTRIBUTES: dict[str, Sequence[str]] = {
    "vllm:LLM": ("llm_engine", "get_tokenizer", "generate", "collective_rpc", "reset_prefix_cache"),
    "vllm:SamplingParams": (),
    "vllm:TokensPrompt": (),
    "vllm:__version__": (),
    "vllm.sampling_params:RequestOutputKind": ("DELTA", "FINAL_ONLY"),
    "vllm.sampling_params:RepetitionDetectionParams": (),
    "vllm.config.lora:MaxLoRARanks": (),
    "vllm.lora.request:LoRARequest": (),
    "vllm.entrypoints.openai.chat_completion.protocol:ChatCompletionRequest": (
        "messages",
        "skip_special_tokens",
    ),
    "vllm.reasoning:ReasoningParserManager": ("get_reasoning_parser", "list_registered"),
    "vllm.reasoning:ReasoningParser": ("adjust_request", "extract_reasoning"),
    "vllm.distributed:cleanup_dist_env_and_memory": (),
    "vllm.platforms:current_platform": (
        "is_cpu",
        "is_cuda",
        "is_unspecified",
        "has_device_capability",
    ),
    "vllm.v1.engine.llm_engine:LLMEngine": (
        "add_request",
        "step",
        "abort_request",
        "get_num_unfinished_requests",
        "output_processor",
        "engine_core",
        "vllm_config",
    ),
    "vllm.v1.engine.output_processor:OutputProcessor": ("external_req_ids",),
    "vllm.v1.engine.core_client:EngineCoreClient": ("shutdown", "get_output"),
    "vllm.v1.engine.core_client:SyncMPClient": ("resources", "outputs_queue", "utility_results"),
    "vllm.v1.engine.core_client:BackgroundResources": ("engine_manager",),
    "vllm.v1.engine.utils:CoreEngineProcManager": ("processes",),
    "vllm.outputs:RequestOutput": (
        "request_id",
        "outputs",
        "finished",
        "prompt_token_ids",
        "prompt_logprobs",
    ),
    "vllm.outputs:CompletionOutput": ("token_ids", "logprobs", "finish_reason"),
    "vllm.logprobs:FlatLogprobs": ("logprobs",),
    "vllm.logprobs:Logprob": ("logprob",),
    # What a worker is asked of itself (vllm_worker.py).
    "vllm.v1.worker.worker_base:WorkerBase": ("vllm_config",),
    "vllm.v1.worker.gpu_worker:Worker": ("reload_weights",),
    "vllm.v1.worker.gpu_model_runner:GPUModelRunner": ("get_model",),
    "vllm.model_executor.layers.utils:dispatch_cpu_unquantized_gemm": (),
    "vllm.config:VllmConfig": ("compilation_config", "use_v2_model_runner"),
    "vllm.config:CompilationConfig": ("static_forward_context",),
    "vllm.model_executor.layers.attention_layer_base:AttentionLayerBase": ("get_attn_backend",),
    "vllm.v1.attention.backend:AttentionBackend": ("get_name",),
    # What only tests and benchmarks use.
    "vllm.v1.engine:utils": ("get_mp_context",),
    "vllm.envs:disable_envs_cache": (),
    "vllm.benchmarks.serve:TaskType": ("GENERATION",),
    "vllm.benchmarks.serve:benchmark": (),
    "vllm.benchmarks.datasets:SampleRequest": (),
    "vllm.engine.arg_utils:EngineArgs": (),
    "vllm.model_executor.layers.utils:apply_penalties": (),
    "vllm.platforms:_current_platform": (),
    "vllm.platforms.interface:UnspecifiedPlatform": (),
}

# "module:callable", and the parameters that are passed to it.
PARAMETERS: dict[str, Sequence[str]] = {
    "vllm:SamplingParams": (
        "temperature",
        "top_p",
        "top_k",
        "seed",
        "max_tokens",
        "logprobs",
        "flat_logprobs",
        "prompt_logprobs",
        "logprob_token_ids",
        "repetition_detection",
        "min_p",
        "presence_penalty",
        "frequency_penalty",
        "repetition_penalty",
        "thinking_token_budget",
        "stop",
        "detokenize",
        "skip_special_tokens",
        "output_kind",
    ),
    "vllm.sampling_params:RepetitionDetectionParams": (
        "max_pattern_size",
        "min_pattern_size",
        "min_count",
    ),
    "vllm.engine.arg_utils:EngineArgs": (
        "model",
        "tokenizer",
        "revision",
        "dtype",
        "trust_remote_code",
        "max_model_len",
        "max_num_seqs",
        "max_num_batched_tokens",
        "tensor_parallel_size",
        "gpu_memory_utilization",
        "kv_cache_memory_bytes",
        "generation_config",
        "logprobs_mode",
        "disable_log_stats",
        "stream_interval",
        "use_tqdm_on_load",
        "seed",
        "enforce_eager",
        "enable_chunked_prefill",
        "enable_prefix_caching",
        "worker_extension_cls",
        "reasoning_parser",
        "quantization",
        "enable_lora",
        "max_loras",
        "max_lora_rank",
    ),
    "vllm.benchmarks.datasets:SampleRequest": (
        "prompt",
        "prompt_len",
        "expected_output_len",
        "request_overrides",
    ),
    "vllm.benchmarks.serve:benchmark": (
        "task_type",
        "endpoint_type",
        "api_url",
        "base_url",
        "model_id",
        "model_name",
        "tokenizer",
        "input_requests",
        "logprobs",
        "request_rate",
        "burstiness",
        "disable_tqdm",
        "num_warmups",
        "profile",
        "selected_percentile_metrics",
        "selected_percentiles",
        "ignore_eos",
        "goodput_config_dict",
        "max_concurrency",
        "lora_modules",
        "extra_headers",
        "extra_body",
        "ready_check_timeout_sec",
    ),
    "vllm:LLM.generate": ("prompts", "sampling_params", "use_tqdm"),
    "vllm:LLM.collective_rpc": ("method", "args"),
    "vllm.v1.worker.gpu_model_runner:GPUModelRunner.reload_weights": ("weights_path",),
    "vllm.model_executor.layers.utils:dispatch_cpu_unquantized_gemm": ("remove_weight",),
    "vllm.v1.engine.llm_engine:LLMEngine.add_request": (
        "request_id",
        "prompt",
        "params",
        "lora_request",
    ),
    "vllm.lora.request:LoRARequest": ("lora_name", "lora_int_id", "lora_path"),
    "vllm.v1.engine.llm_engine:LLMEngine.abort_request": ("request_ids",),
    "vllm.v1.engine.core_client:EngineCoreClient.shutdown": ("timeout",),
}

VARIABLES = (
    "VLLM_API_KEY",  # never written down
    "VLLM_BATCH_INVARIANT",
    "VLLM_CACHE_ROOT",
    "VLLM_CPU_KVCACHE_SPACE",
    "VLLM_CPU_OMP_THREADS_BIND",
    "VLLM_ENABLE_V1_MULTIPROCESSING",
    "VLLM_LOGGING_LEVEL",
    "VLLM_NO_USAGE_STATS",
    "VLLM_USE_V2_MODEL_RUNNER",
    "VLLM_WORKER_MULTIPROC_METHOD",
)


def gone(
    attributes: Mapping[str, Sequence[str]] = ATTRIBUTES,
    parameters: Mapping[str, Sequence[str]] = PARAMETERS,
    variables: Sequence[str] = VARIABLES,
) -> list[str]:
    """The names that the installed vLLM lacks; no engine is loaded.

    >>> gone({"json:JSONDecoder": ("decode", "strict", "step")}, {"json:loads": ("s", "t")}, ())
    ['json:JSONDecoder.step', 'json:loads(t=)']
    """
    found = [*_attributes(attributes), *_parameters(parameters)]
    if variables:
        known = importlib.import_module("vllm.envs").environment_variables
        found += [f"environment variable {name}" for name in variables if name not in known]
    return found


def _attributes(table: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for place, names in table.items():
        try:
            thing = _find(place)
        except (ImportError, AttributeError):
            yield place
            continue
        yield from (f"{place}.{name}" for name in names if not _has(thing, name))


def _parameters(table: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for place, names in table.items():
        try:
            known = inspect.signature(_find(place)).parameters
        except (ImportError, AttributeError):
            yield place
            continue
        yield from (f"{place}({name}=)" for name in names if name not in known)


def _find(place: str) -> Any:
    module, _, path = place.partition(":")
    thing: Any = importlib.import_module(module)
    for name in path.split("."):
        thing = getattr(thing, name)
    return thing


def _has(thing: Any, name: str) -> bool:
    """Whether an object, or any instance of a class, has an attribute.

    Of a class also what is annotated, as in dataclasses, and what `__init__` puts on `self`.
    """
    if hasattr(thing, name):
        return True
    for base in inspect.getmro(thing) if isinstance(thing, type) else ():
        code = getattr(inspect.unwrap(vars(base).get("__init__", base)), "__code__", None)
        steps = dis.get_instructions(code) if code else ()
        if name in vars(base).get("__annotations__", {}) or any(
            step.opname == "STORE_ATTR" and step.argval == name for step in steps
        ):
            return True
    return False
