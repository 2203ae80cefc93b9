"""What is going on and how long it will take: a bar on a terminal, plain lines elsewhere."""

import contextlib
import time

from rich import progress as rich_progress


def duration(seconds):
    """A time for people: 40 s, 12 min, 3.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def say(console, text):
    """A line as it is, however wide the terminal."""
    console.print(text, highlight=False, markup=False, soft_wrap=True)


class Progress:
    """Work is counted in units, of which some number takes about the same time; use as a context manager.

        with Progress(console) as progress:
            progress.expect(40)
            with progress.step("q4_0, context 512", 20) as advance:
                advance(0.5)        # half of this step is done
    """

    def __init__(self, console):
        self.console = console
        self.total = self.done = 0.0
        self.bar = self.task = None
        self.begin = None  # of the first step

    def __enter__(self):
        if self.console.is_terminal:
            self.bar = rich_progress.Progress(
                rich_progress.TextColumn("{task.description}"), rich_progress.BarColumn(),
                rich_progress.TaskProgressColumn(), rich_progress.TextColumn("{task.fields[left]}"),
                console=self.console, transient=True)
            self.bar.start()
            self.task = self.bar.add_task("", total=None, left="")
        return self

    def __exit__(self, *_):
        if self.bar:
            self.bar.stop()

    def expect(self, units):
        """Adds to the work that is known of."""
        self.total += units

    def left(self):
        """In words, from the speed so far."""
        elapsed = time.monotonic() - self.begin if self.begin else 0.0
        if self.done <= 0 or elapsed < 1:
            return ""
        return f"about {duration(elapsed / self.done * max(0.0, self.total - self.done))} left"

    def say(self, text):
        say(self.console, text)

    def _show(self, label):
        if self.bar:
            self.bar.update(self.task, description=label, total=max(self.total, 1e-9), completed=self.done,
                            left=self.left())

    @contextlib.contextmanager
    def step(self, label, units):
        """One piece of the work, counted when it is over; yields a function that takes the share of it done."""
        begin, before = time.monotonic(), self.done
        self.begin = self.begin or begin
        self._show(label)

        def advance(share):
            self.done = before + units * share
            self._show(label)

        try:
            yield advance
        except BaseException:
            self.done = before
            raise
        advance(1.0)
        if not self.bar:
            percent = 100 * self.done / max(self.total, self.done)
            left = f", {self.left()}" if self.left() and self.done < self.total else ""
            self.say(f"{percent:3.0f}%  {label}: {duration(time.monotonic() - begin)}{left}")
