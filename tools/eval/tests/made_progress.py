"""Progress that nobody watches, and that notes what is said."""

import contextlib


class Progress:
    def __init__(self):
        self.said = []

    def expect(self, units):
        pass

    def say(self, text):
        self.said.append(text)

    @contextlib.contextmanager
    def step(self, *_):
        yield lambda share: None
