"""A control group of Linux's with a limit of memory, which counts the page cache of what its processes read and write,
too.
"""

import contextlib
import os
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
# Where it lies; files of its limit, of its peak and of its limit on swap; and whether that one counts memory, too.
VERSIONS = ((GROUPS / "memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes", "memory.memsw.limit_in_bytes",
             True),
            (GROUPS, "memory.max", "memory.peak", "memory.swap.max", False))
SKIPPED = 77  # a test's exit status where no group can be made


class Group:
    """A group that there is."""

    def __init__(self, folder, limit, peak, swap, swap_has_memory):
        self.folder = folder
        self._limit, self._peak, self._swap = folder / limit, folder / peak, folder / swap
        self._swap_has_memory = swap_has_memory

    def join(self):
        """For `preexec_fn` of a process that is to be in it."""
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def set_limit(self, limit):
        self._limit.write_text(str(limit))
        if self._swap.exists():  # so that nothing is swapped
            self._swap.write_text(str(limit if self._swap_has_memory else 0))

    def peak(self):
        """The most bytes that it had, of processes and of the page cache."""
        return int(self._peak.read_text())


@contextlib.contextmanager
def limited(limit):
    """A group with so many bytes while a `with` lasts, or None where none can be made. Its processes end before."""
    for root, *files in VERSIONS:
        folder = root / f"winnow-test-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError:
            continue
        group = Group(folder, *files)
        try:
            group.set_limit(limit)
            group.peak()
        except OSError:
            group = None
        try:
            if group:
                yield group
                return
        finally:
            folder.rmdir()
    yield None
