"""Remembers what has passed by the content of the files that it depends on, so that it is not done once more.

A pass is one file in ${XDG_CACHE_HOME:-~/.cache}/winnow-dev/passes/<kind>/. Its name is a digest of what was done: its
subject, the programs' versions, their options. It holds the paths of all files that were read or made, a digest of
their contents, and the time. Only the last pass of a subject is kept, and of a kind as many as `most`, those that were
used last.
"""

import hashlib
import os
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "ci"))

import parts  # noqa: E402

HERE = Path(__file__)


class KnownPasses:
    """`tree` is all files that an include could find: one that comes and has the name of a file that was read may be
    read in its place, and what has passed is then not known any more."""

    def __init__(self, kind, tree=(), folder=None, most=1000):
        self.folder = Path(folder or parts.CACHE / "passes") / kind
        self.folder.mkdir(parents=True, exist_ok=True)
        self.most = most
        self.began = time.time()
        self.by_name = {}
        for path in sorted(map(os.path.realpath, tree)):
            self.by_name.setdefault(os.path.basename(path), []).append(path)
        self.contents = {}

    def _file(self, subject):
        return self.folder / hashlib.sha256("\0".join(map(str, subject)).encode()).hexdigest()

    def _content(self, path):
        if path not in self.contents:
            self.contents[path] = hashlib.sha256(Path(path).read_bytes()).digest()
        return self.contents[path]

    def _digest(self, paths):
        """Of the content of these files and of this one, and of the names of those that are called like them."""
        digest = hashlib.sha256(self._content(str(HERE)))
        for path in paths:
            digest.update(b"\0".join((path.encode(), self._content(path))))
        for name in sorted({os.path.basename(path) for path in paths}):
            digest.update("\0".join(self.by_name.get(name, ())).encode())
        return digest.hexdigest()

    def knows(self, *subject):
        """When this passed, in words, if all files are as they were then; else nothing."""
        file = self._file(subject)
        try:
            digest, when, *paths = file.read_text(encoding="utf-8").split("\0")
            if digest != self._digest(paths):
                return ""
            os.utime(file)  # used now
        except (OSError, ValueError):
            return ""
        return when

    def keep(self, paths, *subject, made=()):
        """This has passed, has read these files and has made others. One that was written since this object was made
        may not be what was read, so that then nothing is kept."""
        paths = sorted({os.path.realpath(path) for path in paths})
        if any(os.stat(path).st_mtime >= self.began for path in paths):
            return
        made = sorted(os.path.realpath(path) for path in made)
        for path in made:
            self.contents.pop(path, None)  # of before
        paths += made
        file = self._file(subject)
        temporary = file.with_name(f"{file.name}.{os.getpid()}")
        when = time.strftime("%Y-%m-%d %H:%M:%S")
        temporary.write_text("\0".join([self._digest(paths), when, *paths]), encoding="utf-8")
        temporary.replace(file)

    def trim(self):
        """Removes those that were not used for longest."""
        def used(path):
            try:
                return path.stat().st_mtime
            except FileNotFoundError:  # by another run
                return time.time()

        for path in sorted(self.folder.iterdir(), key=used)[:-self.most]:
            path.unlink(missing_ok=True)
