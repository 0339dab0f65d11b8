"""A throw-away Slurm on this machine: four nodes of two GPUs that are none, all state in a folder.

Nothing of it needs systemd, cgroups or another machine. Jobs of the partition `high` preempt those
of `low`, with ten seconds of grace.
"""

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

DAEMONS = ("slurmctld", "slurmd", "munged", "mungekey", "sbatch", "srun")
NODES = ("n1", "n2", "n3", "n4")
_SBIN = ["/usr/sbin", "/usr/local/sbin", "/sbin"]

_CONF = """\
ClusterName=throwaway
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SchedulerParameters=sched_interval=1,sched_min_interval=0,batch_sched_delay=1,bf_interval=1
SlurmdParameters=config_overrides
KillWait=3
SlurmdTimeout=10
ReturnToService=2
JobRequeue=1
NodeName=n[1-4] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{ports[1]}-{ports[4]}] CPUs=4 \
RealMemory=4000 Gres=gpu:fake:2
PartitionName=low Nodes=ALL Default=YES PriorityTier=1 GraceTime=10 MaxTime=INFINITE State=UP
PartitionName=high Nodes=ALL PriorityTier=10 PreemptMode=OFF MaxTime=INFINITE State=UP
"""


def missing() -> str | None:
    """Why no Slurm can be started here; None if one can."""
    path = _path()
    lacks = [name for name in DAEMONS if shutil.which(name, path=path) is None]
    if lacks:
        return (
            f"no Slurm here ({', '.join(lacks)} not found); on Debian: apt-get install"
            " --no-install-recommends slurmctld slurmd slurm-client munge"
        )
    return None


@dataclass
class Cluster:
    """A running Slurm; `env` is what a client command needs."""

    folder: Path
    env: dict[str, str]
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def ask(self, *command: str) -> str:
        """What a client command prints; it may fail with nothing but what it says."""
        done = subprocess.run(
            command, env=self.env, capture_output=True, text=True, timeout=30, check=False
        )
        return done.stdout + done.stderr

    def states(self, job: str) -> dict[str, str]:
        """States of a job's tasks that squeue still knows, ended ones too."""
        out = self.ask("squeue", "-h", "-r", "-t", "all", "-j", job, "-o", "%i|%T")
        return dict(line.split("|") for line in out.splitlines() if "|" in line)

    def start_node(self, node: str) -> None:
        """Start the daemon of a node."""
        (self.folder / node).mkdir(exist_ok=True)
        self._start(f"slurmd-{node}", "slurmd", "-D", "-N", node, cwd=self.folder / node)

    def kill_node(self, node: str) -> None:
        """What a power cut does: the node's daemon and all of its jobs are gone at once."""
        daemon = self.daemons.pop(f"slurmd-{node}")
        daemon.kill()
        daemon.wait()
        found = _processes(self.folder)
        lost = [p for p in found if _environ(p).get("SLURMD_NODENAME") == node]
        shepherds = [p for p in found if p.info["cwd"] == str(self.folder / node)]
        for process in [*shepherds, *lost]:  # a shepherd would still report the step's end
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def stop(self) -> None:
        """End every process of this Slurm, its jobs included."""
        for daemon in self.daemons.values():
            daemon.kill()
        for _ in range(5):  # what is just being forked shows up in the next round
            found = _processes(self.folder)
            for process in found:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            if not psutil.wait_procs(found, timeout=5)[0] and not found:
                break
        for daemon in self.daemons.values():
            daemon.wait()

    def _start(self, name: str, *command: str, cwd: Path | None = None) -> None:
        with (self.folder / f"{name}.out").open("ab") as out:
            self.daemons[name] = subprocess.Popen(
                command,
                env=self.env,
                cwd=cwd or self.folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,  # Ctrl-C is for the tests, which end it in good order
                preexec_fn=_die_with_parent,
            )


@contextlib.contextmanager
def running() -> Iterator[Cluster]:
    """A Slurm that is up, and gone after the block.

    Raises:
        RuntimeError: it did not come up; with the ends of its logs.
    """
    folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))  # sockets: 107 bytes of path
    folder.chmod(0o755)
    cluster = Cluster(folder, {**_clean(), "SLURM_CONF": f"{folder}/slurm.conf", "PATH": _path()})
    try:
        _configure(folder)
        files = {"socket": "munge.socket", "key-file": "munge.key", "log-file": "munged.log"}
        files |= {"pid-file": "munged.pid", "seed-file": "munged.seed"}
        places = [f"--{option}={folder}/{name}" for option, name in files.items()]
        cluster._start("munged", "munged", "--foreground", "--force", *places)
        wait_for(lambda: (folder / "munge.socket").exists(), 10, "munged")
        cluster._start("slurmctld", "slurmctld", "-D")
        for node in NODES:
            cluster.start_node(node)
        wait_for(lambda: cluster.ask("sinfo", "-h", "-N", "-o", "%T").count("idle") >= 4, 30, "up")
        yield cluster
    except TimeoutError as error:
        raise RuntimeError(f"{error}\n{_ends(folder)}") from error
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


def wait_for(ready: Callable[[], object], seconds: float, what: str) -> None:
    """Return when something is so.

    Raises:
        TimeoutError: it was not within so many seconds.
    """
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds} s")
        time.sleep(0.25)


def _configure(folder: Path) -> None:
    host = socket.gethostname().split(".")[0]
    first = _free_ports(5)
    user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    ports = list(range(first, first + 5))
    (folder / "slurm.conf").write_text(
        _CONF.format(host=host, ports=ports, user=user, folder=folder)
    )
    (folder / "gres.conf").write_text("AutoDetect=off\nName=gpu Type=fake File=/dev/tty[0-1]\n")
    (folder / "state").mkdir()
    key = folder / "munge.key"
    subprocess.run(["mungekey", "--create", f"--keyfile={key}"], env={"PATH": _path()}, check=True)
    key.chmod(0o600)


def _free_ports(count: int) -> int:
    """The first of some ports in a row that nobody listens on."""
    for first in range(20000 + os.getpid() % 1000 * 10, 60000, 10):
        with contextlib.ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    stack.enter_context(socket.socket()).bind(("", port))
            except OSError:
                continue
            return first
    raise RuntimeError("no free ports")


def _clean() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "SBATCH", "SRUN"))}


def _path() -> str:
    return os.pathsep.join([os.environ.get("PATH", ""), *_SBIN])


def _processes(folder: Path) -> list[psutil.Process]:
    """Every process of this Slurm; shepherds of steps overwrite their environment."""
    return [
        p
        for p in psutil.process_iter(["cwd", "environ", "status"])
        if p.pid != os.getpid()
        and p.info["status"] != psutil.STATUS_ZOMBIE
        and (
            _environ(p).get("SLURM_CONF") == f"{folder}/slurm.conf"
            or folder in (Path(p.info["cwd"] or "/") / "x").parents
        )
    ]


def _environ(process: psutil.Process) -> dict[str, str]:
    return process.info["environ"] or {}  # that of another user's


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))


def _ends(folder: Path) -> str:
    logs = [*folder.glob("*.log"), *folder.glob("*.out")]
    return "\n".join(f"--- {p.name}\n{p.read_text(errors='replace')[-1500:]}" for p in logs)
