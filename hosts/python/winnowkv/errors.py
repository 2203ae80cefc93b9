"""Exceptions, one for each status of winnow.h. Their text is the backend's message."""

from __future__ import annotations


class Error(RuntimeError):
    """A call failed; nothing has changed unless the class says so. `status` is the number in winnow.h."""

    status = 0


class InvalidArgument(Error, ValueError):
    """An argument breaks its documented contract: its type, its shape, its range, or a combination of them."""

    status = 1


class Unsupported(Error):
    """A valid request that this backend or device cannot carry out."""

    status = 2


class Unimplemented(Error, NotImplementedError):
    """This backend does not offer the function or table."""

    status = 3


class VersionMismatch(Error):
    """The backend and this package have no version of the ABI in common."""

    status = 4


class NotFound(Error):
    """There is no such device, driver or file."""

    status = 5


class OutOfMemory(Error, MemoryError):
    """Memory of the host or the device is exhausted. Free some, or evict tokens, and call again."""

    status = 6


class DeviceError(Error):
    """The driver failed in the middle of a call: what the call writes is undefined. Remove the sequences of a step."""

    status = 7


class InternalError(Error):
    """A defect of the backend."""

    status = 8


class FileError(Error):
    """The system failed on a file: a full disk, a missing permission."""

    status = 9


class WouldWait(Error):
    """A call that must not wait would have to. No function of this package makes such a call."""

    status = 10


_BY_STATUS = {kind.status: kind for kind in Error.__subclasses__()}


def error_of(status: int, message: str) -> Error:
    """The exception of a status that is not 0. A status of a vendor's is a plain Error."""
    error = _BY_STATUS.get(status, Error)(message)
    error.status = status
    return error
