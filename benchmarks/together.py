"""Four datasets in one command against four commands: one load of the model, and one tail.

    python -m benchmarks.together
    python -m benchmarks.together --rounds 3 --trials 20 engine.batch_size=64

The demo's questions in four parts, each a dataset. Every measurement is whole commands, `generate`
after `prepare`, in fresh run folders: one that names all four, or four one after the other.
"""

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bayes_at_n.pipeline.base.program import ROOT
from benchmarks import common

PARTS, LEAST = 4, 1.3  # the target: apart / together


def main() -> None:
    """Measure and report."""
    parser = common.parser(__doc__, trials=20)
    common.add_rounds(parser, 3)
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="other settings")
    args = parser.parse_args()
    rows = [json.loads(line) for line in (ROOT / "demo" / "questions.jsonl").open()]
    with common.workdir(args) as folder:
        names = [str(folder / f"part-{i}.jsonl") for i in range(PARTS)]
        for i, name in enumerate(names):
            common.write_jsonl(Path(name), rows[i::PARTS])
        sides: dict[str, Callable[[], dict[str, float]]] = {
            "together": partial(_measure, args, folder / "runs", [",".join(names)]),
            "apart": partial(_measure, args, folder / "runs", names),
        }
        found = common.alternate(args.rounds, sides)
    ratio = common.ratio(*([m["seconds"] for m in found[side]] for side in ("apart", "together")))
    common.out.print(common.against_target("apart / together", ratio, least=LEAST))
    common.finish(args, {"rounds": found, "ratio": ratio})


def _measure(args: argparse.Namespace, runs: Path, datasets: list[str]) -> dict[str, float]:
    shutil.rmtree(runs, ignore_errors=True)
    command = [sys.executable, "-m", "pipeline", "run", "stages=[prepare,generate]", "model=demo"]
    command += [f"trials={args.trials}", f"runs={runs}", *args.settings]
    began = time.perf_counter()
    for name in datasets:
        done = subprocess.run([*command, f"dataset={name}"], capture_output=True, text=True)
        if done.returncode:
            raise common.UserError(f"dataset={name} failed: {done.stderr[-1000:]}")
    seconds = time.perf_counter() - began
    sessions = [json.loads(path.read_text()) for path in runs.glob("*/*/sessions/*.json")]
    return {"seconds": seconds, "attempts": sum(session["attempts"] for session in sessions)}


if __name__ == "__main__":
    common.main(main)
