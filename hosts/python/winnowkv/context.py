"""Contexts: a backend on one of its devices, on which operations and caches compute."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
import warnings
import weakref
from collections.abc import Iterator
from ctypes import byref, c_void_p
from types import TracebackType
from typing import Any, NamedTuple

from winnowkv import _abi, _library
from winnowkv._arrays import text, whole
from winnowkv.errors import Error, InvalidArgument, error_of

LOGGER = logging.getLogger("winnowkv")
# A failure is an exception, so its line is for those who look for all lines.
LEVELS = {1: logging.DEBUG, 2: logging.WARNING, 3: logging.INFO, 4: logging.DEBUG}


# How PoCL's versions call the size of their pool, which is read when the driver is first used.
POOL_VARIABLES = ("POCL_MAX_PTHREAD_COUNT", "POCL_CPU_MAX_CU_COUNT")


@contextlib.contextmanager
def _pool_of(threads: int) -> Iterator[None]:
    """Names the size of the driver's pool, unless it is 0, or the user has named one."""
    names = [name for name in POOL_VARIABLES if threads > 0 and name not in os.environ]
    try:
        for name in names:
            os.environ[name] = str(threads)
        yield
    finally:
        for name in names:
            del os.environ[name]


class ContextInfo(NamedTuple):
    """The device of a context."""

    name: str
    type: str  # "cpu", "gpu", "accelerator" or "unknown"
    vendor: str
    platform: str
    driver_version: str
    kernel_shape: str  # the family of kernel variants: "cpu", "workgroup", "reference", ...
    memory_size: int  # bytes of device memory
    max_allocation_size: int  # bytes
    compute_units: int
    capabilities: tuple[str, ...]  # "unified_memory": arrays are used where they lie, without a copy; and others


class ContextStats(NamedTuple):
    """What a context did so far. Counts never decrease."""

    sdpa_calls: int
    kv_append_calls: int
    tokens_appended: int
    kernel_launches: int
    programs_built: int  # compiled from source
    programs_loaded: int  # taken from the disk
    host_copies: int  # arrays that went over to a device that cannot reach them, or back
    rows_requantized: int


class Owner:
    """Something on a device, of which there is one."""

    _elsewhere = ""  # what to do instead

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(f"a {type(self).__name__} is in memory of a device, and cannot be copied or pickled"
                        f"{self._elsewhere}")


# The arguments of Python behind the names in the plugin's messages.
_ARGUMENTS = {"attn_mask": "mask", "head_sink": "sinks", "alibi_slopes": "alibi", "draft_tokens": "drafts",
              "slot_positions": "positions", "scores_out": "scores", "k_src": "k", "v_src": "v",
              "k_row_indices": "rows", "v_row_indices": "v_rows", "row_indices": "rows", "q_offsets": "q_offset",
              "window_left": "window", "src": "source", "dst": "out", "q_num_heads": "q_heads",
              "kv_num_heads": "kv_heads", "max_sequences": "sequences"}
_NAMES = re.compile(rf"\b({'|'.join(_ARGUMENTS)})\b")
_AXIS = re.compile(r"\b\w+\.(?:shape|stride)\[\d\]")


def _in_python(message: str) -> str:
    """A message of the plugin with the names that the arguments have here."""
    return _AXIS.sub(r"\g<0> (of four axes)", _NAMES.sub(lambda found: _ARGUMENTS[found[0]], message))


class Core:
    """What a context owns. It knows no Context, so that this can go while a cache still has its core.

    A context is for one thread at a time: whoever calls it does so inside of `with core`. Objects that the garbage
    collector finds, in whatever thread, wait in `doomed` for a moment in which nobody is inside of a call. After a fork
    the child has a copy of the core, with which it calls nothing: driver and threads are the parent's."""

    def __init__(self, library: _library.Library) -> None:
        self.library = library
        self.functions = library.functions
        self.lock = threading.RLock()
        self.depth = 0  # how many `with core` the thread that has the lock is in
        self.handle: int | None = None
        self.doomed: list[tuple[_library.Function, int]] = []
        self.living: dict[int, _library.Function] = {}  # what destroys each object that was made from the context
        self.log = _abi.LOG(self._note)
        self._process = os.getpid()

    @property
    def is_foreign(self) -> bool:
        """Whether it was made by the parent of this process, before a fork."""
        return os.getpid() != self._process

    def __enter__(self) -> Core:
        """Raises Error in a child of the process that made it."""
        if os.getpid() != self._process:
            raise Error("the context belongs to the parent process, from which this one was forked; expected a process "
                        "that makes its own: multiprocessing.set_start_method(\"spawn\")")
        self.lock.acquire()
        self.depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.depth -= 1
        try:
            if self.doomed and not self.depth:
                self.drain()
        finally:
            self.lock.release()

    @staticmethod
    def _note(_: object, level: int, text: bytes) -> None:
        LOGGER.log(LEVELS.get(level, logging.WARNING), "%s", text.decode(errors="replace"))

    def open(self) -> int:
        """The handle. Raises Error after close()."""
        if self.handle is None:
            raise Error("the context is closed")
        if self.doomed and self.depth == 1:
            self.drain()
        return self.handle

    def check(self, status: int) -> None:
        """Raises Error, with the context's message, for a status that is not 0."""
        if status != 0:
            message = self.library.message(c_void_p(self.handle)).decode(errors="replace")
            raise error_of(status, _in_python(message))

    def compute(self, function: _library.Function, *arguments: object) -> None:
        """Calls a function that enqueues work, and waits for the work. Raises Error. However it ends, as by Ctrl-C, the
        device writes nothing any more, so that the caller may give memory back."""
        finish, handle = self.functions["finish"], self.handle
        try:
            self.check(function(*arguments) or finish(handle))
        except BaseException as error:
            if not isinstance(error, InvalidArgument):
                finish(handle)
            raise

    def own(self, handle: c_void_p, destroy: _library.Function) -> int:
        """Takes an object that was made from the context."""
        assert handle.value is not None
        self.living[handle.value] = destroy
        return handle.value

    def destroy(self, handle: int) -> None:
        """Destroys an object at once. Raises Error where that fails; the object is there until the context goes."""
        if self.is_foreign:
            return
        with self:
            if handle in self.living:
                self.check(self.living[handle](handle))
                del self.living[handle]

    def dispose(self, handle: int) -> None:
        """Destroys an object that nobody has any more, as soon as nobody is inside of a call."""
        destroy = self.living.get(handle)
        if destroy is not None and not self.is_foreign:
            self.doomed.append((destroy, handle))
            if self.lock.acquire(blocking=False):
                try:
                    if not self.depth:  # else this thread is inside of a call
                        self.drain()
                finally:
                    self.lock.release()

    def drain(self) -> None:
        self.depth += 1
        try:
            while self.doomed:
                destroy, handle = self.doomed.pop()
                if self.living.pop(handle, None) is not None:
                    destroy(handle)
        finally:
            self.depth -= 1

    def close(self) -> None:
        """Destroys everything. Later calls do nothing, nor do those of a child process."""
        if self.is_foreign:
            return
        with self:
            handle, self.handle = self.handle, None
            if handle is not None:
                self.drain()
                for each, destroy in self.living.items():
                    destroy(each)
                self.living.clear()
                self.functions["context_destroy"](handle)


class Context(Owner):
    """A backend and a context on one of its devices. It is closed by close(), at the end of a `with`, or when nobody
    has it and its caches any more.

    A context computes for one thread at a time; others wait for it, without the GIL. Threads that are to compute side
    by side have contexts of their own."""

    def __init__(self, device: str | int | None = None, *, backend: str | os.PathLike[str] | None = None,
                 threads: int = 0, variants: str | None = None) -> None:
        """device: a number as in devices(), "gpu", "cpu", or a part of a name; None: the environment's WINNOW_DEVICE,
        else the first GPU, else the first device.
        backend: "opencl", "reference", or the path of a backend; None: the environment's WINNOW_BACKEND, else "opencl".
        threads: how many threads a CPU device computes with; 0: as many as the machine has processors. PoCL has one
        pool for a process, whose size is that of the first context: a RuntimeWarning says where a later one asks for
        fewer. Where another pool computes between the calls (torch's, numpy's), give both the same number.
        variants: kernel variants, as docs/variants.md has them, for measurements.

        The logger "winnowkv" of `logging` gets the backend's lines, of the level that it had then. Raises NotFound for
        a device that is not there, FileNotFoundError without a backend, VersionMismatch, and other Errors."""
        core = self._core = Core(_library.find(backend))
        level = LOGGER.getEffectiveLevel()
        wanted = 4 if level <= logging.DEBUG else 3 if level <= logging.INFO else 2
        handle = c_void_p()
        desc = _abi.ContextDesc(device=None if device is None else text(str(device), "device"), log=core.log,
                                variants=None if variants is None else text(variants, "variants"), log_level=wanted,
                                max_threads=whole(threads, "threads", 0, (1 << 32) - 1))
        with _pool_of(threads):
            core.library.ask("context_create", byref(desc), byref(handle))
        core.handle = handle.value
        self._finalizer = weakref.finalize(self, core.close)
        self._operations: dict[type, Any] = {}  # of operations.py, whose structs are kept here
        info = self.info
        if info.type == "cpu" and 0 < threads < info.compute_units:
            warnings.warn(f"{info.name} computes with {info.compute_units} threads, expected {threads}: its pool was "
                          f"made before; give threads to the first context of the process", RuntimeWarning,
                          stacklevel=2)

    def __enter__(self) -> Context:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Waits for what still runs, and gives everything back, also what caches of the context hold."""
        self._finalizer()

    @property
    def is_closed(self) -> bool:
        return self._core.handle is None or self._core.is_foreign

    @property
    def backend(self) -> str:
        """The backend's name, "opencl" or "reference"."""
        return self._core.library.name

    @property
    def version(self) -> str:
        """The backend's version."""
        return self._core.library.version

    @property
    def info(self) -> ContextInfo:
        """The device. Raises Error."""
        raw = _abi.DeviceInfo()
        self._call("context_info", byref(raw))
        texts = {name: getattr(raw, name).decode(errors="replace")
                 for name in ("name", "vendor", "platform", "driver_version", "kernel_shape")}
        capabilities = tuple(name for name, bit in _abi.CAPABILITIES.items() if raw.capabilities & bit)
        return ContextInfo(type=_abi.DEVICES.get(raw.type, "unknown"), memory_size=raw.memory_size,
                           max_allocation_size=raw.max_allocation_size, compute_units=raw.compute_units,
                           capabilities=capabilities, **texts)

    def stats(self) -> ContextStats:
        """What it did so far. Raises Error."""
        raw = _abi.Stats()
        self._call("context_stats", byref(raw))
        return ContextStats(*(getattr(raw, name) for name in ContextStats._fields))

    def __repr__(self) -> str:
        return "<Context, closed>" if self.is_closed else f"<Context on {self.info.name} ({self.backend})>"

    def _call(self, name: str, *arguments: object) -> None:
        """Calls a function of winnow.h on the context. Raises Error."""
        core = self._core
        with core:
            core.check(core.functions[name](core.open(), *arguments))


_default: Context | None = None
_default_lock = threading.RLock()  # a handler of log lines may come back
_of_parent: list[Context] = []  # which a child never gives back


def default_context() -> Context:
    """The context of calls that are given none: made when it is first needed, one for each process. Raises what
    Context() does. A process that was forked has none yet; after its parent used OpenCL it cannot have one."""
    global _default
    with _default_lock:
        if _default is None or _default.is_closed:
            _default = Context()
        return _default


def default_library() -> _library.Library:
    """The backend of the default context, which is not made for that."""
    context = _default
    return _library.find() if context is None else context._core.library


def set_default_context(context: Context | None) -> None:
    """Has calls that are given none take this context. None: they make one as if none had been made."""
    global _default
    with _default_lock:
        _default = context


def _forget() -> None:
    global _default, _default_lock
    if _default is not None:
        _of_parent.append(_default)
    _default, _default_lock = None, threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
