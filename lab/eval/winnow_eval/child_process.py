"""A process of our own, which answers a line of JSON for each line of JSON that it is asked."""

import contextlib
import json
import subprocess
import tempfile


class ChildProcess:
    """Use as a context manager. `first` is its answer to being started."""

    def __init__(self, command, environment=None):
        self.command, self.environment = [str(part) for part in command], environment
        self.process = self.errors = None

    def __enter__(self):
        self.errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        try:
            self.process = subprocess.Popen(self.command, env=self.environment, encoding="utf-8",
                                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors)
            self.first = self._answer()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self.process:
            self.process.kill()
            self.process.wait()
            with contextlib.suppress(BrokenPipeError):  # of what was not read any more
                self.process.stdin.close()
            self.process.stdout.close()
        self.errors.close()

    def log(self):
        """What it wrote to standard error."""
        self.errors.seek(0)
        return self.errors.read()

    def _ended(self):
        status = self.process.wait()
        return self.failure(self.log(), status)

    def _answer(self):
        line = self.process.stdout.readline()
        if not line.endswith("\n"):  # it ended, perhaps within a line
            raise self._ended()
        return json.loads(line)

    def failure(self, said, status):
        """The exception to raise where the process ends instead of answering; said: what it wrote to standard error."""
        raise NotImplementedError

    def ask(self, request):
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None
        return self._answer()
