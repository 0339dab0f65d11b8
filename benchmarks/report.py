"""The report of many models: how long it takes to build, how large it is, how fast it opens.

    python -m benchmarks.report                20 models × 4 datasets × 30 questions × 80 trials

Outcomes are drawn from Beta(i, 18 − i) abilities, without texts. The page is opened from disk in a
headless Chromium five times; the time to the load event and to the first drawing are medians.
"""

import contextlib
import os
import shutil
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bayes_at_n.pipeline.compare.cohort import Cohort, from_arrays
from bayes_at_n.pipeline.config import analysis
from bayes_at_n.pipeline.report import build
from benchmarks import common

TASKS = ("aime24", "aime25", "hmmt25", "brumo25")
# The page's policy forbids to evaluate text, which waiting for a condition would do.
FIRST_DRAWING = """() => new Promise((done) => new PerformanceObserver((list) => {
  const [found] = list.getEntriesByName("first-contentful-paint");
  if (found) done(found.startTime);
}).observe({ type: "paint", buffered: true }))"""
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def cohorts(models: int, questions: int, trials: int) -> list[Cohort]:
    """Four datasets of models with rising abilities."""
    rng = np.random.default_rng(1234)
    ability = np.linspace(3, 15, models)[:, None]
    names = [f"model-{i + 1:02d}" for i in range(models)]
    ids = [str(q + 1) for q in range(questions)]
    made = []
    for task in TASKS:
        p = rng.beta(ability, 18 - ability, (models, questions))
        outcomes = (rng.random((models, questions, trials)) < p[..., None]).astype(int)
        made.append(from_arrays(task, names, ids, outcomes))
    return made


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """A headless browser; None without one."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        common.out.print(f"no browser here ({', '.join(BROWSERS)}): opening is not measured")
        yield None
        return
    from playwright.sync_api import sync_playwright

    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=browser, args=arguments)
        yield started
        started.close()


def opening(page: Path, times: int = 5) -> dict[str, float]:
    """Median seconds until a page from disk is loaded and first drawn; empty without a browser."""
    found: dict[str, list[float]] = {"load event": [], "first drawing": []}
    with chromium() as browser:
        for _ in range(times if browser else 0):
            tab = browser.new_page()
            began = time.monotonic()
            tab.goto(page.as_uri())
            found["load event"].append(time.monotonic() - began)
            found["first drawing"].append(tab.evaluate(FIRST_DRAWING) / 1000)
            tab.close()
    return {name: statistics.median(values) for name, values in found.items() if values}


def main() -> None:
    """Build, measure, print."""
    parser = common.parser(__doc__, models=20, questions=30, trials=80)
    args = parser.parse_args()
    made = cohorts(args.models, args.questions, args.trials)
    with common.workdir(args) as folder:
        began = time.monotonic()
        page = build.write(made, analysis.load([f"out={folder}"]))
        built = time.monotonic() - began
        size = page.stat().st_size / 1e6
        common.out.print(f"{args.models} models × {len(TASKS)} datasets × {args.trials} trials")
        common.out.print(f"built in {built:.1f} s (target < 60), {size:.2f} MB (target < 20)")
        seconds = opening(page)
    if seconds:
        parts = ", ".join(f"{name} {value:.2f} s" for name, value in seconds.items())
        common.out.print(f"opened from disk: {parts} (target < 2)")
    figures = {"build_s": built, "megabytes": size, "opening_s": seconds}
    common.finish(args, figures)


if __name__ == "__main__":
    common.main(main)
