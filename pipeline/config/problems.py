"""Values and combinations of settings that cannot work, found before anything is loaded."""

import datetime
from collections.abc import Iterator
from typing import get_args, get_type_hints

from pipeline.config import cluster
from pipeline.config.settings import DTYPES, MOST_TRIALS, STAGES, RunConfig, VerifierConfig
from verifiers import Conventions, Policy


def problems(cfg: RunConfig) -> Iterator[str]:
    """One line for every value or combination that cannot work."""
    s, e = cfg.sampling, cfg.engine
    at_least_one = {
        "sampling.trials": s.trials,
        "sampling.max_tokens": s.max_tokens,
        "engine.batch_size": e.batch_size,
        "engine.in_flight": e.in_flight,
        "engine.replicas": e.replicas,
        "engine.tensor_parallel_size": e.tensor_parallel_size,
        "dataset.limit": cfg.dataset.limit,
        "prior.trials": cfg.prior.trials,
        "grading.workers": cfg.grading.workers,
        "model.context": cfg.model.context,
        "verifier.context": cfg.verifier.context,
        "verifier.batch_size": cfg.verifier.batch_size,
    }
    for key, value in at_least_one.items():
        if value is not None and value < 1:
            yield f"{key}={value}: must be at least 1"
    yield from _bad_text(cfg)
    if s.trials > MOST_TRIALS:
        yield f"sampling.trials={s.trials}: must be at most {MOST_TRIALS}"
    if s.seed is not None and not 0 <= s.seed < 1 << 62:
        yield f"sampling.seed={s.seed}: must be 0 or a larger 62-bit number, or null for no seeds"
    if not 0 <= s.temperature <= 2:
        yield f"sampling.temperature={s.temperature}: must lie between 0 and 2"
    if s.temperature == 0 and s.trials > 1:
        yield (
            f"sampling.temperature=0 with sampling.trials={s.trials}: greedy decoding gives the"
            " same attempt every time; set sampling.trials=1 or a temperature above 0"
        )
    if not 0 < s.top_p <= 1:
        yield f"sampling.top_p={s.top_p}: must lie in (0, 1]"
    if s.top_k is not None and s.top_k < 1:
        yield f"sampling.top_k={s.top_k}: must be at least 1, or null for no limit"
    if not 0 < e.gpu_memory_utilization <= 1:
        yield f"engine.gpu_memory_utilization={e.gpu_memory_utilization}: must lie in (0, 1]"
    if e.name not in ("vllm", "transformers"):
        yield f"engine.name={e.name}: there are two engines, vllm and transformers"
    if e.name == "transformers" and e.tensor_parallel_size > 1:
        yield (
            f"engine.tensor_parallel_size={e.tensor_parallel_size} with engine=transformers:"
            " only engine=vllm splits a model; set it to 1 or choose engine=vllm"
        )
    if e.name == "vllm" and e.device is not None:
        yield (
            f"engine.device={e.device} with engine=vllm: vLLM takes the device it was built for"
            " (choose GPUs with CUDA_VISIBLE_DEVICES); engine.device is for engine=transformers"
        )
    if "{problem}" not in cfg.prompt.template:
        yield "prompt.template: must contain {problem}, where the problem text goes"
    if cfg.prompt.system_role not in ("system", "user"):
        yield f"prompt.system_role={cfg.prompt.system_role}: must be system or user"
    unknown = [stage for stage in cfg.stages if stage not in STAGES]
    if not cfg.stages:
        yield f"stages=[]: nothing to do; name some of {', '.join(STAGES)}"
    if unknown:
        yield f"stages: unknown {', '.join(unknown)}; there are {', '.join(STAGES)}"
    if not 0 < cfg.scoring.confidence < 1:
        yield f"scoring.confidence={cfg.scoring.confidence}: must lie between 0 and 1"
    if any(k < 1 for k in cfg.scoring.pass_k):
        yield f"scoring.pass_k={list(cfg.scoring.pass_k)}: every k must be at least 1"
    if cfg.prior.trials is not None and cfg.prior.run is None:
        yield f"prior.trials={cfg.prior.trials} without prior=RUN: name the run folder to use"
    yield from _bad_grading(cfg)
    yield from _bad_rubrics(cfg)
    yield from _bad_verifier(cfg.verifier)
    yield from cluster.problems(cfg.cluster)


def _bad_text(cfg: RunConfig) -> Iterator[str]:
    if not cfg.run_dir.strip():
        yield "run_dir: is empty; name a folder, or leave it out for runs/DATASET/MODEL"
    parts = {"model.name": cfg.model.name, "dataset.name": cfg.dataset.name, "tag": cfg.tag}
    for key, name in parts.items():  # each becomes part of a path
        if name is not None and (name.strip() in ("", ".", "..") or {"/", "\0"} & set(name)):
            yield f"{key}={name}: becomes part of a folder's name, so it takes no / and no .."
    if cfg.model.dtype not in DTYPES:
        yield f"model.dtype={cfg.model.dtype}: choose from {', '.join(DTYPES)}"
    try:
        datetime.date.fromisoformat(cfg.model.template_date or "2025-01-01")
    except ValueError:
        yield f"model.template_date={cfg.model.template_date}: no date; write YYYY-MM-DD"


def _bad_grading(cfg: RunConfig) -> Iterator[str]:
    g = cfg.grading
    if not g.timeout_s > 0 or g.memory_mb < 256:
        yield "grading: timeout_s must be positive and memory_mb at least 256"
    if g.compat not in (None, "math_verify"):
        yield f"grading.compat={g.compat}: must be math_verify, or null for our own grader"
    if g.cache is not None and not g.cache.strip():
        yield "grading.cache: is empty; name a folder, or leave it out for _grading beside the run"
    if cfg.dataset.boxes not in get_args(Policy):
        known = ", ".join(get_args(Policy))
        yield f"dataset.boxes={cfg.dataset.boxes}: must be one of {known}"
    for name, kind in get_type_hints(Conventions).items():
        value = getattr(cfg.dataset.conventions, name)
        if value not in get_args(kind):
            known = " or ".join(get_args(kind))
            yield f"dataset.conventions.{name}={value}: must be {known}"


def _bad_verifier(v: VerifierConfig) -> Iterator[str]:
    if v.id is not None and not v.id.strip():
        yield "verifier.id: is empty; give a hub id or a folder, or verifier=none for no verifier"
    if v.dtype not in DTYPES:
        yield f"verifier.dtype={v.dtype}: choose from {', '.join(DTYPES)}"
    if not v.prompt.strip():
        yield "verifier.prompt: is empty; name a file of prompts/verifier, or give a path"
    tokens = [v.labels.correct, v.labels.incorrect, v.labels.invalid]
    if "" in tokens or len(set(tokens)) < len(tokens):
        yield f"verifier.labels: {', '.join(map(repr, tokens))}: must be three different texts"
    if not v.content_free or len(set(v.content_free)) < len(v.content_free):
        yield (
            f"verifier.content_free={list(v.content_free)}: must be at least one text, each once,"
            ' such as ["N/A", "", "[MASK]"]'
        )
    if v.average not in ("probability", "logit"):
        yield f"verifier.average={v.average}: must be probability or logit"
    if not 0 < v.temperature < float("inf"):
        yield f"verifier.temperature={v.temperature}: must be positive and finite"
    if not 0 <= v.least_mass < 1:
        yield f"verifier.least_mass={v.least_mass}: must lie in [0, 1)"


def _bad_rubrics(cfg: RunConfig) -> Iterator[str]:
    t = cfg.thresholds
    if t.scope not in ("model", "cohort"):
        yield f"thresholds.scope={t.scope}: must be model (this run) or cohort (all beside it)"
    if t.file is not None and not t.file.strip():
        yield "thresholds.file: is empty; name a thresholds.json, or leave it out"
    if any(not name.strip() for name in cfg.rubric.names):
        yield "rubric.names: a name is empty; name files of configs/rubric, or leave it out for all"
