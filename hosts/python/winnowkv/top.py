"""`winnow top`: what the KV caches of a running process hold, by the report that Winnow's plugin for llama.cpp writes.

    WINNOW_REPORT=/tmp/winnow.json WINNOW_REPORT_EVERY=1 llama-server ...
    winnow top /tmp/winnow.json

docs/top.md explains the columns.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

Row = list[Any]  # numbers and text, None where there is nothing to tell
REFRESH = 1.0  # seconds
IDLE = 10.0  # seconds after which a report is no longer of just now
START = "start it with WINNOW_REPORT=/tmp/winnow.json WINNOW_REPORT_EVERY=1"


class Failure(Exception):
    """What keeps the figures from being shown, in words."""


class Column(NamedTuple):
    name: str
    show: Callable[[Any], str]


class View(NamedTuple):
    """What is shown at a time. `lines`: the process and its caches, in words."""

    lines: list[str]
    caches: list[Row]
    heads: list[Row]


def _tenths(number: float) -> str:
    return f"{number:,.1f}"


def _count(number: int) -> str:
    return f"{number:,}"


def _mib(number: int) -> str:
    return f"{number / 2 ** 20:,.2f}"


CACHES = (Column("cache", str), Column("slot", str), Column("tokens", _count), Column("resident/head", _tenths),
          Column("MiB", _mib), Column("evictions", _count), Column("picks", _count), Column("misses", _count),
          Column("tokens/s", _tenths))
HEADS = (Column("cache", str), Column("layer", str), Column("head", str), Column("resident", _count),
         Column("evicted", _count), Column("resident %", _tenths))


def shown(columns: Sequence[Column], row: Row) -> list[str]:
    return ["-" if value is None else column.show(value) for column, value in zip(columns, row)]


def ordered(rows: list[Row], column: int, is_reversed: bool) -> list[Row]:
    """By a column; what has no value comes first."""
    return sorted(rows, reverse=is_reversed,
                  key=lambda row: (row[column] is not None, isinstance(row[column], str), row[column] or 0))


# ---- The report of a process --------------------------------------------------------------------------------------


def _process(pid: int) -> tuple[str, int] | None:
    """Name and parent. None where there is no such process, or it has ended and nobody has waited for it."""
    try:
        _, _, stat = Path(f"/proc/{pid}/stat").read_text(errors="replace").partition("(")
    except OSError:
        return None
    name, _, rest = stat.rpartition(")")
    state, parent, *_ = rest.split()
    return None if state in "ZX" else (name, int(parent))


def _process_name(pid: int) -> str | None:
    found = _process(pid)
    return found and found[0]


def _processes() -> list[int]:
    return sorted(int(entry) for entry in os.listdir("/proc") if entry.isdecimal())


def report_of(pid: int) -> Path | None:
    """The file that a process was told to write, None if it was told none. Raises Failure."""
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        folder = os.readlink(f"/proc/{pid}/cwd")
    except PermissionError:
        raise Failure(f"process {pid} is another user's: name the file that its WINNOW_REPORT names") from None
    except OSError:
        raise Failure(f"there is no process {pid}") from None
    variables = dict(os.fsdecode(entry).split("=", 1) for entry in entries if b"=" in entry)
    path = variables.get("WINNOW_REPORT")
    if not path:
        return None
    if not variables.get("WINNOW_REPORT_EVERY"):
        raise Failure(f"process {pid} was started without WINNOW_REPORT_EVERY, and writes its report only when a "
                      f"context ends: {START}")
    return Path(folder, re.sub("%([p%])", lambda found: str(pid) if found[1] == "p" else "%", path))


def _report_of_family(pid: int) -> Path:
    """The report of a process or of its children: `winnow run` starts the program as its child. Raises Failure."""
    children = [each for each in _processes() if (found := _process(each)) and found[1] == pid]
    paths = [path for each in (pid, *children) if (path := report_of(each))]
    if not paths:
        raise Failure(f"process {pid} was started without WINNOW_REPORT, and so were its children: {START}")
    return next((path for path in paths if os.path.exists(path)), paths[0])


def find(what: str | None) -> Path:
    """The file of a report: FILE, that of process PID, or the only one that a process writes now. Raises Failure."""
    if what is not None:
        return _report_of_family(int(what)) if what.isdecimal() else Path(what)
    found: dict[Path, int] = {}
    for pid in _processes():
        try:
            path = report_of(pid)
        except Failure:
            continue
        if path and os.path.exists(path):
            found.setdefault(path, pid)
    if not found:
        raise Failure(f"no process of yours writes a report. Name its FILE or PID, or {START}")
    if len(found) > 1:
        several = "".join(f"\n    winnow top {path}  (process {pid}, {_process_name(pid)})"
                          for path, pid in found.items())
        raise Failure(f"{len(found)} reports are written, expected one of them to be named:{several}")
    return next(iter(found))


class Watch:
    """A report, looked at again and again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._before: tuple[float, int, list[int]] | None = None  # time, process, tokens that each cache had seen
        self._rates: list[float | None] = []  # tokens per second of each cache, between the last two reports
        self._interval = 0.0  # seconds between those

    def look(self) -> View:
        """What the report says now. Raises Failure."""
        report, written = self._read()
        age = max(0.0, time.time() - written)
        caches: list[dict[str, Any]] = report["living"] or report["caches"]
        self._measure(written, report["pid"], [cache["tokens_seen"] for cache in caches])
        rates = self._rates if report["living"] else [None] * len(caches)
        if age > max(IDLE, 2 * self._interval):
            rates = [None if rate is None else 0.0 for rate in rates]
        lines = [self._state(report, age)]
        view = View(lines, [], [])
        for number, (cache, rate) in enumerate(zip(caches, rates), 1):
            lines.append(f"cache {number}: {cache['name']}, {cache['layers']} layers of {cache['kv_heads']} KV heads, "
                         f"{cache['config']}, on {cache['device']}")
            view.caches.extend(_cache_rows(number, cache, rate))
            view.heads.extend(_head_rows(number, cache))
        lines.extend(f"{each['name']}: not in Winnow's cache: {each['reason']}" for each in report["in_place"])
        return view

    def _read(self) -> tuple[dict[str, Any], float]:
        """The report, and when it was written. It is replaced as a whole, so there is never half of it."""
        if os.path.exists(self.path) and not os.path.isfile(self.path):  # these raise nothing, as a Path's do
            raise Failure(f"{self.path} is a folder, pipe or device, expected a file")
        try:
            with open(self.path, encoding="utf-8") as file:
                report, written = json.load(file), os.fstat(file.fileno()).st_mtime
        except FileNotFoundError:
            raise Failure(f"there is no file {self.path} yet. A process writes it once it computes attention, if it is "
                          f"started with WINNOW_REPORT={self.path} WINNOW_REPORT_EVERY=1") from None
        except OSError as error:
            raise Failure(f"{self.path} cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise Failure(f"{self.path} is no report of Winnow's, but another file: {error}") from None
        if isinstance(report, dict) and "onnxruntime" in report:
            raise Failure(f"{self.path} is the report of a session of ONNX Runtime, which is written when the session "
                          "ends; expected one of llama.cpp")
        if not isinstance(report, dict) or not {"pid", "living", "caches", "in_place"} <= report.keys():
            raise Failure(f"{self.path} is no report of Winnow's, but another file: it has no pid or no caches")
        return report, written

    def _measure(self, written: float, pid: int, seen: list[int]) -> None:
        """Finds the rates where the report is another one than before."""
        if self._before is None or self._before[1] != pid or len(self._before[2]) != len(seen):
            self._rates = [None] * len(seen)
        elif written > self._before[0]:
            self._interval = written - self._before[0]
            self._rates = [(now - before) / self._interval if now >= before else None
                           for now, before in zip(seen, self._before[2])]
        self._before = written, pid, seen

    def _state(self, report: dict[str, Any], age: float) -> str:
        pid = report["pid"]
        name, living = _process_name(pid), report["living"]
        when = f"the report is {age:.0f} s old"
        if name is None and living:
            return f"Process {pid} is not here: it was killed, or runs in a container; {when}"
        if name is None:
            return f"Process {pid} has ended; its caches at their end:"
        if living:
            return f"Process {pid} ({name}): " + ("" if age <= IDLE else "idle, or writes seldom: ") + when
        if report["caches"]:
            return f"Process {pid} ({name}) has no cache in use; those that ended, at their end:"
        return f"Process {pid} ({name}) has no cache of Winnow's in use" + (
            "" if report["kv"] or report["in_place"] else ": is WINNOW_KV set?")


def _cache_rows(number: int, cache: dict[str, Any], rate: float | None) -> list[Row]:
    """A row for the cache, and where it has several slots (llama.cpp's streams) one for each."""
    streams: list[dict[str, int]] = cache["of_streams"]
    heads = max(1, cache["layers"] * cache["kv_heads"])
    tokens, slots, size = (sum(stream[key] for stream in streams) for key in ("tokens", "resident_slots", "bytes"))
    rows: list[Row] = [[number, None, tokens, slots / heads, size, cache["evictions"], cache["picks"], cache["misses"],
                        rate]]
    if len(streams) > 1:
        rows += [[number, slot, stream["tokens"], stream["resident_slots"] / heads, stream["bytes"],
                  stream["evictions"], None, None, None] for slot, stream in enumerate(streams)]
    return rows


def _head_rows(number: int, cache: dict[str, Any]) -> list[Row]:
    rows: list[Row] = []
    for layer in cache["of_layers"]:
        tokens = layer["tokens"]
        found = re.fullmatch(r"cache_k_l(\d+)", layer["name"])
        for head, resident in enumerate(layer["resident"]):
            rows.append([number, int(found[1]) if found else layer["name"], head, resident, max(0, tokens - resident),
                         100 * resident / tokens if tokens else None])
    return rows


# ---- The command --------------------------------------------------------------------------------------------------


def table(columns: Sequence[Column], rows: list[Row]) -> str:
    lines = [[column.name for column in columns], *(shown(columns, row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths)) for line in lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="winnow top", description="Shows by layer and KV head what the caches of a "
                                     "running process hold. The process is one of llama.cpp with Winnow's plugin: "
                                     f"{START}.")
    parser.add_argument("report", nargs="?", metavar="FILE|PID", help="the file of WINNOW_REPORT, or the number of the "
                        "process or of its `winnow run`; without it, the only process that writes one")
    parser.add_argument("--once", action="store_true", help="print the figures once, as text; so it is without a "
                        "terminal")
    options = parser.parse_args(arguments)
    try:
        watch = Watch(find(options.report))
        if options.once or not sys.stdout.isatty():
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as for `| head`
            lines, caches, heads = watch.look()
            print(*lines, "", table(CACHES, caches), "", table(HEADS, heads), sep="\n")
            return 0
        try:
            from winnowkv._top_app import TopApp
        except ModuleNotFoundError as missing:
            if missing.name != "textual":
                raise
            raise Failure("textual is not installed, which draws on the terminal: pip install 'winnowkv[top]', or "
                          "winnow top --once prints the figures as text") from None
        TopApp(watch).run()
    except Failure as failure:
        print(f"winnow top: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
