"""Throughput of `generate` with engine=openai beside vLLM's own serving benchmark, on one server.

    python -m benchmarks.serving                              the demo on this machine
    python -m benchmarks.serving --model FOLDER --max-tokens 2048 --rounds 3        on a GPU

One vLLM server, the same prompts as token ids, the same seeds and lengths, `engine.in_flight`
requests at a time, in alternating order:

  vllm bench serve      `vllm.benchmarks.serve.benchmark`, what `vllm bench serve` runs: answers are
                        streamed; each token comes with its id and log-prob, as the stage wants it
  the same, text only   as `vllm bench serve` does by itself: text, no log-probs
  bare                  aiohttp with the stage's own requests, unstreamed; answers are thrown away
  stage                 the generate stage: prompt log-probs once per question, every answer
                        checked, every attempt durable, the last journal sealed

The time of every side begins when the server is there and tried; the probe of a run is stated by
itself. Processor seconds are of this process, which is the client of every side in turn, and of the
server's. The prefix cache is left as it is: a round of warm-up fills it for all. At the end, peak
memory of a fresh process that prepares and generates, at three N.
"""

import argparse
import asyncio
import contextlib
import io
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from bayes_at_n.pipeline.base.program import ROOT
from bayes_at_n.pipeline.config.settings import attempt_seed
from bayes_at_n.pipeline.engines.served import SampleRequest
from benchmarks import common, memory
from benchmarks.servers import Server, serving

LEAST, MOST = 0.9, 1.1  # the targets: stage / vllm bench serve; peak at most N / at least N
PEER = "vllm bench serve"
TRIALS = (10, 40, 80)  # of the memory part


def main() -> None:
    """Measure and report."""
    parser = common.parser(__doc__)
    common.add_work(parser)
    common.add_rounds(parser)
    parser.add_argument("--in-flight", type=int, default=256, metavar="K", help="default 256")
    parser.add_argument("--memory-only", action="store_true", help="no throughput")
    parser.add_argument("--url", help=argparse.SUPPRESS)  # of the process whose memory is measured
    args = parser.parse_args()
    if args.url:
        _one(args)
        return
    with common.workdir(args) as folder:
        model = common.run_config(args, folder / "model").model.id
        many = ["--max-num-seqs", str(args.in_flight)]
        with serving(model, folder / "server.log", *many) as server:
            record = {}
            if not args.memory_only:
                asked = argparse.Namespace(**vars(args) | {"settings": _settings(args, server.url)})
                stage = common.Stage(asked, folder)
                variants = _variants(args, stage, server)
                for measure in variants.values():
                    measure()  # a warm-up
                record = _report(stage, common.alternate(args.rounds, variants))
                stage.engine.close()
            record["peak_memory"] = _memory(args, server)
    common.finish(args, record)


def _settings(args: argparse.Namespace, url: str) -> list[str]:
    asked = ["engine=openai", f"engine.url={url}", f"engine.in_flight={args.in_flight}"]
    return [*asked, *args.settings]


def _variants(
    args: argparse.Namespace, stage: common.Stage, server: Server
) -> dict[str, Callable[[], dict[str, float]]]:
    def timed(measure: Callable[[], dict[str, float]]) -> Callable[[], dict[str, float]]:
        def call() -> dict[str, float]:
            before = _server_cpu(server)
            return measure() | {"server_cpu_s": _server_cpu(server) - before}

        return call

    sides = {
        PEER: lambda: _peer(args, stage, server, logprobs=0),
        "the same, text only": lambda: _peer(args, stage, server, logprobs=None),
        "bare": lambda: _bare(args, stage, server),
        "stage": stage.measure,
    }
    return {name: timed(measure) for name, measure in sides.items()}


def _server_cpu(server: Server) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in server.processes())


def _bodies(stage: common.Stage, server: Server) -> Iterator[dict[str, Any]]:
    """What the stage asks, in its order: trial by trial."""
    s = stage.base.cfg.sampling
    for trial in range(stage.trials):
        for question in stage.questions:
            seed = attempt_seed(stage.base.cfg, question["question_id"], trial)
            prompt = question["prompt_token_ids"]
            ask = SampleRequest(prompt, question["max_tokens"], seed, s, logprobs=s.logprobs)
            yield ask.body(server.name)


def _peer(
    args: argparse.Namespace, stage: common.Stage, server: Server, logprobs: int | None
) -> dict[str, float]:
    from vllm.benchmarks.datasets import SampleRequest
    from vllm.benchmarks.serve import TaskType, benchmark

    own = {"model", "prompt", "n", "stream", "max_tokens", "logprobs"}  # it says these itself
    own |= {"return_token_ids"} if logprobs is None else set()
    requests = [
        SampleRequest(
            prompt=body["prompt"],
            prompt_len=len(body["prompt"]),
            expected_output_len=body["max_tokens"],
            request_overrides={k: v for k, v in body.items() if k not in own},
        )
        for body in _bodies(stage, server)
    ]
    began = time.process_time()
    with contextlib.redirect_stdout(io.StringIO()):
        found = asyncio.run(
            benchmark(
                task_type=TaskType.GENERATION,
                endpoint_type="openai",
                api_url=f"{server.url}/completions",
                base_url=server.address,
                model_id=server.name,
                model_name=server.name,
                tokenizer=None,
                input_requests=requests,
                logprobs=logprobs,
                request_rate=float("inf"),
                burstiness=1.0,
                disable_tqdm=True,
                num_warmups=0,
                profile=False,
                selected_percentile_metrics=[],
                selected_percentiles=[],
                ignore_eos=False,
                goodput_config_dict={},
                max_concurrency=args.in_flight,
                lora_modules=None,
                extra_headers=None,
                extra_body=None,
                ready_check_timeout_sec=0,
            )
        )
    return {
        "seconds": found["duration"],
        "cpu_s": time.process_time() - began,  # with its statistics, which take no time to speak of
        "attempts": found["completed"],
        "tokens": sum(found["output_lens"]),
    }


def _bare(args: argparse.Namespace, stage: common.Stage, server: Server) -> dict[str, float]:
    bodies = iter(list(_bodies(stage, server)))
    began, cpu = time.perf_counter(), time.process_time()
    counts = asyncio.run(_ask_all(f"{server.url}/completions", bodies, args.in_flight))
    return {
        "seconds": time.perf_counter() - began,
        "cpu_s": time.process_time() - cpu,
        "attempts": len(counts),
        "tokens": sum(counts),
    }


async def _ask_all(url: str, bodies: Iterator[dict[str, Any]], in_flight: int) -> list[int]:
    import aiohttp

    counts: list[int] = []

    async def ask(session: aiohttp.ClientSession) -> None:
        for body in bodies:
            async with session.post(url, json=body) as answer:
                counts.append(len((await answer.json())["choices"][0]["token_ids"]))

    connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        await asyncio.gather(*(ask(session) for _ in range(in_flight)))
    return counts


def _report(stage: common.Stage, found: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    def seconds_a_token(name: str) -> list[float]:
        return [m["seconds"] / m["tokens"] for m in found[name]]

    def speed_to(name: str, other: str) -> dict[str, Any]:
        return common.ratio(seconds_a_token(other), seconds_a_token(name))

    def median(name: str, what: str) -> float:
        return statistics.median(m[what] for m in found[name])

    to_peer = {name: speed_to(name, PEER) for name in found}

    rows = [
        [
            name,
            median(name, "seconds"),
            1 / statistics.median(seconds_a_token(name)),
            to_peer[name]["median"],
            1000 * median(name, "cpu_s") / median(name, "attempts"),
            1000 * median(name, "server_cpu_s") / median(name, "attempts"),
            f"{median(name, 'tokens'):.0f}",
        ]
        for name in found
    ]
    s = stage.base.cfg.sampling
    title = f"{len(stage.questions)} questions x {s.trials} trials, {stage.base.cfg.model.name}"
    columns = ["", "median s", "tokens/s", "to peer", "client ms CPU", "server ms CPU", "tokens"]
    common.table(f"{title}; CPU per attempt", columns, rows)
    common.out.print(f"meeting and probing the server, once a run: {stage.load_s:.1f} s")
    line = f"output tokens/s, stage / {PEER}"
    common.out.print(common.against_target(line, to_peer["stage"], least=LEAST))
    for name in ("the same, text only", "bare"):
        line = f"output tokens/s, stage / {name}"
        common.out.print(common.against_target(line, speed_to("stage", name)))
    return {
        "sampling": vars(s),
        "engine": stage.engine.describe(),
        "questions": len(stage.questions),
        "rounds": found,
        "throughput_to_peer": to_peer,
        "probe_s": stage.load_s,
    }


def _memory(args: argparse.Namespace, server: Server) -> dict[str, int]:
    """Bytes at the peak of a fresh client process, by N."""
    peaks = {}
    for trials in TRIALS:
        command = [sys.executable, "-m", "benchmarks.serving", "--url", server.url]
        command += ["--trials", str(trials), "--model", args.model]
        command += ["--max-tokens", str(args.max_tokens), "--in-flight", str(args.in_flight)]
        command += ["--questions", str(args.questions.resolve())] if args.questions else []
        command += ["--limit", str(args.limit)] if args.limit else []
        done = subprocess.run([*command, *args.settings], capture_output=True, text=True, cwd=ROOT)
        said = [line for line in done.stdout.splitlines() if line.startswith("PEAK ")]
        if done.returncode or not said:
            raise common.UserError(f"N={trials} failed: {(done.stderr + done.stdout)[-1500:]}")
        peaks[f"N={trials}"] = int(said[0].split()[1])
    rows = [["client", *(peak / 2**20 for peak in peaks.values())]]
    common.table("peak resident memory, MiB", ["", *peaks], rows)
    sizes = list(peaks.values())
    growth = {"median": sizes[-1] / sizes[0], "of_minima": sizes[-1] / sizes[0]}
    growth["rounds"] = [growth["median"]]
    line = f"peak memory of the client, N={TRIALS[-1]} / N={TRIALS[0]}"
    common.out.print(common.against_target(line, growth, most=MOST))
    return peaks


def _one(args: argparse.Namespace) -> None:
    asked = argparse.Namespace(**vars(args) | {"settings": _settings(args, args.url)})
    with common.workdir(args) as folder:
        run = common.Run(common.run_config(asked, folder / "run"))
        common.prepare(run)
        common.generate(run)
    common.out.print(f"PEAK {memory.peak()}")


if __name__ == "__main__":
    common.main(main)
