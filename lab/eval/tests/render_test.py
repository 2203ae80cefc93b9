"""lab/results/render.py fills a page from kept results, notices what is out of date, and accepts the real page.

    render_test.py        needs requirements.txt
"""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from made_results import made_results  # noqa: E402
from winnow_eval import cli, report  # noqa: E402

SCRIPT = Path(__file__).resolve().parents[2] / "results" / "render.py"
PAGE = """# Made up

<!-- begin made command -->
<!-- end -->

Words in between.

<!-- begin made setting -->
<!-- end -->
<!-- begin made quality 512 -->
<!-- end -->
<!-- begin made cost 512 -->
<!-- end -->
<!-- begin made task needle full cache -->
<!-- end -->
<!-- begin made task needle table -->
something old
<!-- end -->
"""
PICTURES = """<!-- begin made picture bytes 512 -->
<!-- end -->
<!-- begin made picture contexts -->
<!-- end -->
<!-- begin made task needle picture -->
<!-- end -->
"""


class Render(unittest.TestCase):
    def setUp(self):
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.page, self.results = folder / "quality.md", folder / "results"
        self.results.mkdir()
        self.made = made_results(contexts=(512,))
        self.keep(self.made)
        self.page.write_text(PAGE)

    def keep(self, results, name="made"):
        (self.results / f"{name}.json").write_text(json.dumps(results))

    def render(self, *arguments, status=0):
        """What it prints; fails at another status."""
        run = subprocess.run([sys.executable, "-B", str(SCRIPT), "--pages", str(self.page), "--results",
                              str(self.results), *arguments], capture_output=True, text=True)
        self.assertEqual(run.returncode, status, run.stdout + run.stderr)
        return run.stdout + run.stderr

    def fill(self):
        """Fills the page without drawing."""
        sys.path.insert(0, str(SCRIPT.parent))
        import render
        self.page.write_text(render.filled(self.page.read_text(), {"made": self.made}, set()))

    def test_a_filled_page_is_accepted_and_has_the_tables(self):
        self.assertIn("line 4", self.render("--check", status=1))
        self.fill()
        text = self.page.read_text()
        for table in (report.quality_table(self.made, (512, "batch")), report.cost_table(self.made, (512, "batch")),
                      report.task_table(self.made, "needle"), report.command(self.made)):
            self.assertIn(table, text)
        self.assertIn("Words in between.", text)
        self.assertNotIn("something old", text)
        self.assertIn("quality.md: as made say", self.render("--check"))
        self.fill()
        self.assertEqual(self.page.read_text(), text)

    def test_goals_are_of_what_was_measured(self):
        self.page.write_text("<!-- begin made goals 512 -->\n<!-- end -->\n")
        self.assertIn("no row of context 512, in batches has a goal", self.render("--check", status=1))
        row = self.made["rows"][-1]
        row |= {"name": "winnow", "kld": 0.0123, "kld_se": 0.001}
        self.page.write_text("<!-- begin made goals 512 -->\n<!-- end -->\n")
        self.fill()
        text = self.page.read_text()
        self.assertIn("| `winnow` | 4 and 3 bits | 0.0123 ± 0.0010 | 0.0105 | 0.008 |", text)
        self.assertNotIn("| `none:k=q8_0,v=q8_0` |", text)

    def test_several_results_have_a_column_each(self):
        other = made_results(contexts=(512,), count=4)
        del other["rows"][2]
        self.keep(other, "other")
        words = "made with other kld 512"
        self.page.write_text(f"<!-- begin {words} -->\n<!-- end -->\n")
        self.render("--check", status=1)
        sys.path.insert(0, str(SCRIPT.parent))
        import render
        lines = render.filled(self.page.read_text(), {"made": self.made, "other": other}, set()).splitlines()
        self.assertEqual(lines[2], "| configuration | bytes/token | share | all counted | mean KLD: made, 16 contexts "
                         "| mean KLD: other, 4 contexts |")
        rows = [line.split(" | ") for line in lines[4:-2]]
        self.assertEqual(len(rows), len(self.made["rows"]))
        self.assertEqual([row[-1] for row in rows].count("- |"), 1)
        self.assertRegex(rows[1][4], r"^0\.\d+ ± 0\.\d+$")
        other["rows"][-1] |= {"role": "other", "contexts": 2}
        lines = render.filled(self.page.read_text(), {"made": self.made, "other": other}, set()).splitlines()
        self.assertIn("mean KLD: other, 4 contexts |", lines[2])
        self.assertEqual([" (2) |" in line for line in lines[4:-2]], [False] * (len(rows) - 1) + [True])
        self.page.write_text("<!-- begin made with other kld 1024 decode -->\n<!-- end -->\n")
        self.assertIn("made.json has no context 1024, decoded", self.render("--check", status=1))
        self.page.write_text("<!-- begin made with another increase 512 -->\n<!-- end -->\n")
        self.assertIn("results/another.json is not there", self.render("--check", status=1))

    def test_slot_maps_are_counted_beside_the_rows_where_they_are_told(self):
        sys.path.insert(0, str(SCRIPT.parent))
        import render
        row = self.made["rows"][1]

        def shares():
            page = "<!-- begin made with made kld 512 -->\n<!-- end -->\n"
            return render.filled(page, {"made": self.made}, set()).splitlines()[5].split(" | ")[2:4]

        row["kv_metadata_bytes"] = row["kv_bytes"] // 4
        rows, all_counted = map(float, shares())
        self.assertAlmostEqual(all_counted, 1.25 * rows, delta=0.002)
        row["kv_metadata_bytes"] = None
        self.assertEqual(shares()[1], "-")

    def test_the_main_rows_are_chosen_in_their_order(self):
        sys.path.insert(0, str(SCRIPT.parent))
        import render
        page = "<!-- begin made with some_wiki main 512 -->\n<!-- end -->\n"
        self.made["rows"][1] |= {"name": "winnow"}
        lines = render.filled(page, {"made": self.made, "some_wiki": self.made}, set()).splitlines()[2:-2]
        names = [line.split("`")[1] for line in lines[2:]]
        self.assertEqual(names, [name for name in render.MAIN if name in {row["name"] for row in self.made["rows"]}])
        self.assertLess(2, len(names))
        self.assertLess(len(names), len(self.made["rows"]))
        self.assertTrue(lines[0].endswith("mean KLD: made, 16 contexts | mean KLD: WikiText, 16 contexts |"), lines[0])

    def test_leads_over_the_window_are_paired(self):
        other = made_results(contexts=(512,), count=4)
        for results, loss in ((self.made, 0.3), (other, 0.2)):
            window, best, same, small = results["rows"][1:5]
            for row in (window, best, same, small):
                row["kv_bytes_per_token"] = 5760
            window |= {"name": "window:budget=1/4"}
            window["per_context"]["kld"] = [loss] * len(window["per_context"]["kld"])
            best["per_context"]["kld"] = [0.1] * len(best["per_context"]["kld"])
            same["per_context"]["kld"] = [0.1, 0.4]  # of fewer contexts
            small["kv_bytes_per_token"] = 5000
        sys.path.insert(0, str(SCRIPT.parent))
        import render
        page = "<!-- begin made with other lead 512 -->\n<!-- end -->\n"
        lines = render.filled(page, {"made": self.made, "other": other}, set()).splitlines()[2:-2]
        self.assertEqual(lines[0], "| configuration, 5,760 bytes/token | made | other |")
        best, same = (row["name"] for row in self.made["rows"][2:4])
        self.assertEqual(lines[2], f"| `{best}` | +0.200000 ± 0.000000 (16/16) | +0.100000 ± 0.000000 (4/4) |")
        self.assertEqual(lines[3], f"| `{same}` | +0.0500 ± 0.1500 (1/2) | -0.0500 ± 0.1500 (1/2) |")
        self.assertEqual([line.split("`")[1] for line in lines[4:]], ["stream:budget=1/4"])  # of as many bytes
        del other["rows"][1]
        with self.assertRaisesRegex(render.Failure, "other.json has no window:budget=1/4 in context 512"):
            render.filled(page, {"made": self.made, "other": other}, set())

    def test_a_changed_number_is_noticed_on_either_side(self):
        self.fill()
        text = self.page.read_text()
        self.page.write_text(text.replace("12,240", "12,241", 1))
        self.assertIn("12,241", self.render("--check", status=1))
        self.page.write_text(text)
        row = self.made["rows"][3]
        row["kld"] += 0.01
        self.keep(self.made)
        self.assertIn(row["name"], self.render("--check", status=1))

    def test_faults_are_named(self):
        for page, words in ((PAGE.replace("made task", "other task"), "results/other.json is not there"),
                            (PAGE.replace("cost 512", "cost 1024"),
                             "made.json has no context 1024, in batches; it has context 512, in batches"),
                            (PAGE.replace("cost 512", "cost 512 decode"), "made.json has no context 512, decoded"),
                            (PAGE.replace("made setting", "made weather"), "unknown piece 'weather'"),
                            (PAGE.replace("needle table", "riddle table"), "made.json has no task riddle"),
                            (PAGE.replace("needle table", "needle weather"), "unknown piece 'weather' of a task"),
                            (PAGE.replace("<!-- end -->", "", 1), "a marker without its other half"),
                            ("# Nothing\n", "no page shows anything of made")):
            self.page.write_text(page)
            self.assertIn(words, self.render("--check", status=1))

    def test_a_missing_picture_is_noticed(self):
        self.page.write_text(PAGE + PICTURES)
        self.fill()
        self.assertIn("made_bytes_512.png is not there", self.render("--check", status=1))

    def test_a_picture_that_the_page_does_not_name_is_noticed(self):
        self.fill()
        self.render("--check")
        (self.results / "made_bytes_512.png").touch()
        self.assertIn("made_bytes_512.png is on no page", self.render("--check", status=1))

    def test_results_may_be_on_another_page(self):
        self.fill()
        other = self.page.with_name("other.md")
        other.write_text("# Other\n\n<!-- begin second command -->\n<!-- end -->\n")
        self.keep(self.made, "second")
        self.assertIn("no page shows anything of second", self.render("--check", status=1))
        self.assertIn("other.md, line 4", self.render("--check", "--pages", str(self.page), str(other), status=1))
        self.render("--pages", str(self.page), str(other))
        self.assertIn(report.command(self.made), other.read_text())
        self.assertIn("quality.md, other.md: as made, second say",
                      self.render("--check", "--pages", str(self.page), str(other)))

    def test_pictures_of_the_page_are_drawn(self):
        task = self.made["tasks"][0]
        self.made["rows"], task["results"] = self.made["rows"][:3], task["results"][:2]
        self.keep(self.made)
        self.page.write_text(PAGE + PICTURES.replace("<!-- begin made picture contexts -->\n<!-- end -->\n", ""))
        self.render()
        self.render("--check")
        names = sorted(path.name for path in self.results.glob("*.png"))
        self.assertEqual(names, ["made_bytes_512.png", "made_needle.png"])

    def test_the_page_of_the_tree_agrees_with_its_results(self):
        run = subprocess.run([sys.executable, "-B", str(SCRIPT), "--check"], capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)

    def test_each_kept_result_may_be_shown_again(self):
        kept = sorted((SCRIPT.parent).glob("*.json"))
        self.assertTrue(kept)
        for path in kept:
            cli.read_results(path)


if __name__ == "__main__":
    unittest.main()
