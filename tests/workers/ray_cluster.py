"""A Ray of several nodes on this machine, where only the loopback exists; `test_ray.py`.

`python ray_cluster.py FOLDER SETTING...` samples the run of FOLDER twice over: a command that is
stopped by Ctrl-C, on a Ray of its own, and one that loses a node and gets another. With a number of
kills before these it samples FOLDER-0, FOLDER-1, ... until as many workers were killed.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

STORE = 80 << 20  # bytes; nothing large passes through it


def start(
    verb: str, folder: Path, address: str, workers: int, *more: str
) -> "subprocess.Popen[bytes]":
    site = ["cluster=ray", f"cluster.address={address}", "cluster.gpus=0", "cluster.cpus=1"]
    words = [f"run_dir={folder}", *site, f"cluster.workers={workers}", *more]
    return subprocess.Popen([sys.executable, "-m", "pipeline", verb, *words])


def until(reached: Callable[[], bool], command: "subprocess.Popen[bytes]") -> None:
    while not reached():
        assert command.poll() is None, "it ended before"
        time.sleep(0.1)


def made(folder: Path) -> int:
    """Attempts that workers have made; their sessions are renamed into place."""
    said = [json.loads(path.read_bytes()) for path in folder.glob("sessions/*.json")]
    return sum(record["attempts"] for record in said)


@contextmanager
def nodes(number: int) -> Iterator[tuple[Any, list[Any]]]:
    """A cluster and its nodes but the head."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 0, "include_dashboard": False, "object_store_memory": STORE},
    )
    try:
        ours = [cluster.add_node(num_cpus=1, object_store_memory=STORE) for _ in range(number)]
        yield cluster, ours
    finally:
        cluster.shutdown()


def kill(most: int, folder: Path, *settings: str) -> int:
    from forked import strike

    moments, kills, runs = random.Random(7), 0, 0
    with nodes(2) as (cluster, _):
        while kills < most:
            run, runs = Path(f"{folder}-{runs}"), runs + 1
            command = start("run", run, cluster.address, 2, *settings)
            kills += strike(run, lambda: command.poll() is None, most - kills, moments)  # noqa: B023
            if command.wait():
                return command.returncode
    print(f"{kills} kills of actors in {runs} runs")
    return 0


def main(folder: Path, *settings: str) -> int:
    command = start("submit", folder, "local", 1, *settings)
    until(lambda: made(folder) > 0, command)
    command.send_signal(signal.SIGINT)
    assert command.wait() == 128 + signal.SIGINT
    kept = made(folder)
    [stopped] = [json.loads(path.read_bytes()) for path in folder.glob("sessions/*.json")]
    assert stopped["state"] == "stopped"

    with nodes(2) as (cluster, [lost, _]):
        command = start("run", folder, cluster.address, 2, *settings)
        until(lambda: len([*folder.glob("sessions/*.json")]) == 3, command)
        until(lambda: made(folder) > kept, command)
        cluster.add_node(num_cpus=1, object_store_memory=STORE)
        cluster.remove_node(lost, allow_graceful=False)
        return command.wait()


if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[n]) for n in (1, 2)]
    os.environ["PYTHONPATH"] = sys.path[1]
    most, *words = sys.argv[1:]
    if most.isdecimal():
        sys.exit(kill(int(most), Path(words[0]), *words[1:]))
    sys.exit(main(Path(most), *words))
