"""`winnow top` over a report written by hand: what it says of each state of a process, its figures, and the terminal by
textual's own pilot. tests/ggml/top_test.py watches a real llama-server.
"""

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from textual.widgets import Static

from winnowkv import top
from winnowkv._top_app import FigureTable, TopApp

SOURCES = Path(__file__).resolve().parent
STREAMS = [{"tokens": 100, "resident_slots": 4 * 60, "bytes": 2 << 20, "evictions": 160},
           {"tokens": 50, "resident_slots": 4 * 40, "bytes": 1 << 20, "evictions": 40}]


def cache(seen=150, name="cache_k_l0"):
    """Two layers of two KV heads and two slots."""
    return {"name": name, "config": "winnow:budget=1/4", "device": "cpu", "layers": 2, "kv_heads": 2,
            "tokens_seen": seen, "of_streams": STREAMS, "evictions": 200, "picks": 8, "misses": 3,
            "of_layers": [{"name": "cache_k_l0", "tokens": 150, "resident": [90, 110]},
                          {"name": "cache_k_l10", "tokens": 150, "resident": [120, 80]}]}


class Reports(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name, "report.json")
        self.watch = top.Watch(self.path)

    def write(self, *, age=0.0, **changes):
        """As the plugin does: another file takes the place of the old one."""
        report = {"pid": os.getpid(), "kv": "winnow", "living": [cache()], "caches": [], "in_place": []} | changes
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(report))
        os.utime(new, (time.time() - age,) * 2)
        new.rename(self.path)

    def expect_failure(self, words):
        with self.assertRaises(top.Failure) as found:
            self.watch.look()
        self.assertIn(words, str(found.exception))

    def child(self, *command, **variables):
        process = subprocess.Popen(command or ["sleep", "60"], env={"PATH": os.environ["PATH"]} | variables,
                                   cwd=self.path.parent)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        while b"PATH" not in Path(f"/proc/{process.pid}/environ").read_bytes():  # it is not yet the program
            time.sleep(.01)
        return process

    def command(self, *arguments, python=("-m", "winnowkv.top"), stdout=subprocess.PIPE, path=SOURCES):
        return subprocess.run([sys.executable, "-B", *python, *map(str, arguments)], stdout=stdout,
                              stderr=subprocess.PIPE, text=True, timeout=60,
                              env=os.environ | {"PYTHONPATH": str(path)})


class Words(Reports):
    def test_what_is_no_report(self):
        self.expect_failure(f"there is no file {self.path} yet")
        for text, words in (("", "another file: Expecting value"), ("[1]", "no pid or no caches"),
                            ('{"pid": 1}', "no pid or no caches"), ("\xff", "another file"),
                            ('{"onnxruntime": "1"}', "session of ONNX Runtime")):
            self.path.write_text(text, encoding="latin-1")
            self.expect_failure(words)
        self.path.unlink()
        self.path.mkdir()
        self.expect_failure("is a folder, pipe or device")
        self.watch.path = Path("a" * 300)
        self.expect_failure("cannot be read: File name too long")

    def test_states_of_a_process(self):
        ended = subprocess.Popen(["true"])
        ended.wait()
        zombie = subprocess.Popen(["true"])
        os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
        own = f"Process {os.getpid()} (python"
        for changes, begin, words in (
                ({}, own, "the report is 0 s old"),
                ({"age": 100}, own, "idle, or writes seldom: the report is 100 s old"),
                ({"pid": ended.pid}, f"Process {ended.pid} is not here", "was killed"),
                ({"pid": ended.pid, "living": [], "caches": [cache()]}, f"Process {ended.pid} has ended", "their end"),
                ({"pid": zombie.pid, "living": [], "caches": [cache()]}, f"Process {zombie.pid} has ended", "end"),
                ({"living": [], "caches": [cache()]}, own, "no cache in use; those that ended"),
                ({"living": [], "kv": ""}, own, "is WINNOW_KV set?"),
                ({"living": []}, own, "no cache of Winnow's in use")):
            with self.subTest(words):
                self.write(**changes)
                line = self.watch.look().lines[0]
                self.assertTrue(line.startswith(begin) and words in line, line)
        zombie.wait()
        self.write(living=[], in_place=[{"name": "cache_k_l0", "reason": "the node is strange"}])
        self.assertEqual(self.watch.look().lines[1], "cache_k_l0: not in Winnow's cache: the node is strange")

    def test_the_file_of_a_process(self):
        child = self.child(WINNOW_REPORT="a-%p-%%.json", WINNOW_REPORT_EVERY="1")
        path = self.path.parent / f"a-{child.pid}-%.json"
        self.assertEqual(top.find(str(child.pid)), path)
        path.write_text("")
        self.child(WINNOW_REPORT="a" * 300, WINNOW_REPORT_EVERY="1")  # which nobody can look for
        try:  # others on this machine may write reports, too
            self.assertEqual(top.find(None), path)
        except top.Failure as several:
            self.assertIn(f"winnow top {path}  (process {child.pid}, sleep)", str(several))
        for variables, words in (({}, "without WINNOW_REPORT, and"),
                                 ({"WINNOW_REPORT": "a"}, "without WINNOW_REPORT_EVERY")):
            with self.assertRaisesRegex(top.Failure, words):
                top.find(str(self.child(**variables).pid))
        script = "WINNOW_REPORT=b-%p.json sleep 60 & echo $! > pid; wait"
        shell = self.child("sh", "-c", script, WINNOW_REPORT_EVERY="1")
        while not (number := self.path.with_name("pid")).exists() or not number.read_text():
            time.sleep(.01)
        sleeper = int(number.read_text())
        self.addCleanup(os.kill, sleeper, signal.SIGKILL)
        while b"WINNOW_REPORT=" not in Path(f"/proc/{sleeper}/environ").read_bytes():
            time.sleep(.01)
        self.assertEqual(top.find(str(shell.pid)), self.path.parent / f"b-{sleeper}.json")  # of its child
        with self.assertRaisesRegex(top.Failure, "there is no process 4194305"):  # more than Linux has
            top.find("4194305")

    def test_the_command(self):
        for arguments in ["--once", self.path], [self.path]:  # a pipe is no terminal
            done = self.command(*arguments)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn("winnow top: there is no file", done.stderr)
        self.write()
        cli = "import sys; sys.argv[1:1] = ['top']; from winnowkv.cli import main; main()"
        done = self.command("--once", self.path, python=("-c", cli))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"\n +1 +0 +1 +110 +40 +73\.3\n")

    def test_without_textual(self):
        self.write()
        (self.path.parent / "textual").mkdir()
        (self.path.parent / "textual" / "__init__.py").write_text("raise ModuleNotFoundError('no', name='textual')")
        ours, its = pty.openpty()
        path = f"{self.path.parent}:{SOURCES}"
        done = self.command(self.path, stdout=its, path=path)
        os.close(its)
        os.close(ours)
        self.assertEqual(done.returncode, 1)
        self.assertIn("pip install 'winnowkv[top]'", done.stderr)
        self.assertEqual(self.command("--once", self.path, path=path).returncode, 0)


class Figures(Reports):
    def test_rows(self):
        self.write(living=[cache(), cache(name="cache_k_l1")])
        view = self.watch.look()
        self.assertEqual(view.caches[:3], [[1, None, 150, 100.0, 3 << 20, 200, 8, 3, None],
                                           [1, 0, 100, 60.0, 2 << 20, 160, None, None, None],
                                           [1, 1, 50, 40.0, 1 << 20, 40, None, None, None]])
        self.assertEqual(view.heads[:4], [[1, 0, 0, 90, 60, 60.0], [1, 0, 1, 110, 40, 100 * 110 / 150],
                                          [1, 10, 0, 120, 30, 80.0], [1, 10, 1, 80, 70, 100 * 80 / 150]])
        self.assertEqual([row[0] for row in view.heads], [1] * 4 + [2] * 4)
        text = top.table(top.CACHES, view.caches[:1]).splitlines()[1]
        self.assertEqual(text.split(), ["1", "-", "150", "100.0", "3.00", "200", "8", "3", "-"])

    def test_rates(self):
        def rate(seen, age, **changes):
            self.write(living=[cache(seen)], age=age, **changes)
            return self.watch.look().caches[0][-1]

        self.assertIsNone(rate(150, 2.5))
        self.assertAlmostEqual(rate(250, .5), 50, 1)
        self.assertAlmostEqual(self.watch.look().caches[0][-1], 50, 1)  # the same report
        self.assertIsNone(rate(10, 0))  # another context
        self.assertIsNotNone(rate(20, -1))
        os.utime(self.path, (time.time() - 60,) * 2)
        self.assertEqual(self.watch.look().caches[0][-1], 0)
        self.assertIsNone(rate(1000, -2, pid=1))  # another process, with the same file

    def test_order(self):
        rows = [["b", 3], [2, None], [10, 1]]
        self.assertEqual([row[0] for row in top.ordered(rows, 0, False)], [2, 10, "b"])
        self.assertEqual([row[1] for row in top.ordered(rows, 1, True)], [3, 1, None])


class Terminal(Reports):
    def test_the_tables_follow_the_report(self):
        asyncio.run(self.follow())

    async def until(self, pilot, condition):
        end = time.monotonic() + 60
        while not condition():
            self.assertLess(time.monotonic(), end)
            await pilot.pause(.1)

    def cells(self, app, name):
        table = app.query_one(f"#{name}", FigureTable)
        return [[str(cell) for cell in table.get_row_at(row)] for row in range(table.row_count)]

    async def follow(self):
        app = TopApp(self.watch)
        async with app.run_test(size=(100, 40)) as pilot:
            state = app.query_one("#state", Static)
            self.assertIn("there is no file", str(state.render()))
            self.write()
            await self.until(pilot, lambda: "the report is" in str(state.render()))
            self.assertEqual(self.cells(app, "caches")[0], ["1", "-", "150", "100.0", "3.00", "200", "8", "3", "-"])
            self.assertEqual(self.cells(app, "heads")[2], ["1", "10", "0", "120", "30", "80.0"])
            heads = app.query_one("#heads", FigureTable)
            heads.move_cursor(row=3)
            self.write(living=[cache(1150)])
            await self.until(pilot, lambda: self.cells(app, "caches")[0][-1] not in ("-", "0.0"))
            self.assertEqual(heads.cursor_row, 3)
            resident = lambda: [row[3] for row in self.cells(app, "heads")]  # noqa: E731
            column = sum(each.get_render_width(heads) for each in list(heads.columns.values())[:3]) + 1
            for expected in ["80", "90", "110", "120"], ["120", "110", "90", "80"]:
                await pilot.click("#heads", offset=(column, 0))
                await pilot.pause()
                self.assertEqual(resident(), expected)
            self.write(living=[cache(), cache(name="cache_k_l1")])
            app.refresh_figures()
            self.assertEqual(resident(), ["120", "120", "110", "110", "90", "90", "80", "80"])
            await pilot.press("q")
        self.assertEqual(app.return_code, 0)


if __name__ == "__main__":
    unittest.main()
