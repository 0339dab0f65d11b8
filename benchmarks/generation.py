"""What the generate stage costs over the bare engine, and what its choices cost.

    python -m benchmarks.generation                           the demo on this machine
    python -m benchmarks.generation --model FOLDER --max-tokens 2048 --rounds 3     on a GPU

One process, one engine, the same requests (every trial of every question, the same seeds,
chosen-token log-probs), in alternating order:

  bare                    LLM.generate on the ready list of requests; nothing is written
  stage                   the generate stage in a fresh run folder: prompt log-probs once per
                          question, every attempt durable, the last journal sealed
  no seeds, no log-probs, prompt log-probs on every trial
                          as bare, one thing changed
  prompt log-probs once   one request per question, max_tokens=1: what the stage adds to sampling
  one at a time           a sample of the requests, one LLM.generate call each, scaled up

Loading the engine is in no figure: the script loads one and hands it to the stage in the place of
`pipeline.engines.load`. The prefix cache is emptied before every measurement. A round of warm-up
is not counted.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bayes_at_n.pipeline.config.settings import attempt_seed
from benchmarks import common

MOST, LEAST = 1.05, 15.0  # the targets: stage / bare, one at a time / stage


def main() -> None:
    """Measure and report."""
    parser = common.parser(__doc__, singles=60)
    common.add_work(parser)
    common.add_rounds(parser)
    args = parser.parse_args()
    with common.workdir(args) as folder:
        stage = common.Stage(args, folder)
        variants = _variants(args, stage)
        _warm_up(args, stage, folder)
        found = common.alternate(args.rounds, variants)
        record = _report(stage, found)
    common.finish(args, record)


def _variants(
    args: argparse.Namespace, stage: common.Stage
) -> dict[str, Callable[[], dict[str, float]]]:
    def bare(**changes: Any) -> Callable[[], dict[str, float]]:
        return lambda: _bare(stage, **changes)

    return {
        "bare": bare(),
        "stage": stage.measure,
        "no seeds": bare(seed=None),
        "no log-probs": bare(logprobs=None, flat_logprobs=False),
        "prompt log-probs on every trial": bare(prompt_logprobs=0),
        "prompt log-probs once": lambda: _prompts(stage),
        "one at a time": lambda: _singles(stage, args.singles),
    }


def requests(
    stage: common.Stage, trials: Iterable[int], **changes: Any
) -> tuple[list[Any], list[Any]]:
    """Prompts and parameters of the attempts, in the order of the stage: trial by trial."""
    from vllm import SamplingParams, TokensPrompt

    s = stage.base.cfg.sampling
    prompts, params = [], []
    for trial in trials:
        for question in stage.questions:
            given = {
                "temperature": s.temperature,
                "top_p": s.top_p,
                "top_k": s.top_k or 0,
                "seed": attempt_seed(stage.base.cfg, question["question_id"], trial),
                "max_tokens": question["max_tokens"],
                "logprobs": 0,
                "flat_logprobs": True,
            }
            prompts.append(TokensPrompt(prompt_token_ids=question["prompt_token_ids"]))
            params.append(SamplingParams(**(given | changes)))
    return prompts, params


def _bare(stage: common.Stage, **changes: Any) -> dict[str, float]:
    prompts, params = requests(stage, range(stage.trials), **changes)
    llm = stage.engine.llm
    llm.reset_prefix_cache()
    began, cpu = time.perf_counter(), time.process_time()
    outputs = llm.generate(prompts, params, use_tqdm=False)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    tokens = sum(len(o.outputs[0].token_ids) for o in outputs)
    return {"seconds": seconds, "attempts": len(outputs), "tokens": tokens, "cpu_s": cpu}


def _prompts(stage: common.Stage) -> dict[str, float]:
    stage.engine.llm.reset_prefix_cache()
    began = time.perf_counter()
    stage.engine.prompt_logprobs([q["prompt_token_ids"] for q in stage.questions])
    return {"seconds": time.perf_counter() - began, "tokens": len(stage.questions)}


def _singles(stage: common.Stage, most: int) -> dict[str, float]:
    prompts, params = requests(stage, range(stage.trials))
    total, llm, tokens = len(prompts), stage.engine.llm, 0
    llm.reset_prefix_cache()
    began = time.perf_counter()
    for prompt, param in list(zip(prompts, params, strict=True))[:most]:
        [output] = llm.generate([prompt], [param], use_tqdm=False)
        tokens += len(output.outputs[0].token_ids)
    scale = total / min(most, total)
    return {"seconds": (time.perf_counter() - began) * scale, "tokens": tokens * scale}


def _warm_up(args: argparse.Namespace, stage: common.Stage, folder: Path) -> None:
    """Two trials of everything, so that no first call of a kernel is measured."""
    few = argparse.Namespace(**vars(args) | {"trials": min(2, args.trials), "singles": 2})
    base, stage.base = stage.base, common.Run(common.run_config(few, folder / "prepared"))
    try:
        for measure in _variants(few, stage).values():
            measure()
    finally:
        stage.base = base


def _report(stage: common.Stage, found: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    times = {name: [m["seconds"] for m in rounds] for name, rounds in found.items()}
    times["stage, by its own record"] = [m["wall_s"] for m in found["stage"]]
    times["stage without prompt log-probs"] = [m["sampling_s"] for m in found["stage"]]
    times["stage, the whole call"] = [m["call_s"] for m in found["stage"]]
    tokens = {
        name: statistics.median(m["tokens"] for m in rounds) for name, rounds in found.items()
    }
    to_bare = {name: common.ratio(t, times["bare"]) for name, t in times.items()}
    rows = [
        [name, statistics.median(t), min(t), to_bare[name]["median"], to_bare[name]["of_minima"]]
        for name, t in times.items()
    ]
    s = stage.base.cfg.sampling
    title = f"{len(stage.questions)} questions x {s.trials} trials, {stage.base.cfg.model.name}"
    common.table(title, ["", "median s", "min s", "to bare", "of minima"], rows)
    if tokens["stage"] != tokens["bare"]:  # with seeds both sides should make the same tokens
        common.out.print(
            f"warning: stage made {tokens['stage']:.0f} tokens, bare {tokens['bare']:.0f}"
        )
    rate = tokens["stage"] / min(times["stage"])
    common.out.print(f"{tokens['stage']:.0f} tokens; stage at best {rate:.0f} tokens/s")
    record: dict[str, Any] = {
        "sampling": asdict(s),
        "engine": stage.engine.describe(),
        "questions": len(stage.questions),
        "tokens": tokens,
        "seconds": times,
        "ratio_to_bare": to_bare,
    }
    common.out.print(common.against_target("stage / bare", to_bare["stage"], most=MOST))
    # On busy processors this is the steadier figure; an engine in another process is not in it.
    cpu = common.ratio(*([m["cpu_s"] for m in found[side]] for side in ("stage", "bare")))
    record["cpu_ratio_to_bare"] = cpu
    common.out.print(common.against_target("the same in processor time of this process", cpu))
    single = common.ratio(times["one at a time"], times["stage"])
    record["one_at_a_time_to_stage"] = single
    common.out.print(common.against_target("one at a time / stage", single, least=LEAST))
    return record


if __name__ == "__main__":
    common.main(main)
