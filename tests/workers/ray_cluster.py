"""A Ray of several nodes on this machine, where only the loopback exists; `test_ray.py`.

`python ray_cluster.py FOLDER SETTING...` samples the run of FOLDER twice over: a command that is
stopped by Ctrl-C, on a Ray of its own, and one that loses a node and gets another.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

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


def main(folder: Path, *settings: str) -> int:
    from ray.cluster_utils import Cluster

    command = start("submit", folder, "local", 1, *settings)
    until(lambda: made(folder) > 0, command)
    command.send_signal(signal.SIGINT)
    assert command.wait() == 128 + signal.SIGINT
    kept = made(folder)
    [stopped] = [json.loads(path.read_bytes()) for path in folder.glob("sessions/*.json")]
    assert stopped["state"] == "stopped"

    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 0, "include_dashboard": False, "object_store_memory": STORE},
    )
    try:
        [lost, _] = [cluster.add_node(num_cpus=1, object_store_memory=STORE) for _ in range(2)]
        command = start("run", folder, cluster.address, 2, *settings)
        until(lambda: len([*folder.glob("sessions/*.json")]) == 3, command)
        until(lambda: made(folder) > kept, command)
        cluster.add_node(num_cpus=1, object_store_memory=STORE)
        cluster.remove_node(lost, allow_graceful=False)
        return command.wait()
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
