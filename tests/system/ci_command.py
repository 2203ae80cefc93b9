"""Runs a program of ci/ as a user does, and shows what it printed."""

import os
import subprocess
from pathlib import Path


def run(program, *arguments, **environment):
    command = [str(part) for part in (program, *arguments)]
    result = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment)
    shown = [*(f"{key}={value}" for key, value in environment.items()), f"ci/{Path(program).name}", *command[1:]]
    print(f"$ {' '.join(shown)}\n{result.stdout}{result.stderr}", flush=True)
    return result


def expect_refused(program, *arguments, complaint):
    refused = run(program, *arguments)
    last = refused.stderr.strip().rpartition("\n")[2]  # behind the usage, which names all options
    assert refused.returncode == 2 and complaint in last, f"{arguments} were not refused with a reason"
