"""The memory of processes, as Linux counts it. The standard library only: tests and ci use this, too."""

import os
from pathlib import Path


def wait(process):
    """Waits for the end of a subprocess.Popen, which then has its returncode: the most bytes that it had resident."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    # The kernel counts from the fork on, so this is at least what this Python holds; models are larger.
    return usage.ru_maxrss * 1024


def of(pid, field):
    """The bytes of a line of /proc/PID/status, as VmRSS; 0 once the process has ended."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith(f"{field}:")), 0)
