"""The pictures of made-up results: all of them are drawn, the same each time, and no label covers another or a line.

    plots_test.py        needs requirements.txt
"""

import json
import random
import re
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from matplotlib.text import Text  # noqa: E402

from made_results import made_configs, made_others, made_results  # noqa: E402
from winnow_eval import labels, others, plots  # noqa: E402

PNG = b"\x89PNG\r\n\x1a\n"


def few(results):
    """The same with few configurations, which are faster to draw."""
    wanted = [name for name, *_ in made_configs()][::6]
    results["rows"] = [row for row in results["rows"] if row["name"] in wanted]
    for task in results["tasks"]:
        task["results"] = [one for one in task["results"] if one["name"] in wanted]
    return results


def overlap(one, other):
    """The area that two boxes share."""
    width = min(one.x1, other.x1) - max(one.x0, other.x0)
    height = min(one.y1, other.y1) - max(one.y0, other.y0)
    return width * height if width > 0 and height > 0 else 0.0


def texts_of(figure):
    """(text, box in pixels) of all that is written inside the axes or beside them."""
    renderer = figure.canvas.get_renderer()
    figure.draw(renderer)
    # Text's own extent: that of an annotation would hold its line as well.
    return [(text.get_text(), Text.get_window_extent(text, renderer)) for axes in figure.axes for text in axes.texts
            if text.get_text() and axes.get_visible()]


def markers_of(figure):
    """The points that are drawn with a marker, in pixels."""
    return [tuple(point) for axes in figure.axes for line in axes.lines if line.get_marker() not in ("None", None)
            for point in axes.transData.transform(line.get_xydata())]


def lines_of(figure):
    """The paths of all lines in the axes, in pixels."""
    return [line.get_path().transformed(line.get_transform()) for axes in figure.axes for line in axes.lines]


class Front(unittest.TestCase):
    def test_no_point_of_the_front_is_beaten(self):
        points = [(1, 9), (2, 4), (2, 3), (3, 3), (4, 5), (5, 1), (6, 1)]
        self.assertEqual(plots.pareto(points), [(1, 9), (2, 3), (5, 1)])

    def test_against_the_definition(self):
        numbers = random.Random(1)
        points = [(numbers.randrange(30), numbers.randrange(30)) for _ in range(100)]
        front = plots.pareto(points)
        for size, loss in points:
            beaten = any(other[0] <= size and other[1] <= loss and other != (size, loss) for other in points)
            self.assertEqual((size, loss) in front, not beaten)


class Families(unittest.TestCase):
    def test_budgets_of_a_policy_belong_together(self):
        def family(kv, environment=None, **told):
            return plots.family({"name": "mine", "role": "row", "config": {
                "kv": kv, "environment": environment or {}, "k": "f16", "v": "q8_0"}} | told)

        self.assertEqual(family("winnow:budget=922", family="winnow"), "winnow")
        self.assertEqual(family("winnow:budget=922"), "winnow:budget=922")  # of older results
        self.assertEqual(family(""), "f16/q8_0")
        self.assertEqual(family("winnow", {"X": "1"}, family="winnow"), "mine")

    def test_a_line_leads_through_the_budgets_of_a_family(self):
        results = few(made_results(contexts=(512,), needle=False))
        made = next(row for row in results["rows"] if row["role"] == "row")
        for name, family in (("p:budget=9", "p"), ("p:budget=5,k=f16", "p:k=f16"), ("p:budget=3", "p")):
            config = made["config"] | {"kv": name, "backend": "winnow"}
            results["rows"].append(made | {"name": name, "config": config, "family": family,
                                           "kv_bytes_per_token": 1000 * len(results["rows"])})
        figure = plots.over_bytes(results, (512, "batch"))
        sizes = {row["name"]: row["kv_bytes_per_token"] for row in results["rows"]}
        swept = sorted((sizes["p:budget=9"], sizes["p:budget=3"]))
        for axes in figure.axes:
            lines = [list(line.get_xdata()) for line in axes.lines]
            self.assertEqual(lines.count(swept), 1)
            named = {text.get_text() for text in axes.texts}
            self.assertTrue({"p", "p:budget=5,k=f16"} <= named, named)
        plots.pyplot.close(figure)


class Labels(unittest.TestCase):
    def test_long_names_are_broken_at_commas(self):
        self.assertEqual(labels.wrapped("a:b=1,c=2,d=3", 8), "a:b=1,\nc=2,d=3")
        self.assertEqual(labels.wrapped("a:b=1", 2), "a:b=1")

    def test_spread_keeps_order_and_distance(self):
        moved = labels.spread([5, 1, 1.5, 100, 5.2], 3)
        self.assertEqual(sorted(range(5), key=moved.__getitem__), [1, 2, 0, 4, 3])
        ordered = sorted(moved)
        self.assertTrue(all(high - low >= 3 - 1e-9 for low, high in zip(ordered, ordered[1:])))
        self.assertEqual(moved[3], 100)

    def test_spread_leaves_what_has_room(self):
        self.assertEqual(labels.spread([30, 10, 20], 5), [30, 10, 20])


class Pictures(unittest.TestCase):
    def test_every_picture_in_both_kinds(self):
        with tempfile.TemporaryDirectory() as folder:
            paths = plots.draw(few(made_results(contexts=(256, 512))), folder, prefix="made_")
            names = sorted(path.name for path in paths)
            self.assertEqual(names, sorted(f"made_{name}.{kind}" for kind in ("png", "svg")
                                           for name in ("bytes_256", "bytes_512", "contexts", "needle", "tasks")))
            for path in paths:
                if path.suffix == ".png":
                    self.assertTrue(path.read_bytes().startswith(PNG))
                else:
                    self.assertRegex(path.read_text(), r"(?s)^<\?xml.*</svg>\s*$")

    def test_each_mode_has_its_pictures(self):
        results = few(made_results(contexts=(256, 512), modes=("batch", "decode"), needle=False))
        self.assertEqual([name for name, _ in plots.figures(results)],
                         ["bytes_256", "bytes_256_decode", "bytes_512", "bytes_512_decode", "contexts",
                          "contexts_decode"])
        self.assertIn("decoded", plots.title(results, (256, "decode")))

    def test_the_same_results_give_the_same_svg_without_a_date(self):
        results = few(made_results(contexts=(512,)))
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
            for first, second in zip(plots.draw(results, one, formats=("svg",)),
                                     plots.draw(results, other, formats=("svg",))):
                self.assertEqual(first.read_bytes(), second.read_bytes())
                self.assertIsNone(re.search("dc:date|Matplotlib v", first.read_text()))

    def expect_clear(self, name, figure):
        """The texts of a figure, none of which covers another, a marker or a line."""
        written = texts_of(figure)
        self.assertGreater(len(written), 10, name)
        for index, (text, box) in enumerate(written):
            for other, other_box in written[index + 1:]:
                self.assertEqual(overlap(box, other_box), 0, f"{name}: {text} covers {other}")
            for point in markers_of(figure):
                self.assertFalse(box.contains(*point), f"{name}: {text} covers a marker")
            for path in lines_of(figure):  # a line may lead to a text and touch it
                self.assertFalse(path.intersects_bbox(box.padded(-1), filled=False), f"{name}: {text} covers a line")
        plots.pyplot.close(figure)
        return [text for text, _ in written]

    def test_no_label_covers_another(self):
        results = made_results()
        with plots.matplotlib.rc_context(plots.STYLE):
            for name, make in plots.figures(results):
                if not name.startswith("resident"):  # it has no labels
                    self.assertNotIn("1e-6", str(self.expect_clear(name, make())))

    def test_what_is_resident_has_a_map_for_each_policy(self):
        results = made_results(contexts=(512,))
        task, = results["tasks"]
        figure = plots.holdings(results, task)
        maps = [axes.images[0].get_array() for axes in figure.axes if axes.images]
        policies = [result for result in task["results"] if result["config"]["kv"]]
        self.assertEqual([found.shape for found in maps], [(30, 3)] * len(policies))
        self.assertTrue(all(0 <= found.min() < found.max() <= 1 for found in maps))
        plots.pyplot.close(figure)

    def test_layers_may_have_unlike_numbers_of_heads(self):
        results = made_results(contexts=(512,))
        task, = results["tasks"]
        for result in task["results"]:
            if "resident" in result:
                result["resident"]["layers"][:2] = [[3], [4, 5, 6, 7, 8]]
        figure = plots.holdings(results, task)
        found = next(axes.images[0].get_array() for axes in figure.axes if axes.images)
        plots.pyplot.close(figure)
        self.assertEqual((found.shape, found.mask.sum()), ((30, 5), 4 + 28 * 2))
        self.assertEqual((found[0, 0], found[1, 4]), (3 / 12, 8 / 12))

    def test_a_control_run_below_what_is_drawn_is_said(self):
        results = made_results(needle=False)
        for row in results["rows"]:
            if row["role"] == "control":
                row |= {"kld": 0.0, "kld_se": 0.0}
        with plots.matplotlib.rc_context(plots.STYLE):
            self.assertEqual(self.expect_clear("bytes", plots.over_bytes(results, (512, "batch"))).count(
                "control run (1e-6 or less)"), 1)
            ends = self.expect_clear("contexts", plots.over_contexts(results, "batch"))
        self.assertEqual([text for text in ends if text.startswith("control")],
                         ["control: cpu:k=f16,v=f16", "control: cpu:k=f16,v=f16 (1e-6 or less)"])

    def test_only_what_is_wanted(self):
        results = few(made_results(contexts=(512,)))
        with tempfile.TemporaryDirectory() as folder:
            paths = plots.draw(results, folder, prefix="made_", formats=("png",), only=("made_bytes_512.png",))
            self.assertEqual([path.name for path in paths], ["made_bytes_512.png"])
            self.assertEqual([path.name for path in Path(folder).iterdir()], ["made_bytes_512.png"])

    def test_rows_and_tasks_of_other_tools(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "others.json"
            path.write_text(json.dumps(made_others()))
            results = made_results(contexts=(2048,))
            results["rows"] = results["rows"][::3]
            results = others.add(results, [path])
            names = [name for name, _ in plots.figures(results)]
            self.assertEqual(names, ["bytes_2048", "contexts", "needle", "resident_needle", "tasks"])
            with plots.matplotlib.rc_context(plots.STYLE):
                bytes_texts = self.expect_clear("bytes", plots.over_bytes(results, (2048, "batch")))
                task_texts = self.expect_clear("tasks", plots.overview(results))
            self.assertEqual(sum(text.startswith("squeeze") for text in bytes_texts), 4)  # two rows in two panels
            self.assertEqual([text for text in task_texts if text in ("30/44", "2/3")], ["30/44", "2/3"])

    def test_rows_of_other_tools_that_tell_little(self):
        """No perplexity at one length, and at another nothing but the tool's own full cache."""
        made = made_others()
        least = {"mode": "batch", "contexts": 8, "kv_bytes_per_token": 9000.}
        made["rows"] = [{"name": "squeeze:keep=512", "context": 4096, "kld": 0.2, **least},
                        {"name": "squeeze:none", "context": 8192, "kld": 0., **least}]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "others.json"
            path.write_text(json.dumps(made))
            results = others.add(made_results(contexts=(2048,)), [path])
        names = [name for name, _ in plots.figures(results)]
        self.assertEqual([name for name in names if name.startswith("bytes")], ["bytes_2048", "bytes_4096"])
        with plots.matplotlib.rc_context(plots.STYLE):
            texts = [text.get_text() for axes in plots.over_bytes(results, (4096, "batch")).axes for text in axes.texts]
            self.assertEqual(sum(text.endswith("not measured") for text in texts), 1)
            plots.over_contexts(results, "batch")

    def test_many_rows_of_the_same_bytes_are_listed_beside_the_axes(self):
        results = few(made_results(contexts=(512,), needle=False))
        made = next(row for row in results["rows"] if row["role"] == "row")
        for number in range(plots.CROWD + 1):
            results["rows"].append(made | {
                "name": f"press:{number},keep=128", "role": "other", "tool": "press 1", "kv_bytes_per_token": 5760,
                "kld": 0.1 + 0.001 * number, "ppl_increase_percent": 10 + 0.1 * number})
        results["rows"].append(results["rows"][-1] | {"name": "press:none", "kld": 1e-12})
        with plots.matplotlib.rc_context(plots.STYLE):
            figure = plots.over_bytes(results, (512, "batch"))
            listed = [text.get_text() for axes in figure.axes for text in axes.texts
                      if text.get_text().startswith("press") and text.get_position()[0] > 1]
            self.expect_clear("bytes", figure)
        self.assertEqual(sorted(listed), sorted(2 * [f"press:{number},keep=128" for number in range(plots.CROWD + 1)]))

    def test_few_and_odd_results(self):
        only_control = made_results(contexts=(512,), needle=False)
        only_control["rows"] = [row for row in only_control["rows"] if row["role"] == "control"]
        single = made_results(contexts=(512,), count=1, needle=False)
        exact = made_results(contexts=(512,), needle=False)
        for row in exact["rows"]:
            row |= {"kld": -1e-7, "kld_se": 1e-7, "ppl_increase_percent": -0.3}
        with tempfile.TemporaryDirectory() as folder:
            for results in (only_control, single, exact):
                self.assertEqual(len(plots.draw(results, folder, formats=("svg",))), 2)


if __name__ == "__main__":
    unittest.main()
