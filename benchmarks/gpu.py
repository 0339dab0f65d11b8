"""What a real GPU does with models of real shapes: random weights, no network, nothing downloaded.

  python -m benchmarks.gpu make --workdir /dev/shm/gpu     a 1.7 B generator and a 3 B verifier
  python -m benchmarks.gpu facts --model /dev/shm/gpu/qwen3-1.7b       what the engine promises
  python -m benchmarks.gpu labels --model /dev/shm/gpu/qwen2.5-3b      the verifier's prefills
  python -m benchmarks.generation --model /dev/shm/gpu/qwen3-1.7b --max-tokens 512 --trials 24

make    folders with the shapes of Qwen3-1.7B and Qwen2.5-3B (vocabulary 151,936, bfloat16); the
        demo's tokenizer with enough words added; --tiny makes layers that a laptop can run
facts   versions and device; prompt log-probs with the prefix cache warm and cold; the same seeds
        twice and in batches of another size, counted in attempts with equal tokens
labels  log-probs of three labels after random prompts of 2k, 8k and 32k tokens: tokens a second
        with vLLM and with transformers, and how far both are from transformers in float32
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from bayes_at_n.pipeline import engines
from bayes_at_n.pipeline.base import program
from bayes_at_n.pipeline.base.program import ROOT
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.config.settings import RunConfig, verifier_as_model
from bayes_at_n.pipeline.engines import Request
from benchmarks import common

VOCABULARY, USED = 151_936, 151_643  # rows of the embedding, and tokens of the tokenizer
_BOTH = {"hidden_size": 2048, "vocab_size": VOCABULARY, "max_position_embeddings": 40_960}
_BOTH |= {"tie_word_embeddings": True, "eos_token_id": 2, "bos_token_id": None, "pad_token_id": 0}
SHAPES: dict[str, dict[str, Any]] = {
    "qwen3-1.7b": _BOTH
    | {"model_type": "qwen3", "num_hidden_layers": 28, "intermediate_size": 6144}
    | {"num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128},
    "qwen2.5-3b": _BOTH
    | {"model_type": "qwen2", "num_hidden_layers": 36, "intermediate_size": 11_008}
    | {"num_attention_heads": 16, "num_key_value_heads": 2, "use_sliding_window": False},
}
_TINY = {"hidden_size": 128, "num_hidden_layers": 2, "intermediate_size": 256, "head_dim": 32}
_TINY |= {"num_attention_heads": 4, "num_key_value_heads": 2}


def main() -> None:
    """Make models, or measure one."""
    parser = common.parser(__doc__)
    common.add_work(parser)
    parser.add_argument("what", choices=("make", "facts", "labels"))
    parser.add_argument("--tiny", action="store_true", help="make: layers for a laptop")
    parser.add_argument("--lengths", nargs="+", type=int, default=[2048, 8192, 32_000])
    parser.add_argument("--tokens", type=int, default=400_000, help="labels: of each length")
    args = parser.parse_intermixed_args()
    if args.what == "make":
        for name in SHAPES:
            make(args.workdir or ROOT / "runs", name, args.tiny)
        return
    measure = facts if args.what == "facts" else judged
    common.finish(args, measure(args))


def make(parent: Path, name: str, tiny: bool = False) -> Path:
    """Save a model of that shape with random weights, and a tokenizer with as many tokens."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    folder, given = parent / name, SHAPES[name] | (_TINY if tiny else {})
    began = time.perf_counter()
    source = ROOT / "demo" / "models" / "step-3900"
    config = AutoConfig.for_model(**given)
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    tokenizer = json.loads((source / "tokenizer.json").read_text())
    words = tokenizer["model"]["vocab"]
    words |= {f"\u0120w{number}": number for number in range(len(words), USED)}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    for file in ("tokenizer_config.json", "chat_template.jinja"):
        (folder / file).write_bytes((source / file).read_bytes())
    size = sum(p.numel() for p in model.parameters()) / 1e9
    common.out.print(f"{folder}: {size:.2f} B, {time.perf_counter() - began:.1f} s")
    return folder


def facts(args: argparse.Namespace) -> dict[str, Any]:
    """What is promised of an engine whatever the device: equal numbers where they must be."""
    args.settings = [*args.settings, "+engine.args.max_model_len=2048"]
    with common.workdir(args) as folder:
        stage = common.Stage(args, folder)
        engine, prompts = stage.engine, [q["prompt_token_ids"] for q in stage.questions]
        long = [(prompt * 64)[:500] for prompt in prompts]  # more than a block of the cache
        twice = [engine.prompt_logprobs(long) for _ in range(2)]
        whole = stage.trials * len(prompts)
        made = {
            "first": _sampled(stage, whole),
            "again": _sampled(stage, whole),
            "in batches of 8": _sampled(stage, 8),
        }
        engine.llm.reset_prefix_cache()
        twice.append(engine.prompt_logprobs(long))
        described = engine.describe()
        engine.close()
    first, warm, cold = (np.concatenate([x[1:] for x in found]) for found in twice)
    record: dict[str, Any] = {"engine": described, "load_s": stage.load_s, "gpu": _gpu()}
    record["prompt log-probs, largest difference"] = {
        "asked again": float(abs(first - warm).max()),
        "after sampling, empty cache": float(abs(first - cold).max()),
    }
    record["attempts with equal tokens"] = {
        name: f"{sum(tokens[key] == made['first'][key] for key in tokens)} of {len(tokens)}"
        for name, tokens in made.items()
    }
    common.out.print_json(json.dumps(record, default=str))
    return record


def _sampled(stage: common.Stage, at_once: int) -> dict[tuple[str, int], list[int]]:
    requests = [
        Request(q["question_id"], trial, q["prompt_token_ids"], q["max_tokens"], 1000 * trial + i)
        for trial in range(stage.trials)
        for i, q in enumerate(stage.questions)
    ]
    found: dict[tuple[str, int], list[int]] = {}
    for first in range(0, len(requests), at_once):
        for done in stage.engine.generate(iter(requests[first : first + at_once])):
            if done is not None:
                found[done.request.question_id, done.request.trial] = done.token_ids
    return found


def judged(args: argparse.Namespace) -> dict[str, Any]:
    """Both engines on the same prompts, and their distance from float32."""
    import torch

    words, random = [100, 200, 300], np.random.default_rng(0)
    prompts = {
        length: random.integers(3, 448, (max(2, args.tokens // length), length)).tolist()
        for length in args.lengths
    }
    few, rows, values = prompts[min(args.lengths)][:8], [], {}
    other = random.integers(3, 448, (2, min(args.lengths))).tolist()
    for name, dtype in (("vllm", "bfloat16"), ("transformers", "bfloat16"), ("", "float32")):
        config = _config(args, name or "transformers", dtype)
        engine = engines.load_verifier(config, max(args.lengths) + 8)
        engine.next_logprobs(other, words, lambda: None)  # kernels are chosen and compiled
        row: dict[str, Any] = {"engine": name, "settings": engine.describe(), "tokens/s": {}}
        for length, given in prompts.items() if name else ():
            began = time.perf_counter()
            engine.next_logprobs(given, words, lambda: None)
            row["tokens/s"][length] = len(given) * length / (time.perf_counter() - began)
        values[name] = engine.next_logprobs(few, words, lambda: None)
        # Of this process: vLLM's core is another one, which has ended when transformers begins.
        row["peak GiB"] = torch.cuda.max_memory_allocated() / 2**30
        engine.close()
        rows.append(row)
    for row in rows[:2]:
        found, exact = values[row["engine"]], values[""]
        off = abs(found - exact)
        row["from float32"] = {"largest": float(off.max()), "median": float(np.median(off))}
        row["largest label the same"] = float(np.mean(found.argmax(1) == exact.argmax(1)))
    common.out.print_json(json.dumps(rows[:2], default=str))
    return {"gpu": _gpu(), "engines": rows[:2]}


def _config(args: argparse.Namespace, engine: str, dtype: str) -> RunConfig:
    judge = {"id": Path(args.model).resolve(), "dtype": dtype, "engine.name": engine}
    more = ["verifier=demo", *(f"verifier.{key}={value}" for key, value in judge.items())]
    return verifier_as_model(compose.load([*more, *args.settings]))


def _gpu() -> list[str]:
    query = "--query-gpu=name,driver_version,memory.total"
    return program.printed("nvidia-smi", query, "--format=csv,noheader")


if __name__ == "__main__":
    common.main(main)
