"""lab/research/bench_plot.py, on made reports: what is drawn, what the table says, and what is refused.

    bench_plot_test.py
"""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = Path(__file__).resolve().parents[2] / "research" / "bench_plot.py"
CACHES = {"f16": (1e-3, 1 << 20), "ggml f16": (2e-3, 1 << 20), "winnow:budget=1/4": (5e-4, 1 << 16)}
GROWTH = [{"cache": cache, "kv_heads": 8, "group": group, "head_size": 128, "keys": keys, "cold_bytes": 0,
           "seconds": seconds * keys / 128 * group, "bytes": size * keys // 128}
          for group in (4, 8) for keys in (128, 512) for cache, (seconds, size) in CACHES.items()]
ATTENTION = [{"group": 4, "head_size": 64, "keys": keys, "k_type": "f16", "v_type": "f16", "seconds": 1e-3,
              "fraction_of_bandwidth": .5} for keys in (512, 2048)]


class Plot(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def run_on(self, report, *options, picture="picture.svg"):
        results, self.picture = (Path(self.folder.name, name) for name in ("results.json", picture))
        results.write_text(json.dumps({"device": "a device", "platform": "a platform", **report}))
        return subprocess.run([sys.executable, "-B", PROGRAM, results, self.picture, *options], capture_output=True,
                              text=True)

    def test_growth_is_drawn_and_told_for_all_layers(self):
        done = self.run_on({"growth": GROWTH}, "--layers", "32", "--table")
        self.assertEqual(done.returncode, 0, done.stderr)
        drawn = self.picture.read_text()
        for word in (*CACHES, "a device, a platform", "32 layers (ms)", "32 layers (GiB)", "4 query heads",
                     "8 query heads"):
            self.assertIn(word, drawn)
        self.assertEqual(done.stdout.count("| ggml f16 |"), 2, "once for each shape, as f16 has the memory")
        for line in ("| attention of a token, 32 layers (ms), G=4, D=128 | 128 | 512 |", "| f16 | 128 | 512 |",
                     "| winnow:budget=1/4 | 64 | 256 |", "| f16 | 0.0312 | 0.125 |",
                     "| winnow:budget=1/4 | 0.00195 | 0.00781 |"):
            self.assertIn(line, done.stdout)

    def test_attention_is_drawn_with_what_was_not_measured(self):
        done = self.run_on({"sdpa_vector": ATTENTION}, picture="picture.png")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(self.picture.stat().st_size, 1000)
        self.run_on({"sdpa_vector": ATTENTION})
        for word in ("plain read", "times ggml", "not measured", "f16/f16, 4 to a KV head"):
            self.assertIn(word, self.picture.read_text())

    def test_variants_and_devices_are_lines_of_their_own(self):
        twice = [row | {"variants": variants, "device": "one"} for variants in ("chosen", "splits=2")
                 for row in ATTENTION + GROWTH]
        self.run_on({"sdpa_vector": [row for row in twice if "cache" not in row]})
        for word in ("f16/f16, 4 to a KV head, one, chosen", "f16/f16, 4 to a KV head, one, splits=2"):
            self.assertIn(word, self.picture.read_text())
        done = self.run_on({"growth": [row for row in twice if "cache" in row]}, "--table")
        self.assertIn("| f16, one, splits=2 |", done.stdout)
        self.assertIn("winnow:budget=1/4, one, chosen", self.picture.read_text())

    def test_what_cannot_be_drawn_is_refused(self):
        for report, options, picture, complaint in (
                ({"recall": []}, (), "picture.svg", "none of growth, sdpa_vector"),
                ({"growth": GROWTH, "sdpa_vector": ATTENTION}, (), "picture.svg", "expected one of them"),
                ({"growth": GROWTH}, (), "picture.txt", ".svg or .png"),
                ({"growth": GROWTH}, ("--layers", "0"), "picture.svg", "1 or more")):
            done = self.run_on(report, *options, picture=picture)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(complaint, done.stderr)
            self.assertFalse(self.picture.exists())


unittest.main()
