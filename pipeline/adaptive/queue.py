"""submit ... until=...: an array of tasks that sample until it is decided, then the other jobs.

Every task is a `settle` of the same folder: it works on whatever is open and ends when nothing is,
so the GPUs of a model that has left go to the others.
"""

from pathlib import Path

import numpy as np

from bayes_at_n.pipeline.adaptive import RECORD, data, live, looks, plan
from bayes_at_n.pipeline.adaptive.race import upcoming
from bayes_at_n.pipeline.cluster import submit as cluster
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.config import settle as config
from bayes_at_n.pipeline.config.checks import AUTO
from bayes_at_n.pipeline.store.runfolder import Run


def submit(settings: list[str], dry_run: bool = False) -> None:
    """Queue runs on a Slurm cluster, or a race: settle, then verify, score and report of each run.

    Args:
        settings: of a race as of `settle`, and `stages`; or its folder. Else as of `run`.
        dry_run: print the scripts and write nothing.

    Raises UserError: a setting, a folder or a run cannot work, or Slurm refused.
    """
    race = any((Path(of) / RECORD).is_file() for of in compose.folders_of(settings)[0])
    if not race and not config.of_key("until", settings):
        cluster.submit(settings, dry_run)
        return
    stages = config.of_key("stages", settings)
    planned = plan.make(config.load([one for one in settings if one not in stages]))
    goal, contenders = planned.goal, planned.contenders
    (live.announce if dry_run else live.begin)(planned)
    seen = looks.look(contenders, goal)[0].states
    _, chosen = upcoming(seen, goal)
    runs = []
    for k in np.argsort(~chosen, kind="stable").tolist():
        least = int(seen[-1].spent[k]) if seen else goal.looks[0]
        for run, of_run in zip(contenders[k].runs, contenders[k].settings, strict=True):
            cfg = compose.load([*of_run, *stages])
            cluster.place_engines(cfg, fixed=cfg.engine.replicas != AUTO)
            runs.append(data.with_trials(Run(cfg), data.reached(run, least)))
    open_ = int(chosen.sum()) * len(contenders[0].runs)
    cluster.queue(runs, settings, dry_run, planned.folder, open_)
