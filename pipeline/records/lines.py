"""One attempt a line: records of outcomes or categories, as CSV or JSON Lines."""

import re

from bayes_at_n.pipeline.base import foreign
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.records import row, source
from bayes_at_n.pipeline.records.source import Records, Source, Troubles


def read_json(files: Source, first: bool, troubles: Troubles) -> Records:
    """The objects of JSON Lines files.

    Raises UserError: no object of a file says which question, or none what came of it.
    """
    known = set(row.NAMES)
    for path in files.files:
        names: dict[str, None] = {}
        for place, record in source.json_lines(path, troubles):
            names |= dict.fromkeys(list(record)[:30] if not names else known & record.keys())
            yield place, row.asked(record)
        if names:
            row.check_names(str(path), list(names))


def read_csv(files: Source, first: bool, troubles: Troubles) -> Records:
    """The rows of CSV files with a header.

    Raises UserError: no column says which question, or what came of it.
    """
    for path in files.files:
        try:
            names, records = foreign.csv_table(source.lines(path, troubles))
        except ValueError as error:
            raise UserError(f"{path}: no CSV ({error})") from error
        row.check_names(str(path), names)
        for place, record, damage in records:
            if damage:
                troubles.add("damaged rows skipped", f"{place} ({damage})")
            yield place, record and row.asked({k: _unguarded(v) for k, v in record.items()})


def _unguarded(cell: str) -> str:
    """Return a cell without the apostrophe that keeps spreadsheets from running it.

    >>> _unguarded("'=1+1"), _unguarded("''-x"), _unguarded("'tis"), _unguarded("=1")
    ('=1+1', "'-x", "'tis", '=1')
    """
    return cell[1:] if cell[:1] == "'" and re.match(foreign.FORMULA, cell) else cell
