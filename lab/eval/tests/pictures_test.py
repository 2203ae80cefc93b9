"""lab/pictures.py: the pictures of docs/ are those that the kept results give, small, and no label covers another.

    pictures_test.py        needs requirements.txt
"""

import importlib.util
import json
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import matplotlib  # noqa: E402
from matplotlib import pyplot  # noqa: E402

from plots_test import overlap, texts_of  # noqa: E402

SPEC = importlib.util.spec_from_file_location("pictures", ROOT / "lab" / "pictures.py")
pictures = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(pictures)
MOST_BYTES = 60_000
TABLE = """Before.

| ms | 1 | 22 |
|---|---|---|
| f16 | .5 | 2 |
| other | 3 | 4 |

After.
"""


class Drawn(unittest.TestCase):
    def test_those_of_the_pages_are_what_the_results_give(self):
        with tempfile.TemporaryDirectory() as folder:
            pictures.draw(folder)
            paths = sorted(Path(folder).iterdir())
            self.assertEqual([path.name for path in paths], sorted(f"{one}.svg" for one in pictures.PICTURES))
            for path in paths:
                drawn, kept = path.read_bytes(), (ROOT / "docs" / path.name).read_bytes()
                self.assertEqual(drawn, kept, f"docs/{path.name} is out of date: run ci/python lab/pictures.py")
                self.assertLess(len(drawn), MOST_BYTES, path.name)
                self.assertIn(b"prefers-color-scheme: dark", drawn)
                self.assertIn(b"<text", drawn, "text as paths")

    def test_no_label_covers_another(self):
        with matplotlib.rc_context(pictures.STYLE):
            for name, make in pictures.PICTURES.items():
                figure = make()
                texts = texts_of(figure)
                self.assertGreater(len(texts), 2, name)
                for number, (text, box) in enumerate(texts):
                    for other, its in texts[:number]:
                        self.assertEqual(overlap(box, its), 0, f"{name}: {text} and {other}")
                pyplot.close(figure)

    def test_points_of_loss_are_those_of_the_results(self):
        kept = json.loads((pictures.RESULTS / "book.json").read_text(encoding="utf-8"))
        lost = {row["kld"] for row in kept["rows"] if row["context"] == 2048 and row["mode"] == "decode"}
        with matplotlib.rc_context(pictures.STYLE):
            figure = pictures.loss()
        points = [tuple(line.get_xydata()[0]) for line in figure.axes[0].lines if len(line.get_xydata())]
        pyplot.close(figure)
        self.assertEqual(len(points), len(pictures.POINTS))
        self.assertLessEqual({loss for _, loss in points}, lost)

    def test_a_share_counts_what_belongs_to_a_cache(self):
        row = {"kv_bytes": 100, "kv_metadata_bytes": 20, "kv_bytes_per_token": 5}
        self.assertAlmostEqual(pictures.share(row, 20), 30)
        del row["kv_metadata_bytes"]
        self.assertAlmostEqual(pictures.share(row, 20), 25)

    def test_a_table_of_a_page(self):
        self.assertEqual(pictures.table(TABLE, "ms"), ([1, 22], {"f16": [.5, 2], "other": [3, 4]}))
        with self.assertRaises(ValueError):
            pictures.table(TABLE, "seconds")


if __name__ == "__main__":
    unittest.main()
