"""The verify stage against one forward pass an attempt with transformers.

    python -m benchmarks.verify                          the demo: 30 questions, N = 80

The attempts are real ones: the model samples them once, and they are graded. In one process, in
alternating order, on the same attempts with the same weights in the same precision:

  stage    the whole call of the verify stage on a folder without verdicts: reading the attempts,
           content-free baselines, prompts, log-probs, calibration, durable verdicts, the report
  plain    attempt by attempt the whole prompt through transformers, batch 1, and the label of the
           largest logit: no baseline, nothing reused, nothing written; on every K-th attempt and
           scaled up. Its prompts are rendered by the same code, one at a time

Attempts of a small model repeat each other, and the stage judges a text once. So both sides are
measured a second time with "Attempt 17." before every response: then all texts differ, and from
the response on no two prompts share a prefix. That ratio owes nothing to judging texts once.

Loading models is in no figure: the script loads one of each, and hands the stage its engine in the
place of `pipeline.engines.load_verifier`. The prefix cache is emptied before every measurement. A
round of warm-up is not counted.
"""

import argparse
import contextlib
import shutil
import statistics
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline import engines
from bayes_at_n.pipeline.base import console
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.settings import verifier_as_model
from bayes_at_n.pipeline.generate.stage import generate
from bayes_at_n.pipeline.grade.stage import grade
from bayes_at_n.pipeline.prepare import models
from bayes_at_n.pipeline.prepare.stage import prepare
from bayes_at_n.pipeline.store import shards
from bayes_at_n.pipeline.store.columns import ATTEMPTS, GRADES, KEY, VERDICTS
from bayes_at_n.pipeline.store.outcomes import GRADES_TABLE
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.verify.prompts import Candidate, Prompts
from bayes_at_n.pipeline.verify.stage import verify
from benchmarks import common

LEAST = 5.0  # the target: plain / stage
SAMPLED, DISTINCT = "as sampled", "distinct"
Key = tuple[str, int]


def main() -> None:
    """Measure and report."""
    parser = common.parser(__doc__)
    common.add_work(parser)
    common.add_rounds(parser)
    parser.add_argument("--verifier", default="demo", metavar="NAME", help="default %(default)s")
    parser.add_argument("--every", type=int, default=8, metavar="K", help="plain: default 8")
    args = parser.parse_args()
    args.settings = [f"verifier={args.verifier}", *args.settings]
    with common.workdir(args) as folder:
        record = _compare(args, folder, sampled(args, folder / "sampled"))
    common.finish(args, record)


def sampled(args: argparse.Namespace, folder: Path) -> Run:
    """A run of real attempts, graded."""
    run = Run(common.run_config(args, folder))
    if run.cfg.verifier.id is None:
        raise UserError("--verifier none: there is nothing to measure")
    prepare(run)
    generate(run)
    grade(run)
    return run


def variant(args: argparse.Namespace, base: Run, folder: Path, distinct: bool, trials: int) -> Run:
    """A run folder with `trials` of the attempts of `base`, again from the first when they end."""
    run = Run(common.run_config(args, folder, f"sampling.trials={trials}"))
    prepare(run)
    both = (ATTEMPTS, base.attempts, run.attempts), (GRADES, base.grades, run.grades)
    for columns, source, target in both:
        target.mkdir(parents=True, exist_ok=True)
        read = shards.batches(source, columns, columns.names, shards.Damage())
        once = pa.Table.from_batches(read, columns)
        for first in range(0, trials, base.cfg.sampling.trials):
            numbers = pc.add(once["trial"], first).cast(pa.int32())
            table = once.set_column(columns.names.index("trial"), columns.field("trial"), numbers)
            if distinct and "text" in columns.names:
                table = _numbered(table)
            table = table.filter(pc.less(table["trial"], trials))
            stem = f"benchmark-{first:07d}"
            if columns is GRADES:
                GRADES_TABLE.write(run.path, stem, table)
            else:
                shards.write_part(target / f"{stem}.parquet", table)
    return run


def _numbered(table: pa.Table) -> pa.Table:
    texts = zip(table["trial"].to_pylist(), table["text"].to_pylist(), strict=True)
    column = pa.array([f"Attempt {trial}. {text or ''}" for trial, text in texts], pa.string())
    return table.set_column(table.schema.names.index("text"), ATTEMPTS.field("text"), column)


class Handed:
    """An engine that is already loaded, in the place of the one that the stage would load."""

    def __init__(self, engine: Any, longest: int) -> None:
        self.engine, self.longest, self.seconds, self.prompts = engine, longest, 0.0, 0

    def load(self, _cfg: Any, longest: int) -> "Handed":
        if longest > self.longest:
            raise UserError(f"the stage wants {longest} tokens, the engine has {self.longest}")
        return self

    def next_logprobs(self, prompts: Any, token_ids: list[int], on_step: Any) -> Any:
        began = time.perf_counter()
        found = self.engine.next_logprobs(prompts, token_ids, on_step)
        self.seconds += time.perf_counter() - began
        self.prompts += len(prompts)
        return found

    def describe(self) -> Any:
        return self.engine.describe()

    def close(self) -> None:
        """It stays loaded for the next round."""


class Plain:
    """The verifier as one would write it down: a prompt, a forward pass, the largest logit."""

    def __init__(self, run: Run) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        judge = verifier_as_model(run.cfg)
        model = judge.model
        self.prompts = Prompts(run.cfg.verifier, models.tokenizer(model), models.context(model))
        self.device = judge.engine.device or ("cuda" if torch.cuda.is_available() else "cpu")
        given = {"revision": model.revision, "trust_remote_code": model.trust_remote_code}
        loaded = AutoModelForCausalLM.from_pretrained(
            models.locate(model), dtype=model.dtype, **given
        )
        self.model = loaded.to(self.device).eval()

    def judge(self, candidate: Candidate) -> int:
        import torch

        [prompt] = self.prompts.build([candidate])
        with torch.inference_mode():
            ids = torch.tensor([prompt.token_ids], device=self.device)
            logits = self.model(input_ids=ids).logits[0, -1]
            return int(logits[self.prompts.label_ids].argmax())


def _candidates(run: Run) -> list[tuple[Key, Candidate]]:
    """Every attempt in the order of questions and trials."""
    questions = {row["question_id"]: row for row in run.questions}
    answers = {key: row["answer"] or "" for key, row in _rows(run.grades, GRADES, "answer")}
    found = []
    for key, row in sorted(_rows(run.attempts, ATTEMPTS, "text"), key=lambda item: item[0]):
        question, text = questions[key[0]], row["text"] or ""
        given = Candidate(key[0], question["problem"], question["gold"], text, answers[key])
        found.append((key, given))
    return found


def _rows(folder: Path, columns: pa.Schema, *names: str) -> Iterator[tuple[Key, dict[str, Any]]]:
    for batch in shards.batches(folder, columns, [*KEY, *names], shards.Damage()):
        for row in batch.to_pylist():
            yield (row["question_id"], row["trial"]), row


def _compare(args: argparse.Namespace, folder: Path, base: Run) -> dict[str, Any]:
    trials = base.cfg.sampling.trials
    runs = {
        name: variant(args, base, folder / name.split()[-1], name == DISTINCT, trials)
        for name in (SAMPLED, DISTINCT)
    }
    attempts = {name: _candidates(run) for name, run in runs.items()}
    common.out.print(f"loading {base.cfg.verifier.name}, twice ...")
    plain, most = Plain(base), max(len("".join(c).encode()) for _, c in attempts[DISTINCT])
    judge = verifier_as_model(base.cfg)
    longest = min(models.context(judge.model), -(-(most + 4096) // 1024) * 1024)
    engine = engines.load_verifier(judge, longest)
    variants, agree = {}, {}
    for name, run in runs.items():
        variants[f"stage, {name}"] = partial(_stage, run, engine, longest)
        variants[f"plain, {name}"] = partial(_plain, plain, attempts[name], args.every)
        _stage(run, engine, longest)  # warm-up
        agree[name] = _agree(run, plain, attempts[name][:: args.every])
        console.console.quiet = console.results.quiet = True  # the report once is enough
    found = common.alternate(args.rounds, variants)
    console.console.quiet = console.results.quiet = False
    record = {"engine": engine.describe(), **_report(args, found, agree)}
    engine.close()
    return record


def _stage(run: Run, engine: Any, longest: int) -> dict[str, float]:
    for made in ("verdicts", "label_logprobs"):
        shutil.rmtree(run.path / made, ignore_errors=True)
    with contextlib.suppress(AttributeError):  # only vLLM has one
        engine.llm.reset_prefix_cache()
    before, hand = engines.load_verifier, Handed(engine, longest)
    engines.load_verifier = hand.load
    try:
        began, cpu = time.perf_counter(), time.process_time()
        verify(run)
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    finally:
        engines.load_verifier = before
    made = sum(1 for _ in _rows(run.path / "verdicts", VERDICTS))
    found = {"seconds": seconds, "cpu_s": cpu, "attempts": made}
    return found | {"engine_s": hand.seconds, "prompts": hand.prompts}


def _plain(plain: Plain, attempts: list[tuple[Key, Candidate]], every: int) -> dict[str, float]:
    sample = attempts[::every]
    began, cpu = time.perf_counter(), time.process_time()
    for _, candidate in sample:
        plain.judge(candidate)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    scale, made = len(attempts) / len(sample), len(attempts)
    found = {"seconds": seconds * scale, "cpu_s": cpu * scale, "attempts": made}
    return found | {"engine_s": seconds * scale, "prompts": made}


def _agree(run: Run, plain: Plain, sample: list[tuple[Key, Candidate]]) -> float:
    """How often both sides' largest label is the same: rounding may tip a tie."""
    names = [f"logprob_{x}" for x in "abc"]
    rows = _rows(run.path / "verdicts", VERDICTS, *names)
    stored = {key: [row[n] for n in names] for key, row in rows}
    same = [plain.judge(c) == max(range(3), key=stored[key].__getitem__) for key, c in sample]
    return sum(same) / len(same)


def _report(
    args: argparse.Namespace, found: dict[str, list[dict[str, float]]], agree: dict[str, float]
) -> dict[str, Any]:
    import torch

    rows = []
    for name, rounds in found.items():
        middle = {key: statistics.median(m[key] for m in rounds) for key in rounds[0]}
        rate = round(middle["attempts"] / middle["seconds"])
        figures = [middle[key] for key in ("seconds", "engine_s", "cpu_s")]
        rows.append([name, *figures, round(middle["prompts"]), rate])
    columns = ["", "median s", "in engine", "processor", "prompts", "attempts/s"]
    title = f"{rounds[0]['attempts']:.0f} attempts; plain on every {args.every}th, scaled;"
    common.table(f"{title} {torch.get_num_threads()} threads", columns, rows)
    record: dict[str, Any] = {"rounds": found, "agree": agree, "ratio": {}}
    for name, share in agree.items():
        times = ([m["seconds"] for m in found[f"{side}, {name}"]] for side in ("plain", "stage"))
        ratio = record["ratio"][name] = common.ratio(*times)
        least = LEAST if name == SAMPLED else 0.0
        common.out.print(common.against_target(f"plain / stage, {name}", ratio, least=least))
        common.out.print(f"  the largest label is the same on both sides for {share:.1%}")
    return record


if __name__ == "__main__":
    common.main(main)
