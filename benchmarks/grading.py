"""Grading against a plain math_verify loop, and 192,000 attempts end to end.

    python -m benchmarks.grading                    2,400 completions of 60 KB, two kinds of contest
    python -m benchmarks.grading --attempts 192000  the grade stage on a run folder, 15 KB each

Completions are synthetic: reasoning with inline mathematics, boxes on the way, `</think>`, and a
closing sentence with the answer. Answers to a question follow a steep distribution: some right
ones in several spellings, a few popular mistakes and rare ones. "integers" has answers like AIME's,
"expressions" fractions, surds, multiples of pi, tuples and sets.

  ours    extract and grade with a cold cache, everything included (worker processes, too)
  plain   `verify(parse(gold), parse(completion))`, one after the other, on every K-th completion
          and scaled up; the library is imported and warm
"""

import argparse
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from bayes_at_n import verifiers
from bayes_at_n.pipeline.store import shards
from bayes_at_n.pipeline.store.columns import ATTEMPTS
from bayes_at_n.pipeline.store.runfolder import Run
from benchmarks import common

LEAST = {"integers": 40.0, "expressions": 20.0}  # the targets: plain / ours
QUESTIONS, TRIALS = 30, 80
_FILLER = [
    "Let me consider the case $n = {0}$ first, so that $\\frac{{{0}}}{{{1}}} < {1}$. ",
    "Wait, I should check: $\\sqrt{{{0}^2 + {1}}}$ is not an integer. ",
    "By symmetry we get $a_{{{0}}} + b_{{{1}}} = {0}$ and hence the sum telescopes.\n\n",
    "Suppose instead that it were \\boxed{{{0}}}; then {1} would divide {0}, which fails. ",
]


def main() -> None:
    """Measure and report."""
    parser = common.parser(__doc__)
    common.add_rounds(parser, default=3)
    parser.add_argument("--size", type=int, default=60_000, metavar="BYTES", help="default 60,000")
    parser.add_argument("--every", type=int, default=20, metavar="K", help="plain: default 20")
    parser.add_argument("--attempts", type=int, metavar="N", help="end to end instead, 15 KB each")
    args = parser.parse_args()
    record = _end_to_end(args) if args.attempts else {k: _compare(args, k) for k in LEAST}
    common.finish(args, record)


def answers(kind: str, rng: random.Random) -> tuple[str, list[str], list[str]]:
    """Gold answer, spellings of it, and wrong answers from popular to rare."""
    a, b, c = rng.randint(2, 40), rng.randint(2, 19), rng.choice([2, 3, 5, 6, 7, 10, 11])
    ratio = rf"\frac{{{a}}}{{{b}}}"
    if kind == "integers":
        gold = rng.randint(0, 999)
        wrong = [str(rng.randint(0, 999)) for _ in range(40)]
        return f"{gold:03d}", [str(gold), f"{gold:03d}", f"\\text{{{gold}}}"], wrong
    shapes: list[tuple[str, list[str]]] = [
        (ratio, [rf"\dfrac{{{a}}}{{{b}}}", f"{a}/{b}", rf"\frac{{{2 * a}}}{{{2 * b}}}"]),
        (rf"{a}\sqrt{{{c}}}", [rf"\sqrt{{{a * a * c}}}", rf"{a} \sqrt {{{c}}}"]),
        (rf"\frac{{{a}\pi}}{{{b}}}", [rf"\frac{{{a}}}{{{b}}}\pi", rf"{a}\pi/{b}"]),
        (rf"{a} + {b}\sqrt{{{c}}}", [rf"{b}\sqrt{{{c}}}+{a}", rf"{a}+\sqrt{{{b * b * c}}}"]),
        (rf"({a}, {b})", [rf"\left({a},{b}\right)", rf"({a},\; {b})"]),
        (rf"\{{{a}, {b + 50}\}}", [rf"\left\{{{b + 50}, {a}\right\}}", f"{a}, {b + 50}"]),
    ]
    gold_text, spellings = rng.choice(shapes)
    wrong = [
        rng.choice([rf"\frac{{{rng.randint(1, 99)}}}{{{b}}}", rf"{rng.randint(2, 60)}\sqrt{{{c}}}",
                    str(rng.randint(1, 400)), rf"{rng.randint(1, 30)}\pi", "2x+1"])
        for _ in range(40)
    ]  # fmt: skip
    return gold_text, [gold_text, *spellings], wrong


def completions(
    kind: str, questions: int, trials: int, size: int
) -> Iterator[tuple[str, int, str, str]]:
    """(question id, trial, gold, completion), question by question."""
    for q in range(questions):
        rng = random.Random(f"{kind} {q}")
        gold, right, wrong = answers(kind, rng)
        rate = (q + 0.5) / questions
        filler = "".join(
            rng.choice(_FILLER).format(rng.randint(2, 99), rng.randint(2, 99))
            for _ in range(size // 60)
        )
        for trial in range(trials):
            if rng.random() < rate:
                answer = rng.choice(right)
            else:
                answer = wrong[min(int(rng.expovariate(0.4)), len(wrong) - 1)]
            start = rng.randint(0, 200)
            thoughts = filler[start : start + size]
            text = f"<think>{thoughts}</think>\n\nThe answer is $\\boxed{{{answer}}}$."
            yield f"{kind}-{q:04d}", trial, gold, text


def _compare(args: argparse.Namespace, kind: str) -> dict[str, Any]:
    made = list(completions(kind, QUESTIONS, TRIALS, args.size))
    ours, plain, agree, layers = [], [], 0, Counter[str]()
    _plain(made[:1])
    for _ in range(args.rounds):
        began = time.perf_counter()
        found = [verifiers.extract(text, truncated=False).answer for _, _, _, text in made]
        pairs = [(gold, a) for (_, _, gold, _), a in zip(made, found, strict=True) if a is not None]
        grades = verifiers.grade(pairs)
        ours.append(time.perf_counter() - began)
        sample = made[:: args.every]
        began = time.perf_counter()
        theirs = _plain(sample)
        plain.append((time.perf_counter() - began) * len(made) / len(sample))
        mine = [grades[pair].outcome == "correct" for pair in pairs[:: args.every]]
        agree = sum(m == t for m, t in zip(mine, theirs, strict=True))
        layers = Counter(grade.layer for grade in grades.values())
    found_ratio = common.ratio(plain, ours)
    rate = len(made) / min(ours)
    common.out.print(
        f"{kind}: {len(made)} completions, ours {min(ours):.2f} s ({rate:.0f} a second), plain"
        f" {min(plain):.1f} s; {agree} of {len(theirs)} sampled grades agree"
    )
    common.out.print(f"  {sum(layers.values())} distinct pairs: {_shares(layers)}")
    common.out.print("  " + common.against_target("plain / ours", found_ratio, least=LEAST[kind]))
    return {"ours_s": ours, "plain_s": plain, "ratio": found_ratio, "layers": layers}


def _plain(rows: list[tuple[str, int, str, str]]) -> list[bool]:
    from math_verify import parse, verify

    return [bool(verify(parse(f"${gold}$"), parse(text))) for _, _, gold, text in rows]


def _shares(layers: Counter[str]) -> str:
    total = sum(layers.values())
    return ", ".join(f"{name} {n / total:.1%}" for name, n in layers.most_common())


def _end_to_end(args: argparse.Namespace) -> dict[str, Any]:
    """The grade stage on a run folder, half integers, half expressions."""
    from bayes_at_n.pipeline.grade.stage import grade

    trials, each = TRIALS, max(1, args.attempts // (2 * TRIALS))
    with common.workdir(args) as folder:
        golds, part, waiting = {}, 0, list[dict[str, Any]]()
        attempts = folder / "attempts"
        for kind in LEAST:
            for qid, trial, gold, text in completions(kind, each, trials, 15_000):
                golds[qid] = gold
                waiting.append(_attempt(qid, trial, text))
                if len(waiting) == 4000:
                    part = _store(attempts, waiting, part)
        _store(attempts, waiting, part)
        run = _run(folder, golds)
        attempts.rename(run.attempts)
        began = time.perf_counter()
        grade(run)
        seconds = time.perf_counter() - began
        layers: Counter[str] = Counter()
        from bayes_at_n.pipeline.store.columns import GRADES

        for batch in shards.batches(run.grades, GRADES, ["layer"], shards.Damage()):
            layers.update(batch["layer"].to_pylist())
    total = sum(layers.values())
    common.out.print(
        f"{total} attempts of 15 KB end to end in {seconds:.1f} s: {total / seconds:.0f} a second"
    )
    common.out.print(f"attempts by the layer that decided: {_shares(layers)}")
    return {"attempts": total, "seconds": seconds, "layers": layers}


def _attempt(qid: str, trial: int, text: str) -> dict[str, Any]:
    numbers = {"seed": trial, "prompt_tokens": 1, "completion_tokens": 0, "token_ids": []}
    times = {"logprobs": None, "started": 0.0, "first_token": 0.0, "finished": 0.0}
    key = {"question_id": qid, "trial": trial, "text": text, "finish_reason": "stop"}
    return key | numbers | times


def _store(folder: Path, waiting: list[dict[str, Any]], part: int) -> int:
    if waiting:
        table = pa.Table.from_pylist(waiting, ATTEMPTS)
        shards.write_part(folder / f"benchmark-{part:05d}.parquet", table)
        waiting.clear()
    return part + 1


def _run(folder: Path, golds: dict[str, str]) -> Run:
    """A run folder of those questions, as `prepare` would leave it."""
    path = folder / "questions.jsonl"
    rows = [{"id": qid, "problem": qid, "answer": gold} for qid, gold in golds.items()]
    common.write_jsonl(path, rows)
    few = ["dataset=jsonl", f"dataset.path={path}", f"sampling.trials={TRIALS}"]
    from bayes_at_n.pipeline.config import compose

    run = Run(compose.load(["model=demo", *few, f"run_dir={folder / 'run'}"]))
    common.prepare(run)
    return Run(run.cfg)


if __name__ == "__main__":
    common.main(main)
