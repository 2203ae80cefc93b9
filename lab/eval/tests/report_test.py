"""Tables and CSV from made-up results: the control run first, no number lost, what is missing shown as missing.

    report_test.py        needs requirements.txt
"""

import csv
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from made_results import made_configs, made_others, made_results, made_task  # noqa: E402
from winnow_eval import Failure, others, report  # noqa: E402


def cells(table):
    """The cells of a Markdown table without its ruler."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return [lines[0], *lines[2:]]


class Numbers(unittest.TestCase):
    def test_decimals_follow_the_error(self):
        self.assertEqual(report.measured(5.4321, 0.312, 2, 4, "+"), "+5.43 ± 0.31")
        self.assertEqual(report.measured(0.04123, 0.00084, 4, 6), "0.04123 ± 0.00084")
        self.assertEqual(report.measured(-0.89, 0.3, 2, 4, "+"), "-0.89 ± 0.30")

    def test_decimals_are_bounded(self):
        self.assertEqual(report.measured(0.5, 1e-9, 2, 4), "0.5000 ± 0.0000")
        self.assertEqual(report.measured(120.0, 35.0, 2, 4), "120.00 ± 35.00")

    def test_what_was_not_measured_is_a_dash(self):
        self.assertEqual(report.measured(1.5, None, 2, 3), "1.500 ± -")
        self.assertEqual(report.number(None, 1), "-")


class Tasks(unittest.TestCase):
    def test_only_policies_have_a_share_that_they_hold(self):
        results = made_results()
        lines = cells(report.task_table(results, "needle"))
        self.assertEqual(lines[0][-1], "of the facts resident, %")
        for line, result in zip(lines[1:], results["tasks"][0]["results"], strict=True):
            self.assertEqual(line[-1] != "-", bool(result["config"]["kv"]), line)
        for result in results["tasks"][0]["results"]:
            result.pop("resident", None)
        self.assertNotIn("of the facts resident, %", cells(report.task_table(results, "needle"))[0])

    def test_depths_have_a_column_each_and_add_up(self):
        results = made_results()
        task = results["tasks"][0]
        head, *lines = cells(report.depths_table(results, "needle"))
        self.assertEqual(head[1:], [f"at {depth:g} of the text" for depth in task["depths"]])
        for line, result in zip(lines, task["results"], strict=True):
            parts = [tuple(map(int, cell.split("/"))) for cell in line[1:]]
            self.assertEqual(tuple(map(sum, zip(*parts))), (result["retrieved"], result["trials"]))

    def test_all_tasks_stand_side_by_side(self):
        results = made_results()
        riddle = made_task("riddle", contexts=(512,), number=2)
        del riddle["results"][1]
        results["tasks"].append(riddle)
        lines = cells(report.tasks_table(results))
        self.assertEqual(lines[0], ["configuration", "needle", "riddle"])
        needle = {result["name"]: result for result in results["tasks"][0]["results"]}
        names = [name for name, *_ in made_configs()]
        self.assertEqual([line[0].split("`")[1] for line in lines[1:]], names)
        self.assertEqual([line[1] for line in lines[1:]], [f"{needle[name]['retrieved']}/45" for name in names])
        self.assertEqual([line[2] == "-" for line in lines[1:]], [index == 1 for index in range(len(names))])

    def test_what_the_full_cache_answers_of_each_task(self):
        results = made_results()
        results["tasks"].append(made_task("riddle", contexts=(512,), number=2))
        self.assertEqual(report.full_caches(results), "The full cache answered 45 of 48 in needle, 10 of 11 in riddle. "
                         "Only what it answered counts.\n")

    def test_one_line_for_each_cell(self):
        results = made_results()
        lines = list(csv.DictReader(io.StringIO(report.task_csv_text(results))))
        self.assertEqual(len(lines), 15 * len(list(made_configs())))
        self.assertEqual(sum(int(line["trials"]) for line in lines), 45 * len(list(made_configs())))
        self.assertEqual({bool(line["resident_share"]) for line in lines if line["name"].startswith("stream")}, {True})


class Others(unittest.TestCase):
    def setUp(self):
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.path = folder / "others.json"
        self.found = made_others()

    def add(self):
        self.path.write_text(json.dumps(self.found))
        return others.add(made_results(), [self.path])

    def test_they_stand_in_the_tables(self):
        results = self.add()
        lines = {line[0]: line for line in cells(report.quality_table(results, (2048, "batch")))}
        self.assertEqual(lines["`squeeze:keep=512`"][2], "0.250")
        self.assertEqual(lines["`squeeze:keep=512`"][-1], "8")
        lines = cells(report.task_table(results, "needle"))
        self.assertEqual(lines[-1], ["`squeeze:keep=512`", "30/44", "-", "-", "-", "-"])
        self.assertEqual(cells(report.task_table(results, "riddle"))[1:], [["`squeeze:keep=512`", "2/3"]])
        text = report.markdown(results)
        self.assertIn("| `squeeze:tight` | context 2048, decode | it does not decode |", text)
        self.assertIn("| `squeeze:keep=512` | chat | it does not chat |", text)
        self.assertIn("- squeeze 1.2: it is made up", text)
        self.assertIn("squeeze:keep=1024,other,squeeze 1.2,", report.csv_text(results))
        self.assertIn("riddle,squeeze:keep=512,,,2,3,", report.task_csv_text(results))

    def test_what_another_tool_took_stands_beside_its_answers(self):
        self.found["tasks"][0] |= {"peak_bytes": 100 * 1024 * 1024, "cache_bytes_at_most": 3 * 1024 * 512,
                                   "prompt_tokens_per_second": 80.25, "generation_tokens_per_second": 10.24}
        lines = cells(report.others_table(self.add(), "needle"))
        self.assertEqual(lines, [["configuration", "retrieved", "cache at most, MiB", "process at most, MiB",
                                  "prompt, tokens/s", "generation, tokens/s"],
                                 ["`squeeze:keep=512`", "30/44", "1.5", "100", "80.2", "10.2"]])
        lines = cells(report.others_table(self.add(), "riddle"))
        self.assertEqual(lines[1:], [["`squeeze:keep=512`", "2/3", "-", "-", "-", "-"]])

    def test_what_another_tool_answered_at_each_length(self):
        self.found["tasks"][0]["by_context"] = [{"context": 512, "retrieved": 30, "trials": 44}]
        self.found["tasks"][1]["by_context"] = [{"context": 900, "retrieved": 2, "trials": 3}]
        self.found["tasks"].append({"task": "riddle", "name": "squeeze:keep=9", "retrieved": 1, "trials": 4,
                                    "by_context": [{"context": 100, "retrieved": 1, "trials": 4}]})
        head, *_, line = cells(report.task_table(self.add(), "needle"))
        self.assertEqual({column: cell for column, cell in zip(head, line, strict=True) if cell != "-"},
                         {"configuration": "`squeeze:keep=512`", "retrieved": "30/44", "context 512": "30/44"})
        self.assertEqual(cells(report.task_table(self.add(), "riddle")),
                         [["configuration", "retrieved", "context 100", "context 900"],
                          ["`squeeze:keep=512`", "2/3", "-", "2/3"], ["`squeeze:keep=9`", "1/4", "1/4", "-"]])
        self.found["tasks"][1]["by_context"][0]["trials"] = 4
        with self.assertRaisesRegex(Failure, r"tasks\[1\]: trials of by_context do not add up to 3"):
            self.add()

    def test_what_is_left_out_is_a_dash(self):
        row = self.found["rows"][0]
        self.found["rows"] = [{key: row[key] for key in ("name", "context", "mode", "contexts", "kv_bytes_per_token",
                                                         "kld")}]
        line = cells(report.quality_table(self.add(), (2048, "batch")))[-1]
        self.assertEqual(line[4:6] + line[7:9], ["-", "- ± -", "-", "- ± -"])

    def test_the_results_are_not_changed(self):
        self.path.write_text(json.dumps(self.found))
        results = made_results()
        others.add(results, [self.path])
        self.assertEqual(results, made_results())

    def test_bad_files_are_refused(self):
        def change(**more):
            return lambda: self.found.update(more)

        def of_row(**more):
            return lambda: self.found["rows"][0].update(more)

        for break_it, words in (
                (change(format="something"), r"others.json, format: 'winnow-eval-rows' was expected"),
                (change(version=2), "version: 1 was expected"),
                (lambda: self.found.pop("tool"), "the whole: 'tool' is a required property"),
                (of_row(kld="much"), r"rows\[0\]"), (of_row(kld=-1), r"rows\[0\]"), (of_row(mode="fast"), r"rows\[0\]"),
                (of_row(refused="why"), r"rows\[0\]"),
                (change(model={"file": "other.gguf", "sha256": "2" * 64}), "is of other.gguf, sha256 2222222222222222"),
                (change(text={"sha256": "1" * 64, "part": "first"}), "part first"),
                (change(text=None), "of the text None"),
                (of_row(name="squeeze:keep=1024"), "two rows are called squeeze:keep=1024, context 2048, batch"),
                (lambda: self.found["tasks"].append(self.found["tasks"][0]),
                 "two answers are called squeeze:keep=512, needle"),
                (lambda: self.found["tasks"].append(self.found["tasks"][-1]),
                 "two refusals are called squeeze:keep=512, chat")):
            self.found = made_others()
            break_it()
            with self.assertRaisesRegex(Failure, words):
                self.add()
        self.path.write_text("{")
        with self.assertRaisesRegex(Failure, "is not JSON"):
            others.read(self.path)
        with self.assertRaisesRegex(Failure, "cannot read .*nowhere.json"):
            others.read(self.path.parent / "nowhere.json")

    def test_a_file_is_added_once(self):
        self.found["rows"] = []
        self.path.write_text(json.dumps(self.found))
        with self.assertRaisesRegex(Failure, "has the file been added before"):
            others.add(others.add(made_results(), [self.path]), [self.path])


class Pairs(unittest.TestCase):
    def row(self, name, size, klds, role="row"):
        return {"name": name, "role": role, "context": 512, "mode": "batch", "kv_bytes_per_token": size,
                "kld": sum(klds) / len(klds), "per_context": {"kld": klds}}

    def test_only_rows_of_the_same_bytes_are_compared(self):
        results = {"rows": [self.row("control", 100, [0, 0], "control"), self.row("bad", 101, [0.5, 0.1]),
                            self.row("good", 100, [0.1, 0.3]), self.row("small", 60, [9, 9])]}
        table = report.paired_table(results, (512, "batch"))
        self.assertEqual(cells(table)[1:], [["`bad` against `good`", "101", "+0.1000 ± 0.3000", "1/2"]])

    def test_a_row_without_its_contexts_is_compared_with_none(self):
        other = self.row("other", 100, [0.2], "other") | {"per_context": {"kld": []}}
        results = {"rows": [self.row("bad", 101, [0.5, 0.1]), self.row("good", 100, [0.1, 0.3]), other]}
        self.assertEqual([line[0] for line in cells(report.paired_table(results, (512, "batch")))[1:]],
                         ["`bad` against `good`"])


class Tables(unittest.TestCase):
    def setUp(self):
        self.results = made_results()

    def test_the_control_run_comes_first(self):
        self.results["rows"].reverse()
        for setting in report.settings_of(self.results):
            for table in (report.quality_table, report.cost_table):
                lines = cells(table(self.results, setting))
                self.assertEqual(lines[1][0], "control: `cpu:k=f16,v=f16`")
                self.assertEqual(len(lines), 1 + len(list(made_configs())))
                self.assertEqual({len(line) for line in lines}, {len(lines[0])})

    def test_a_row_says_what_was_measured(self):
        row = next(row for row in self.results["rows"]
                   if row["name"] == "inplace:k=q4_0,v=q4_0" and row["context"] == 2048)
        row |= {"kld": 0.0412, "kld_se": 0.0008, "ppl_increase_percent": 5.41, "ppl_increase_se": 0.31, "ppl": 21.575,
                "same_top_percent": 87.61, "same_top_se": 0.42, "kld_p99": 0.5}
        self.assertIn("| `inplace:k=q4_0,v=q4_0` | 6,480 | 0.281 | 12.7 | 21.575 | +5.41 ± 0.31 | 0.04120 ± 0.00080 | "
                      "0.5000 | 87.61 ± 0.42 |", report.quality_table(self.results, (2048, "batch")))

    def test_modes_have_tables_of_their_own(self):
        results = made_results(contexts=(512,), modes=("batch", "decode"))
        self.assertEqual(report.settings_of(results), [(512, "batch"), (512, "decode")])
        for row in results["rows"]:
            row["kld"] = 0.5 if row["mode"] == "decode" else 0.1
        for setting, kld, other in (((512, "batch"), "0.1", "0.5"), ((512, "decode"), "0.5", "0.1")):
            column = [line[6] for line in cells(report.quality_table(results, setting))[1:]]
            self.assertTrue(all(cell.startswith(kld) for cell in column), column)
        self.assertIn("Context 512, decoded:", report.markdown(results))

    def test_rows_that_were_decided_earlier_say_so(self):
        results = made_results(contexts=(512,))
        self.assertNotIn("contexts |", report.quality_table(results, (512, "batch")))
        results["rows"][3]["contexts"] = 8
        lines = cells(report.quality_table(results, (512, "batch")))
        self.assertEqual((lines[0][-1], [line[-1] for line in lines[1:]].count("8")), ("contexts", 1))
        self.assertEqual(report.counted_contexts(results["rows"]), "8 to 16")

    def test_one_context_has_no_errors(self):
        table = report.quality_table(made_results(count=1), (512, "batch"))
        self.assertIn("± -", table)

    def test_needles_add_up(self):
        results = {"rows": [], "tasks": [{
            "task": "needle", "contexts": [256, 512], "depths": [0, 1],
            "trials": [{"id": name, "context": context, "depth": depth, "questions": ["?"],
                        "full_cache_finds": [[known]]}
                       for name, context, depth, known in (("a", 256, 0, True), ("b", 512, 0, False),
                                                           ("c", 512, 1, True))],
            "results": [{"name": "x", "retrieved": 1, "trials": 2,
                         "answers": {"a": {"texts": ["1"], "found": [[False]]},
                                     "c": {"texts": ["2"], "found": [[True]]}}}]}]}
        self.assertEqual(cells(report.task_table(results, "needle"))[1], ["`x`", "1/2", "0/1", "1/1"])
        self.assertIn("1 of 1 at 256 tokens, 1 of 2 at 512 tokens", report.full_cache(results, "needle"))

    def test_everything_in_one_text(self):
        text = report.markdown(self.results)
        self.assertIn("| control: `cpu:k=f16,v=f16` | 45/45 | 15/15 |", text)
        for needed in ("    winnow eval --model made-up.gguf", "weights dequantized to F32", "its second half",
                       "Context 512, in batches:", "Context 2048, in batches:", "Task needle, made up needle:",
                       "inplace:k=f16,v=f16"):
            self.assertIn(needed, text)
        self.assertNotIn("Task needle", report.markdown(made_results(needle=False)))

    def test_a_long_command_is_broken(self):
        self.results["command"] += [f"inplace:k=q8_0,v={name}" for name in ("f16", "q8_0", "q5_1", "q4_0", "iq4_nl")]
        lines = report.command(self.results).splitlines()
        self.assertGreater(len(lines), 1)
        self.assertTrue(all(line.endswith(" \\") for line in lines[:-1]) and not lines[-1].endswith("\\"))
        self.assertLessEqual(max(map(len, lines)), 120)
        self.assertEqual(" ".join(line.strip().removesuffix(" \\") for line in lines), " ".join(
            self.results["command"]))


class Csv(unittest.TestCase):
    def test_every_row_with_its_numbers(self):
        results = made_results()
        with tempfile.TemporaryDirectory() as folder:
            paths = report.write(results, folder)
            self.assertEqual(sorted(path.name for path in paths), ["results.csv", "results.md", "tasks.csv"])
            text = (Path(folder) / "results.csv").read_text()
        lines = list(csv.DictReader(io.StringIO(text)))
        self.assertEqual(len(lines), len(results["rows"]))
        byname = {(line["name"], line["role"], int(line["context"])): line for line in lines}
        for row in results["rows"]:
            line = byname[row["name"], row["role"], row["context"]]
            for key in ("ppl", "kld", "kld_se", "kv_bytes_per_token", "same_top_percent", "attention_calls"):
                self.assertEqual(float(line[key]), row[key])
            self.assertEqual(line["k"], row["config"]["k"])
        policy = byname["stream:budget=1/4", "row", 512]
        self.assertEqual(policy["kv"], "stream:budget=1/4")
        self.assertEqual(byname["cpu:k=f16,v=f16", "control", 512]["generation_tokens_per_second"], "")


if __name__ == "__main__":
    unittest.main()
