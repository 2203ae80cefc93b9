"""Runs a program as a user does, and shows what it printed."""

import os
import subprocess


MOST = 20000  # characters that are shown of each stream, the last ones


def run(program, *arguments, **environment):
    command = [str(part) for part in (program, *arguments)]
    environment = {key: str(value) for key, value in environment.items()}
    result = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment)
    shown = [*(f"{key}={value}" for key, value in environment.items()), *command]
    print(f"$ {' '.join(shown)}\n{result.stdout[-MOST:]}{result.stderr[-MOST:]}", flush=True)
    return result


def output_of(program, *arguments, **environment):
    """What a program prints that has to succeed."""
    result = run(program, *arguments, **environment)
    assert result.returncode == 0, f"exit status {result.returncode}"
    return result.stdout


def expect_refused(program, *arguments, complaint):
    refused = run(program, *arguments)
    last = refused.stderr.strip().rpartition("\n")[2]  # behind the usage, which names all options
    assert refused.returncode == 2 and complaint in last, f"{arguments} were not refused with a reason"
