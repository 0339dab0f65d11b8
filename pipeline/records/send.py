"""Runs that are there, in a tracker of experiments: settings, final scores, avg@n by trials."""

import contextlib
import sys
from pathlib import Path

from bayes_at_n.pipeline.base.console import inside, note
from bayes_at_n.pipeline.base.errors import TryAgain, UserError, one_line
from bayes_at_n.pipeline.records import trackers
from bayes_at_n.pipeline.records.reading import Export
from bayes_at_n.pipeline.score.stage import scored
from bayes_at_n.pipeline.store import runfolder


def send(export: Export, folder: Path) -> None:
    """Show runs in the tracker `to`, and leave in `sent.json` where. Raises TryAgain: it failed."""
    to, sent = export.cfg.to, {}
    for source in export.sources:
        try:
            with contextlib.redirect_stdout(sys.stderr), inside():  # libraries print
                scores, found, *_ = scored(source.run)
                tracker = trackers.begin(to, source.run, export.cfg.project)
                for point in trackers.curve(found.codes, scores["confidence"]):
                    tracker.point(*point)
                tracker.close(trackers.final(scores), True)
        except UserError:
            raise
        except Exception as error:  # of a library that may raise anything
            raise TryAgain(f"to={to}: {one_line(error)}; the same command tries again") from error
        sent[str(source.run.path)] = tracker.address
        note(f"{to}: {tracker.address}")
        export.meter.advance(source.table.num_rows)
    runfolder.write_json(folder / "sent.json", sent)
