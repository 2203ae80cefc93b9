"""Files that are there whole or not at all, and digests of files."""

import hashlib
import json
import os
from pathlib import Path


def write_atomically(path, text):
    """Readers see the old file or the new one, also after a crash."""
    write_bytes_atomically(path, text.encode())


def write_bytes_atomically(path, data):
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except OSError as error:
        error.filename = error.filename or str(path)  # a full disk does not say where
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path, value):
    write_atomically(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def sha256_of(*paths):
    """The digest of a file, or of the digests of several."""
    digests = []
    for path in paths:
        with open(path, "rb") as file:
            digests.append(hashlib.file_digest(file, "sha256"))
    return digests[0].hexdigest() if len(digests) == 1 else hashlib.sha256(b"".join(
        digest.digest() for digest in digests)).hexdigest()


def read_files(*paths):
    """What a result keeps of the files that it was made from: {"files": {path: digest}}, or nothing without any."""
    return {"files": {path: sha256_of(path) for path in paths}} if paths else {}
