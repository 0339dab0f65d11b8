"""How each format is written.

A new format is a function of an `Export` and an empty folder, a line in `FORMATS` of
`pipeline/config/exports.py` and an entry here. What it reads comes from `Export.batches`; its files
appear when all of them are whole.
"""

from collections.abc import Callable
from pathlib import Path

from pipeline.exports import flat
from pipeline.exports.reading import Export

FORMATS: dict[str, Callable[[Export, Path], None]] = {
    "csv": flat.write_csv,
    "parquet": flat.write_parquet,
}
