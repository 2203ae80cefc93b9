"""A process of an adapter's own, which answers a line of JSON for each line of JSON that it is asked."""

import json
import subprocess

LAST_WORDS = 600  # characters of a log that are shown


class ChildProcess:
    """Use as a context manager. `first` is its answer to being started."""

    def __init__(self, command, environment=None):
        self.command, self.environment = command, environment
        self.process = None

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, env=self.environment)
        try:
            self.first = self._answer()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def _answer(self):
        line = self.process.stdout.readline()
        if not line.endswith("\n"):
            words = self.process.communicate()[1].strip()[-LAST_WORDS:]
            raise self.failure(words, self.process.returncode)
        return json.loads(line)

    def failure(self, words, status):
        """The exception to raise where the process ends instead of answering; words: the last ones that it wrote to
        standard error."""
        raise NotImplementedError

    def ask(self, request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self._answer()
