"""The mean of four checkpoints of 1 GB in four shards: memory, wall time, exactness.

    python -m benchmarks.merge                       needs 7 GB of disk for a while
    python -m benchmarks.merge --mb 200 --rounds 1   a quick look
    python -m benchmarks.merge --workdir /lustre/me  on the disk that matters

The checkpoints are made up: seeded bf16 weights, laid out as those of a transformer of that size.
Each measurement is a fresh process, with its imports behind it when the clock starts.

  merge   `training.merge.merge`, everything: checks, reading, the mean, fingerprints, writing,
          flushing to the disk, the rename
  copy    the peer: reads every byte of the sources and writes as many as the merged checkpoint has,
          in blocks of 4 MiB, and flushes them to the disk; no arithmetic, no hashes
  warm    the files are in the system's page cache; cold: they were dropped from it before

Memory is the most that the process had (`ru_maxrss`), less that of a process that only has the same
imports. Exactness is against NumPy's float64 average, in ulps of the dtype.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import safe_open

from bayes_at_n.pipeline.base.program import ROOT
from bayes_at_n.pipeline.training import checkpoints
from bayes_at_n.pipeline.training.checkpoints import INDEX
from benchmarks import common

MOST_WALL, MOST_SHARDS, MOST_ULPS = 2.0, 2.0, 1.0  # the targets
CHECKPOINTS, SHARDS = 4, 4
_BLOCK = 4 << 20

CHILD = """
import json, os, resource, sys, time
from pathlib import Path
import torch
from bayes_at_n.pipeline.training import average, merge

def copy(sources, out):
    out.mkdir()
    buffer = memoryview(bytearray(BLOCK))
    for source in sources:
        for path in sorted(source.glob("*.safetensors")):
            with path.open("rb", buffering=0) as file:
                while file.readinto(buffer):
                    pass
    for path in sorted(sources[-1].glob("*.safetensors")):
        with (out / path.name).open("wb", buffering=0) as file:
            left = path.stat().st_size
            while left:
                left -= file.write(buffer[:left])
            os.fsync(file.fileno())

what, *sources, out = sys.argv[1:]
began = time.perf_counter()
if what == "merge":
    merge.merge([Path(s) for s in sources], Path(out))
elif what == "copy":
    copy([Path(s) for s in sources], Path(out))
seconds = time.perf_counter() - began
most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"seconds": seconds, "peak": most}))
"""


def main() -> None:
    """Measure and report."""
    parser = common.parser(__doc__)
    common.add_rounds(parser)
    parser.add_argument(
        "--mb", type=int, default=1000, metavar="MB", help="of a checkpoint; default %(default)s"
    )
    args = parser.parse_args()
    with common.workdir(args) as folder:
        common.out.print(f"making {CHECKPOINTS} checkpoints of {args.mb} MB ...")
        sources = [_checkpoint(folder / f"step-{n}", args.mb, n) for n in range(CHECKPOINTS)]
        found = {state: _compare(args, folder, sources, state) for state in ("warm", "cold")}
        bare = _child("nothing", sources, folder / "out")["peak"]
        ulps = _ulps(sources, folder / "out")
    common.finish(args, _report(args, found, bare, ulps))


def _checkpoint(folder: Path, mb: int, seed: int) -> Path:
    """A model of 16-bit weights in shards, made tensor by tensor."""
    folder.mkdir()
    config = {"architectures": ["MadeUpForCausalLM"], "model_type": "made-up"}
    (folder / "config.json").write_text(json.dumps(config))
    rng, named = np.random.default_rng(seed), {}
    for i in range(SHARDS):
        name = f"model-{i + 1:05d}-of-{SHARDS:05d}.safetensors"
        shapes = _shapes(i, mb * 1_000_000 // (2 * SHARDS))
        named |= dict.fromkeys(shapes, name)
        header, at = {}, 0
        for tensor, shape in shapes.items():
            size = 2 * int(np.prod(shape))
            entry = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
            header[tensor], at = entry, at + size
        text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
        with (folder / name).open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for shape in shapes.values():
                file.write(_bf16(rng, int(np.prod(shape))))
            file.flush()
            os.fsync(file.fileno())
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": named}))
    return folder


def _shapes(shard: int, elements: int) -> dict[str, list[int]]:
    """Layers of a transformer 2048 wide, the last one as large as is left."""
    found: dict[str, list[int]] = {}
    for layer in range(1000):
        for name, shape in (("norm", [2048]), ("attn", [2048, 2048]), ("mlp", [6144, 2048])):
            rows = min(shape[0], elements // 2048) if len(shape) == 2 else shape[0]
            if rows * 2048 > elements or not rows:
                return found
            size = [rows, 2048] if len(shape) == 2 else [2048]
            found[f"model.layers.{shard}.{layer}.{name}.weight"] = size
            elements -= int(np.prod(size))
    return found


def _bf16(rng: np.random.Generator, count: int) -> npt.NDArray[np.uint16]:
    """Weights between 2^-16 and 2^-1 of either sign: any fraction, one of fifteen exponents."""
    bits = rng.integers(0, 1 << 16, count, dtype=np.uint16)
    exponents = 111 + (bits >> 8 & 15)
    return (bits & 0x807F) | (exponents << 7)


def _compare(
    args: argparse.Namespace, folder: Path, sources: list[Path], state: str
) -> dict[str, list[dict[str, float]]]:
    def run(what: str) -> dict[str, float]:
        shutil.rmtree(folder / "out", ignore_errors=True)
        os.sync()  # nobody pays for what the one before has left
        for path in _files(sources):
            (_drop if state == "cold" else _warm)(path)
        return _child(what, sources, folder / "out")

    common.out.print(f"{state} page cache")
    order = {"merge": lambda: run("merge"), "copy": lambda: run("copy")}
    found = common.alternate(args.rounds, order)
    run("merge")  # the last that stays, for exactness
    return found


def _files(sources: list[Path]) -> Iterator[Path]:
    for source in sources:
        yield from sorted(source.glob("*.safetensors"))


def _drop(path: Path) -> None:
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _warm(path: Path) -> None:
    with path.open("rb", buffering=0) as file:
        buffer = bytearray(_BLOCK)
        while file.readinto(buffer):
            pass


def _child(what: str, sources: list[Path], out: Path) -> dict[str, float]:
    code = CHILD.replace("BLOCK", str(_BLOCK))
    command = [sys.executable, "-c", code, what, *map(str, sources), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        raise common.UserError(f"{what}: {done.stderr.strip()[-1000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _ulps(sources: list[Path], out: Path) -> float:
    """The largest distance from the float64 mean, over every third tensor."""
    read, worst = [checkpoints.read_weights(source) for source in [*sources, out]], 0.0
    for name in list(read[-1].tensors)[::3]:
        *parts, made = (_values(checkpoint.tensors[name].file, name) for checkpoint in read)
        wanted = np.mean(np.stack(parts), axis=0)
        exponent = np.floor(np.log2(np.maximum(np.abs(wanted), 2.0**-126)))
        worst = max(worst, float(np.max(np.abs(made - wanted) / 2.0 ** (exponent - 7))))
    return worst


def _values(file: Path, name: str) -> npt.NDArray[np.float64]:
    with safe_open(file, framework="pt") as tensors:
        values: npt.NDArray[np.float64] = tensors.get_tensor(name).double().numpy()
    return values


def _report(
    args: argparse.Namespace,
    found: dict[str, dict[str, list[dict[str, float]]]],
    bare: float,
    ulps: float,
) -> dict[str, Any]:
    size = args.mb * 1e6
    seconds = {
        state: {what: [m["seconds"] for m in measured] for what, measured in sides.items()}
        for state, sides in found.items()
    }
    rows = [
        [f"{state}, {what}", min(times), CHECKPOINTS * size / min(times) / 1e9]
        for state, sides in seconds.items()
        for what, times in sides.items()
    ]
    title = f"{CHECKPOINTS} checkpoints of {args.mb} MB in {SHARDS} shards: the fastest round"
    common.table(title, ["", "seconds", "GB read a second"], rows)
    record: dict[str, Any] = {"mb": args.mb, "seconds": seconds, "ulps": ulps, "bare_bytes": bare}
    for state, sides in seconds.items():
        record[state] = common.ratio(sides["merge"], sides["copy"])
        text = f"wall, {state}: merge / copy of the same bytes"
        common.out.print(common.against_target(text, record[state], most=MOST_WALL))
    peaks = [m["peak"] for sides in found.values() for m in sides["merge"]]
    shards = [(peak - bare) / (size / SHARDS) for peak in peaks]
    record["shards"] = shards
    met = "met" if max(shards) < MOST_SHARDS else "NOT met"
    common.out.print(
        f"memory: {max(peaks) / 1e6:.0f} MB at most, {bare / 1e6:.0f} MB of them imports:"
        f" {max(shards):.3f} shards of {size / SHARDS / 1e6:.0f} MB; target below"
        f" {MOST_SHARDS:g}: {met}"
    )
    met = "met" if ulps <= MOST_ULPS else "NOT met"
    common.out.print(
        f"exactness: {ulps:.3f} ulp from the float64 mean at most (0.5 is its rounding); target at"
        f" most {MOST_ULPS:g}: {met}"
    )
    return record


if __name__ == "__main__":
    common.main(main)
