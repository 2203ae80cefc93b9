"""What the lab and `winnow plan` have in common: the losses that the program carries, and how configurations are read.

    winnow_plan_test.py WINNOW_PROGRAM
"""

import json
import subprocess
import sys
import unittest
from pathlib import Path

LAB = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(LAB / "eval"), str(LAB / "results"), str(LAB.parent / "tools")]

import gguf_files  # noqa: E402
import measured  # noqa: E402
from plan.planned_files import Files  # noqa: E402
from winnow_eval import Failure, configs  # noqa: E402

Files.program = sys.argv.pop(1)


class Losses(Files):
    def test_data_has_a_row_for_each_model_and_none_that_the_program_could_not_have(self):
        config = {"environment": {}, "kv": ""}
        row = {"name": "winnow", "role": "row", "mode": "decode", "config": config, "context": 2048, "contexts": 4,
               "kld": 0.01, "kld_se": 0.001, "ppl_increase_percent": 1.0, "ppl_increase_se": 0.1}
        found = {"command": ["winnow", "eval"], "text": {"file": "book.txt", "part": "second"},
                 "rows": [row, row | {"name": "kvpress:knorm", "role": "other"},
                          row | {"name": "winnow:of_a_file", "files": {"profile.txt": "0"}},
                          row | {"name": "winnow:under_pressure", "config": config | {"environment": {"X": "1"}}}]}
        for name, weights in (("small", "Q4_1"), ("large", "q4_k_m")):
            model = {"file": f"{name}-{weights}.gguf", "weights": "f32"}
            (self.folder / f"{name}.json").write_text(json.dumps(found | {"model": model}))
            found["rows"] = [row | {"kld": 0.02}]
        rows = measured.losses(self.folder)["rows"]
        self.assertEqual({(row["name"], row["model"], row["kld"]) for row in rows},
                         {("winnow", "small", 0.01), ("winnow", "large", 0.02)})

    def test_data_is_what_the_kept_results_give(self):
        done = subprocess.run([sys.executable, measured.__file__, "--check"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)


class Configurations(Files):
    def test_configurations_are_read_as_winnow_eval_reads_them(self):
        """Two programs have one grammar: each reads it before anything of the other has to run."""
        data = gguf_files.header(gguf_files.model())
        tables = [config for path in configs.FOLDER.glob("*.toml") for config in configs.load(path)]
        strings = [config.name for config in tables if not (config.environment or config.kv)]
        strings += [f"{where}:v={v},k={k}" for where in ("cpu", "inplace")
                    for k, v in zip(configs.CACHE_TYPES, reversed(configs.CACHE_TYPES))]
        strings += ["cpu", "inplace", "cpu:rotate=off", "inplace:rotate=on,v=q8_0", "winnow", "h2o:budget=512,k=turbo4"]
        _, rows = self.plan(data, "--context", 1024, *(word for text in strings for word in ("--kv", text)))
        self.assertLessEqual({configs.parse(text).name for text in strings}, rows.keys())
        for text in ("cpu:", "cpu:k", "cpu:k=", "inplace:k=q9", "cpu:x=1", "cpu:k=f16,", "cpu:v=f16,v=f16",
                     "cpu:rotate=1", "inplace:rotate=off,rotate=off", "cpu :k=f16", "", "[layers=2]none;winnow"):
            with self.assertRaises(Failure, msg=text):
                configs.parse(text)
            self.assertEqual(self.run_plan(data, "--context", 1024, "--kv", text)[0], 1, text)


if __name__ == "__main__":
    unittest.main()
