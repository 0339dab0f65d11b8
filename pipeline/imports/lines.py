"""One attempt a line: records of outcomes or categories, as CSV or JSON Lines."""

from pipeline.base import csvs
from pipeline.base.errors import UserError
from pipeline.imports import row, source
from pipeline.imports.source import Records, Source, Troubles


def read_json(files: Source, first: bool, troubles: Troubles) -> Records:
    """The objects of a JSON Lines file.

    Raises UserError: no object says which question, or none what came of it.
    """
    names: dict[str, None] = {}
    known = set(row.NAMES)
    for place, record in source.json_lines(files.files[0], troubles):
        names |= dict.fromkeys(list(record)[:30] if not names else known & record.keys())
        yield place, record
    if names:
        row.check_names(files.path, list(names))


def read_csv(files: Source, first: bool, troubles: Troubles) -> Records:
    """The rows of a CSV file with a header.

    Raises UserError: no column says which question, or what came of it.
    """
    try:
        names, records = csvs.table(source.lines(files.files[0], troubles))
    except ValueError as error:
        raise UserError(f"{files.path}: no CSV ({error})") from error
    row.check_names(files.path, names)
    for place, record, damage in records:
        if damage:
            troubles.add("damaged rows skipped", f"{place} ({damage})")
        yield place, record and {name: csvs.unguarded(cell) for name, cell in record.items()}
