"""Results that are finished, one file each, so that an interruption loses only the run in progress.

A result is found again by what determines it, its identity: a dictionary that can be written as JSON. Where a file of
the machine decided about it as well, it has the file's digest, and is found again as long as the file is the same.
"""

import contextlib
import fcntl
import hashlib
import json
import shutil
from pathlib import Path

from winnow_calibrate.storage import sha256_of, write_json
from winnow_eval import Failure

FORMAT = 1


def _has_changed(files):
    return any(not Path(path).is_file() or sha256_of(path) != digest for path, digest in files.items())


class Store:
    """The folder of one `--out`: runs/ holds finished results, base/ what is needed only while measuring."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.runs = self.folder / "runs"
        self.base = self.folder / "base"
        self.kept = 0  # how many results were found instead of made

    @contextlib.contextmanager
    def locked(self):
        """One process at a time works on a folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / ".lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Failure(f"another winnow eval is writing to {self.folder}; wait for it or choose another --out")
            yield self

    def _path(self, kind, identity):
        text = json.dumps({"format": FORMAT, "kind": kind, "identity": identity}, sort_keys=True)
        return self.runs / f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:20]}.json"

    def peek(self, kind, identity):
        """The result that was put under this identity, or None; not counted as found."""
        path = self._path(kind, identity)
        if not path.exists():
            return None
        try:
            result = json.loads(path.read_text(encoding="utf-8"))["result"]
            return None if _has_changed(result.get("files", {})) else result
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Failure(f"{path} is damaged ({error}); delete it, and that run is made again") from error

    def get(self, kind, identity):
        """The result that was put under this identity, or None."""
        result = self.peek(kind, identity)
        self.kept += result is not None
        return result

    def put(self, kind, identity, result):
        """Keeps a result; the file says as well what it belongs to."""
        write_json(self._path(kind, identity), {"format": FORMAT, "kind": kind, "identity": identity,
                                                "result": result})

    def forget(self):
        """Deletes all finished results, and what is left of a measurement."""
        for path in self.runs.glob("*.json"):
            path.unlink()
        if self.base.exists():
            shutil.rmtree(self.base)
