"""Slurm's own commands, none of which may hang: they do while its controller is down."""

import os
import subprocess

from pipeline.base.errors import UserError

TIMEOUT_S = 60.0


def ask(*command: str, timeout_s: float = TIMEOUT_S) -> str:
    """What a client command prints on standard output.

    Raises UserError: it is not installed, failed or did not answer; with what it said.
    """
    # From within a job: what that job was given is not meant for the new one.
    outside = {k: v for k, v in os.environ.items() if k[:6] != "SLURM_" or k == "SLURM_CONF"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, env=outside, check=False
        )
    except FileNotFoundError:
        remedy = "submit where Slurm's clients are (a login node), or look with --dry-run"
        raise UserError(f"{command[0]}: no such command; {remedy}") from None
    except subprocess.TimeoutExpired:
        remedy = "is Slurm's controller up? (scontrol ping)"
        raise UserError(f"{command[0]} did not answer within {timeout_s:.0f} s; {remedy}") from None
    if done.returncode:
        reason = " ".join(done.stderr.split()) or f"exit status {done.returncode}"
        raise UserError(f"{command[0]} refused: {reason[:400]}")
    return done.stdout
