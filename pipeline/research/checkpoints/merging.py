"""merge: the mean of the weights of checkpoints, as a checkpoint that any engine can load.

Averaging the last N checkpoints of a training takes out what the last steps left in the weights by
chance: noise that is independent from checkpoint to checkpoint loses variance by a factor of N.

Source: Li et al., "Model merging in pre-training of large language models" (2025); MaP, eq. 3-6.
"""

import contextlib
import errno
import itertools
import os
import resource
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from glob import escape
from pathlib import Path

from blake3 import blake3

from pipeline.base import journal
from pipeline.base.console import Meter, clock, count, note, warn
from pipeline.base.errors import UserError
from pipeline.config import merge as settings
from pipeline.research.checkpoints import alike, folders, manifest, weights
from pipeline.research.checkpoints.folders import MANIFEST, Checkpoint
from pipeline.research.checkpoints.manifest import is_merge_of, why_not
from pipeline.research.checkpoints.stopping import stoppable
from pipeline.store import lease

__all__ = ["is_merge_of", "merge", "run", "why_not"]


def run(arguments: list[str]) -> None:
    """the mean of the weights of a training's last checkpoints, as a checkpoint of its own"""
    cfg = settings.load(arguments)
    assert cfg.out is not None
    chosen = folders.find(cfg.checkpoints, cfg.last)
    if len(chosen) < 2:
        raise UserError(
            f"checkpoints: {chosen[0].path} is one checkpoint, and a mean needs at least two; name"
            " several, or the folder that holds them"
        )
    for older, newer in itertools.pairwise(chosen):
        if older.step is not None and newer.step is not None and older.step > newer.step:
            warn(
                f"{newer.name} comes after {older.name}: the last that is named counts as newest"
                f" and gives config, dtype and tokenizer: {chosen[-1].name}"
            )
            break
    out, sources = Path(cfg.out).expanduser(), [checkpoint.path for checkpoint in chosen]
    if is_merge_of(out, sources):
        note(f"{out}: is already the mean of {_names(chosen)}; nothing to do")
        return
    merge(sources, out)


def merge(sources: Sequence[Path], out: Path) -> Path:
    """Write the element-wise mean of checkpoints, oldest first, as a checkpoint.

    dtype, shards, order of tensors and everything that is not weights are those of the newest. The
    folder appears whole or not at all.

    Returns:
        `out`.

    Raises:
        UserError: the checkpoints cannot be averaged, or `out` cannot be made; nothing is left.
        Interrupted: after SIGINT, SIGTERM or SIGUSR1; nothing is left, or all is done, as it says.
    """
    began, out = time.monotonic(), Path(os.path.abspath(out.expanduser()))
    _check_folders(sources, out)
    try:
        looks = [manifest.look(source) for source in sources]  # first: what is read is no older
        found = [weights.read(source) for source in sources]
        alike.check(found)
        _check_space(found[-1], out)
        one = lease.held(out.parent / f".{out.name}.merge.lease", f"merging {out.name}")
        with stoppable(out) as hold, _parents(out.parent), one:
            _check_absent(out)  # by now another process may have made it
            for left in out.parent.glob(f"{escape(_prefix(out))}*"):
                shutil.rmtree(left)  # of a merge that was killed: the lease is ours
            _make(found, looks, out, hold)
    except OSError as error:
        raise UserError(f"{out}: cannot be made: {_why(error)}") from error
    size = sum(shard.size for shard in found[-1].shards)
    note(
        f"{out}: the mean of {len(sources)} checkpoints, {sources[0].name} to {sources[-1].name};"
        f" {count(size)}B in {clock(time.monotonic() - began)}, peak memory"
        f" {count(_peak_memory())}B"
    )
    return out


def _check_folders(sources: Sequence[Path], out: Path) -> None:
    """What can be said before any file is read."""
    if len(sources) < 2:
        raise UserError(f"{', '.join(map(str, sources))}: one checkpoint; a mean needs two")
    seen: dict[str, Path] = {}
    for source in sources:
        if not source.is_dir():
            raise UserError(f"{source}: no such folder; a checkpoint is a folder on this machine")
        if reason := folders.problem(source):
            raise UserError(f"{source}: {reason}")
        real = os.path.realpath(source)
        if real in seen:
            raise UserError(
                f"{source}: is named twice (as {seen[real]}); name every checkpoint once"
            )
        seen[real] = source
    _check_absent(out)
    for parent in out.parents:
        if parent.is_symlink() and not parent.exists():
            raise UserError(
                f"out={out}: {parent} is a link to {os.readlink(parent)}, which is not there; mend"
                " it, or name a folder elsewhere"
            )
    for parent in Path(os.path.realpath(out)).parents:
        if os.path.isfile(parent / "config.json") and folders.has_weights(parent):
            raise UserError(
                f"out={out}: lies inside the checkpoint {parent}; name a folder elsewhere"
            )


def _check_absent(out: Path) -> None:
    if os.path.lexists(out):
        raise UserError(
            f"{out}: exists already, and nothing is overwritten; name another folder with out=, or"
            " remove this one"
        )


def _check_space(newest: weights.Weights, out: Path) -> None:
    needed = sum(path.stat().st_size for path in weights.files(newest.folder))
    there = next(parent for parent in out.parents if parent.exists())
    if not there.is_dir():
        raise UserError(f"out={out}: {there} is a file, not a folder; name a folder elsewhere")
    free = shutil.disk_usage(there).free
    if free < needed:
        raise UserError(
            f"{out}: needs {count(needed)}B, and {there} has {count(free)}B free; free some, or"
            " name a folder on another disk with out="
        )


@contextlib.contextmanager
def _parents(folder: Path) -> Iterator[None]:
    """The folder exists inside; what had to be made for it goes again when the block fails."""
    made = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for parent in made:
            with contextlib.suppress(OSError):
                parent.rmdir()
        raise


def _make(
    found: Sequence[weights.Weights],
    looks: Sequence[manifest.Looks],
    out: Path,
    hold: Callable[[bool], None],
) -> None:
    """The whole folder beside `out`, flushed to the disk; then its name."""
    temporary = out.with_name(f"{_prefix(out)}{secrets.token_hex(4)}")
    try:
        hold(False)
        temporary.mkdir()
        hashes, own = _write_weights(found, temporary)
        for path in looks[-1]:
            if path.suffix != ".safetensors":
                _write(temporary / path.name, path.read_bytes())
        made = manifest.look(temporary)
        _write(temporary / MANIFEST, manifest.text(found, looks, hashes, made, own).encode())
        for source, seen in zip(found, looks, strict=True):
            if manifest.look(source.folder) != seen:
                raise UserError(
                    f"{source.folder}: changed while it was merged; merge again when nobody writes"
                    " there"
                )
        journal.sync_folder(temporary)
        _check_absent(out)
        hold(True)  # from here on it is made
        temporary.rename(out)
        journal.sync_folder(out.parent)
    finally:
        hold(True)
        shutil.rmtree(temporary, ignore_errors=True)


def _write_weights(
    found: Sequence[weights.Weights], folder: Path
) -> tuple[list[dict[str, str]], dict[str, str]]:
    """The shards of the mean; returns BLAKE3 of the sources' files by name, and of its own."""
    from pipeline.research.checkpoints.mean import Mean, Reader, write

    total = sum(tensor.size for source in found for tensor in source.tensors.values())
    share = total / max(1, sum(tensor.size for tensor in found[-1].tensors.values()))
    readers = [Reader(source) for source in found]
    try:
        mean, made, own = Mean(readers), 0, dict[str, str]()
        with _progress("merge", total) as reach:
            for shard in found[-1].shards:
                digest = blake3()
                for size in write(mean, shard, folder, digest):
                    made += size
                    reach(made * share)
                own[shard.path.name] = digest.hexdigest()
        rest = sum(reader.unhashed for reader in readers)
        asked = [reader.thread.submit(reader.hashes) for reader in readers]
        with _progress("hash", rest) as reach:
            while wait(asked, 0.2).not_done:
                reach(rest - sum(reader.unhashed for reader in readers))
            reach(rest)
        hashes = [future.result() for future in asked]
    finally:
        for reader in readers:
            reader.close()
    for i, known in enumerate(hashes):
        for earlier in range(i):
            if known == hashes[earlier]:
                warn(
                    f"{found[earlier].folder} and {found[i].folder} hold the same weights, which"
                    " thus count twice"
                )
    return hashes, own


@contextlib.contextmanager
def _progress(what: str, total: int) -> Iterator[Callable[[float], None]]:
    """Progress in megabytes that were read."""
    began = time.monotonic()
    with Meter(f"{what} (MB read)", round(total / 1e6)) as meter:

        def reach(done: float) -> None:
            rate = done / max(1e-9, time.monotonic() - began)
            meter.reach(round(done / 1e6), lambda: f"{count(rate)}B/s")

        yield reach


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _prefix(out: Path) -> str:
    return f".{out.name}.merging-"


def _why(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full; free some space, or name a folder on another disk with out="
    where = f" ({error.filename})" if error.filename else ""
    return f"{error.strerror or error}{where}"


def _peak_memory() -> int:
    """Bytes that this process took at most."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _names(found: Sequence[Checkpoint]) -> str:
    names = [checkpoint.name for checkpoint in found]
    return ", ".join(names if len(names) < 6 else [*names[:2], "...", *names[-2:]])
