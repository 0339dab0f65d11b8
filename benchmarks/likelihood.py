"""Options by likelihood against lm-evaluation-harness: same model, data and few-shot settings.

    make lm-eval                                          an environment of its own, from its lock
    .venv-lm-eval/bin/python -m benchmarks.likelihood     the demo's model in both engines
    .venv-lm-eval/bin/python -m benchmarks.likelihood --model FOLDER --questions 200
    python -m benchmarks.likelihood --shots 25            times alone, without the harness

Four files are made: MMLU-like (letters, five examples), ARC-like and HellaSwag-like (texts, three
and none), and one whose prompts end with a space, which moves the border of prompt and option. Both
sides score them in float32. Compared are the log-probs of every option, with the prompt and
without, and which option each of three rules chooses. With --shots an ARC-like file is scored with
every prompt prefilled for each option, and once for all.
"""

import argparse
import random
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from bayes_at_n.pipeline import engines
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.generate.stage import generate
from bayes_at_n.pipeline.grade.attempts import likelihood_values
from bayes_at_n.pipeline.prepare import models
from bayes_at_n.pipeline.prepare.solved import options
from bayes_at_n.pipeline.prepare.stage import prepare
from bayes_at_n.pipeline.store import runfolder, tables
from bayes_at_n.pipeline.store.runfolder import Run
from benchmarks import common

MOST = 1e-3  # nats, the largest difference of an option's log-prob that is accepted
RULES = {"sum": "acc", "byte": "acc_bytes", "unconditional": "acc_mutual_info"}
LETTERS = "".join(f"\n{letter}. {{{{choices[{i}]}}}}" for i, letter in enumerate("ABCD"))
# Of each file our prompt and number of examples; the harness's text, options and delimiter.
TASKS: dict[str, tuple[str, int, str, Any, str]] = {
    "mmlu-like": ("letter", 5, f"{{{{question}}}}{LETTERS}\nAnswer:", [*"ABCD"], " "),
    "arc-like": ("cloze", 3, "Question: {{question}}\nAnswer:", "{{choices}}", " "),
    "hellaswag-like": ("text", 0, "{{question}}", "{{choices}}", " "),
    "border": ("border", 2, "{{question}} So ", "{{choices}}", ""),
}
BORDER = ["prompt=text", 'prompt.template="{problem} So "', 'prompt.solved="{answer}\n\n"']
WORDS = ["sum", "of", "two", "café", "naïve", "12", "the", "Ω", "(a)", "\\frac{1}{2}"]


def main() -> None:
    """Score on both sides, and compare."""
    parser = common.parser(__doc__)
    parser.add_argument("--model", default="demo", help="a name in configs/model, or a folder")
    parser.add_argument("--questions", type=int, default=60, metavar="M", help="of each file")
    parser.add_argument("--shots", type=int, metavar="N", help="examples of a file to time")
    common.add_rounds(parser)
    args = parser.parse_args()
    named = args.model in compose.files("model")
    model = [f"model={args.model}"] if named else ["model=custom", f"model.id={args.model}"]
    model += ["model.dtype=float32", "verifier=none"]
    record = dict[str, Any]()
    with common.workdir(args) as folder:
        for name in TASKS:
            for part, count in (("test", args.questions), ("dev", 8 + (args.shots or 0))):
                common.write_jsonl(folder / f"{name}-{part}.jsonl", made(f"{name} {part}", count))
        if args.shots:
            for engine in ("transformers", "vllm"):
                record[engine] = timed([*model, f"engine={engine}"], args, folder)
            return common.finish(args, record)
        base = compose.load([*model, "dataset=demo", f"run_dir={folder / 'none'}"])
        theirs, seconds = harness(str(base.model.id), folder)
        for engine in ("transformers", "vllm"):
            for name in TASKS:
                run = ours([*model, f"engine={engine}"], name, folder, engine)
                record[f"{name}, {engine}"] = compared(run, theirs[name])
    heads = ["largest differences, nats", "with prompt", "without", "same choices", "s"]
    rows = [[name, *(f"{value:.2g}" for value in found.values())] for name, found in record.items()]
    common.table("ours against lm-evaluation-harness, float32", heads, rows)
    common.out.print(f"lm-evaluation-harness, all files: {seconds:.1f} s")
    common.finish(args, {"files": record, "lm_eval_s": seconds})
    if not all(max(of["with"], of["alone"]) <= MOST and of["same"] == 1 for of in record.values()):
        raise UserError(f"log-probs differ by more than {MOST:g} nats, or choices differ")


def made(name: str, count: int) -> list[dict[str, Any]]:
    """Make questions with four options of one to six words."""
    rng, rows = random.Random(name), list[dict[str, Any]]()
    for _ in range(count):
        a, b = rng.sample(range(1000), 2)
        wrong = [" ".join(rng.sample(WORDS, rng.randint(1, 6))) for _ in range(2)]
        options = rng.sample([str(a + b), f"{a + b} {wrong[0]}", f"{wrong[1]} {b}", str(a - b)], 4)
        question = f"What is {a} + {b}, {rng.choice(WORDS)}?"
        rows.append({"question": question, "choices": options, "answer": options.index(str(a + b))})
    return rows


def timed(settings: list[str], args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Score options behind prompts that are prefilled each time or once, in alternating rounds."""
    own = [*settings, "engine.batch_size=64"]
    run = prepared(own, "arc-like", folder, f"{settings[-1]}-timed", args.shots)
    tokenizer = models.tokenizer(run.cfg.model)
    pairs = [one.after_prompt for row in run.questions for one in options(run.cfg, tokenizer, row)]
    prompts = [[*context, *text] for context, text in pairs]
    engine = engines.load(run.cfg, max(map(len, prompts)) + 1)
    found = dict[str, list[float]]({"each": [], "once": []})
    values = dict[str, Any]()
    for _ in range(args.rounds + 1):  # the first one warms up
        for name in found:
            if run.cfg.engine.name == "vllm":
                engine.llm.reset_prefix_cache()  # type: ignore[attr-defined]
            began = time.perf_counter()
            after = [len(context) for context, _ in pairs] if name == "once" else ()
            values[name] = engine.prompt_logprobs(prompts, after)
            found[name].append(time.perf_counter() - began)
    engine.close()
    each, once = (statistics.median(times[1:]) for times in found.values())
    apart = np.nanmax(np.abs(np.subtract(*map(np.concatenate, values.values()))))
    name = run.cfg.engine.name
    common.out.print(f"{name}: {each / once:.2f} times as fast, {apart:.2g} nats apart")
    return {"times": found, "ratio": each / once, "apart": float(apart)}


def prepared(
    settings: list[str], name: str, folder: Path, engine: str, more_shots: int | None = None
) -> Run:
    """Run `prepare` on a file."""
    prompt, shots, *_ = TASKS[name]
    shots = more_shots or shots
    data = f"dataset=jsonl dataset.path={folder / f'{name}-test.jsonl'} dataset.answer=choice"
    data += " dataset.gold=index dataset.fields.choices=choices dataset.fields.problem=question"
    more = [*data.split(), "dataset.fields.id=null", "sampling=likelihood"]
    more += BORDER if prompt == "border" else [f"prompt={prompt}"]
    if shots:
        more += [f"prompt.shots={shots}", f"prompt.shots_from={folder / f'{name}-dev.jsonl'}"]
    run = Run(compose.load([*settings, *more, f"run_dir={folder / f'{name}-{engine}'}"]))
    prepare(run)
    return Run(run.cfg)


def ours(settings: list[str], name: str, folder: Path, engine: str) -> Run:
    """Run `prepare` and `generate` on a file."""
    run = prepared(settings, name, folder, engine)
    generate(run)
    return Run(run.cfg)


def harness(model: str, folder: Path) -> tuple[dict[str, list[Any]], float]:
    """Return the samples of each file, as the harness logs them, and the seconds that it took."""
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    tasks = list[Any]()
    for name, (_, shots, text, choices, delimiter) in TASKS.items():
        files = {part: str(folder / f"{name}-{part}.jsonl") for part in ("test", "dev")}
        task: dict[str, Any] = {"task": name, "dataset_path": "json", "test_split": "test"}
        task |= {"dataset_kwargs": {"data_files": files}, "fewshot_split": "dev"}
        task |= {"fewshot_config": {"sampler": "first_n"}, "num_fewshot": shots}
        task |= {"output_type": "multiple_choice", "doc_to_text": text, "doc_to_choice": choices}
        task |= {"doc_to_target": "{{answer}}", "target_delimiter": delimiter}
        tasks.append(task | {"metric_list": [{"metric": metric} for metric in RULES.values()]})
    began = time.perf_counter()
    found = simple_evaluate(
        model="hf",
        model_args={"pretrained": model, "dtype": "float32"},
        device="cpu",
        tasks=tasks,
        task_manager=TaskManager(include_defaults=False),
        bootstrap_iters=0,
    )
    return found["samples"], time.perf_counter() - began


def compared(run: Run, samples: list[Any]) -> dict[str, float]:
    """Return the largest differences of a file's log-probs, the share of equal choices, seconds."""
    table = tables.streamed(run, "attempts", ["options"])
    places = tables.encode(table, tables.question_ids(run)) >> 32
    table, samples = table.take(np.argsort(places)), sorted(samples, key=lambda of: of["doc_id"])
    theirs = [np.reshape([answer[0][0] for answer in of["resps"]], (2, -1)) for of in samples]
    names, options = ("logprob", "unconditional"), table["options"].to_pylist()
    ours = [[[option[name] for option in of] for name in names] for of in options]
    apart = np.abs(np.array(ours) - np.array(theirs))
    same = list[bool]()
    for rule, metric in RULES.items():
        run.cfg.grading.likelihood = rule
        chosen = likelihood_values(run.cfg, table["options"]).argmax(axis=1)
        for choice, sample in zip(chosen, samples, strict=True):
            same.append((choice == sample["doc"]["answer"]) == sample[metric])
    most = apart.max(axis=(0, 2))
    seconds = runfolder.totals(run).wall_s
    return {"with": most[0], "alone": most[1], "same": float(np.mean(same)), "s": seconds}


if __name__ == "__main__":
    common.main(main)
