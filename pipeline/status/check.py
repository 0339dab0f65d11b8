"""status --check: everything in run folders is read, and what is not as it was written is named."""

import os
from collections.abc import Iterable
from pathlib import Path

from pipeline.base import foreign
from pipeline.base.console import Meter, results
from pipeline.base.errors import DamagedData, UserError
from pipeline.display.table import answer
from pipeline.store import find, sound


def check(folders: Iterable[Path]) -> None:
    """Read what is in run folders, or in folders of them, and print which files are not sound.

    A part of attempts that is damaged is not known to be sound any more, so that the next
    `generate` owes its rows. Raises DamagedData: something is not sound, or a folder holds no run.
    """
    bad = 0
    for folder in folders:
        paths, faults = [], {}
        try:
            paths = _files(folder)
        except UserError as error:
            faults[foreign.printable(folder)] = [str(error)]
        with Meter("check", len(paths)) as meter:
            for path in paths:
                if lines := sound.found(path):
                    faults[foreign.printable(path)] = lines
                meter.advance(1)
        bad += len(faults)
        told = {"folder": str(folder), "files": len(paths), "sound": not faults}
        answer(told | {"faults": faults})
        for name, lines in faults.items():
            results.print(f"{name}: {'; '.join(lines)}")
        results.print(f"{folder}: {len(paths)} files, {len(faults)} not sound")
    if bad:
        raise DamagedData(
            f"{bad} files are not sound; `run` makes rows of attempts, grades and signals again,"
            " `verify` verdicts; restore other files from a copy"
        )


def _files(folder: Path) -> list[Path]:
    """What can be told of: each file once, also of run folders that are links."""
    places = {
        os.path.realpath(path): path
        for root in (folder, *find.within(folder))
        for path in sorted(root.rglob("*"))
        if path.suffix in sound.READERS and path.name[0] != "."
    }
    return [path for path in places.values() if not path.is_dir()]
