"""What is finished is found again, by what determines it, and a crash while writing damages nothing.

    store_test.py
"""

import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from winnow_eval import Failure, store  # noqa: E402
from winnow_calibrate import storage, text  # noqa: E402
from winnow_eval.configs import parse  # noqa: E402
from winnow_calibrate.host import Host  # noqa: E402


class Kept(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.store = store.Store(self.folder / "out")

    def test_found_by_identity(self):
        self.store.put("kld", {"a": 1, "b": [2]}, {"value": 3.5})
        again = store.Store(self.folder / "out")
        self.assertEqual(again.get("kld", {"b": [2], "a": 1}), {"value": 3.5})
        self.assertIsNone(again.get("kld", {"a": 1, "b": [3]}))
        self.assertIsNone(again.get("needle", {"a": 1, "b": [2]}))
        self.assertEqual(again.kept, 1)
        again.forget()
        self.assertIsNone(again.get("kld", {"a": 1, "b": [2]}))

    def test_found_as_long_as_the_files_that_it_was_made_from_are_the_same(self):
        paths = [self.folder / name for name in ("one", "other")]
        for path in paths:
            path.write_text("a")
        made = {"value": 3.5} | storage.read_files(*map(str, paths))
        self.store.put("kld", {"a": 1}, made)
        self.assertEqual(self.store.get("kld", {"a": 1}), made)
        paths[1].write_text("b")
        self.assertIsNone(self.store.get("kld", {"a": 1}))
        paths[1].write_text("a")
        self.assertEqual(self.store.get("kld", {"a": 1}), made)
        paths[0].unlink()
        self.assertIsNone(self.store.peek("kld", {"a": 1}))
        self.assertEqual((self.store.kept, storage.read_files()), (2, {}))

    def test_a_crash_while_writing_leaves_the_old_one(self):
        self.store.put("kld", {"a": 1}, {"value": 1})
        with mock.patch("os.fsync", side_effect=OSError(28, "no space")), self.assertRaises(OSError) as raised:
            self.store.put("kld", {"a": 1}, {"value": 2})
        self.assertIn(str(self.store.runs), raised.exception.filename)
        self.assertEqual(len(list(self.store.runs.iterdir())), 1)
        self.assertEqual(self.store.get("kld", {"a": 1}), {"value": 1})

    def test_damage_is_said_and_not_passed_over(self):
        self.store.put("kld", {"a": 1}, {"value": 1})
        (path,) = self.store.runs.glob("*.json")
        path.write_text(path.read_text()[:20])
        with self.assertRaisesRegex(Failure, path.name):
            self.store.get("kld", {"a": 1})

    def test_one_process_at_a_time(self):
        with self.store.locked(), self.assertRaisesRegex(Failure, "another"), store.Store(self.folder / "out").locked():
            pass
        with self.store.locked():
            pass


class Identity(unittest.TestCase):
    """All that determines a result changes its identity."""

    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        for name, content in {"bin/llama-completion": "#!/bin/sh\necho version: 1.2.3 >&2\n", "bin/libllama.so": "a",
                              "lib/libwinnow_ggml.so": "a", "lib/libwinnow_opencl.so": "a", "model.gguf": "a"}.items():
            path = self.folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(content)
            path.chmod(0o755)

    def identity(self, text="inplace", **settings):
        host = Host(self.folder / "bin", self.folder / "lib" / "libwinnow_ggml.so", self.folder / "model.gguf",
                    **settings)
        host.found_device = {"device": "some"}
        return host.identity(parse(text))

    def test_the_same(self):
        self.assertEqual(self.identity(), self.identity())
        self.assertIn("1.2.3", str(self.identity()))

    def test_sizes_and_configurations(self):
        different = [self.identity(), self.identity(batch=256), self.identity(ubatch=256), self.identity(threads=3),
                     self.identity("cpu"), self.identity("inplace:k=q8_0"), self.identity("inplace:rotate=off")]
        self.assertEqual(len({str(identity) for identity in different}), len(different))

    def test_files(self):
        seen = {str(self.identity())}
        for count, name in enumerate(("bin/libllama.so", "lib/libwinnow_ggml.so", "lib/libwinnow_opencl.so",
                                      "model.gguf"), start=2):
            (self.folder / name).write_text("b")
            seen.add(str(self.identity()))
            self.assertEqual(len(seen), count, name)

    def test_programs_that_are_links(self):
        real = self.folder / "real" / "bin"
        (self.folder / "bin").rename(self.folder / "moved")
        real.mkdir(parents=True)
        (self.folder / "bin").mkdir()
        for path in (self.folder / "moved").iterdir():
            path.rename(real / path.name)
            (self.folder / "bin" / path.name).symlink_to(real / path.name)
        before = self.identity()
        (real / "libllama.so").write_text("b")
        self.assertNotEqual(before, self.identity())

    def test_installed_libraries(self):
        """Programs in bin, their libraries in lib; a backend where the plugin's loader finds it."""
        for name in ("lib/libggml-cpu.so.0", "lib/libllama.so", "lib/a-linux-gnu/libggml.so",
                     "lib/winnow/libwinnow_a.so", "lib/a-linux-gnu/winnow/libwinnow_a.so"):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            before = self.identity()
            for content in "ab":
                (self.folder / name).write_text(content)
                self.assertNotEqual(before, before := self.identity(), f"{name} {content}")
        (self.folder / "libexec").mkdir()
        plugin = (self.folder / "lib" / "libwinnow_ggml.so").rename(self.folder / "libexec" / "libwinnow_ggml.so")
        seen = set()
        for name in ("lib/libwinnow_opencl.so", "lib/winnow/libwinnow_a.so", "lib/a-linux-gnu/winnow/libwinnow_a.so"):
            (self.folder / name).write_text("c")
            host = Host(self.folder / "bin", plugin, self.folder / "model.gguf")
            seen.add(str(host.identity(parse("inplace"))))
        self.assertEqual(len(seen), 3)

    def test_no_programs(self):
        (self.folder / "empty").mkdir()
        host = Host(self.folder / "empty", self.folder / "lib" / "libwinnow_ggml.so", self.folder / "model.gguf")
        host.version = "1.2.3"
        with self.assertRaisesRegex(Failure, "empty"):
            host.identity(parse("cpu"))

    def test_the_measured_part_of_a_text(self):
        path = self.folder / "text.txt"
        path.write_text("one\n\ntwo two\n\nthree\n")
        first = text.prepare(path, "first", self.folder)
        self.assertEqual(first, text.prepare(path, "first", self.folder))
        with mock.patch.object(text, "part_of", lambda content, part: content[:5]):  # as another version would cut
            other = text.prepare(path, "first", self.folder)
        self.assertEqual(first[1]["sha256"], other[1]["sha256"])
        self.assertNotEqual(first[1], other[1])

    def test_the_plugin_is_nothing_to_the_cpu(self):
        before = self.identity("cpu")
        (self.folder / "lib" / "libwinnow_opencl.so").write_text("b")
        self.assertEqual(before, self.identity("cpu"))


unittest.main()
