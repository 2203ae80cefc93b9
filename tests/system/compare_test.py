"""Runs ci/compare on a model that is next to nothing, and gives it arguments that it has to refuse.

    compare_test.py SOURCE
"""

import json
import re
import sys
import tempfile
from pathlib import Path

from command import expect_refused, output_of

CELLS = (512, 1024)
KINDS = ["llama.cpp, f16", "llama.cpp, q8_0", "in place, f16", "winnow:budget=1/4"]


def expect_all(shown, rows, picture):
    """A table for each context, with a row for each kind, and the same in the file and in the picture."""
    assert re.findall(r"^(\d+) cells, \d+ tokens of prompt$", shown, re.M) == [str(cells) for cells in CELLS]
    assert [row["kind"] for row in rows] == KINDS * len(CELLS), rows
    for cells in CELLS:
        own = [row for row in rows if row["context"] == cells]
        assert len({row["prompt_tokens"] for row in own}) == 1, "not the same prompt"
        assert .3 * cells < own[0]["prompt_tokens"] < .7 * cells, own[0]
        f16, q8_0, placed, kept = (row["cache_bytes"] for row in own)
        assert f16 == placed > q8_0 > kept > 0, own
        assert all(row["peak_bytes"] > 2**24 and row["prompt_tokens_per_second"] > 0 and row["tokens_per_second"] > 0
                   for row in own), own
        assert [row["scratch_bytes"] > 0 for row in own] == [False, False, False, True], own
        for row in own[2:]:  # llama.cpp alone may end before it can be asked
            assert sum(row["owners"].values()) > 2**24 and row["owners"]["Winnow"] > 0, row
    for row in rows:
        scratch = f"{row['scratch_bytes'] / 2**20:.1f}" if row["kind"].startswith("winnow") else "-"
        assert (f"| {row['kind']} | {row['peak_bytes'] / 2**20:.0f} | {row['cache_bytes'] / 2**20:.1f} | {scratch} |"
                in shown), row
    assert all(kind in picture for kind in KINDS), "the picture lacks a kind of cache"


def main():
    source = Path(sys.argv[1])
    compare = source / "ci" / "compare"
    sys.path.append(str(source / "tests" / "ggml"))
    import sized_models

    assert "--sized" in output_of(compare, "--help")
    for wrong, complaint in ((("--tokens", "1"), "--tokens"), (("--threads", "0"), "--threads"),
                             (("--runs", "0"), "--runs"), (("--fill", "1"), "--fill"), (("--contexts", "9"), "512"),
                             (("--fill", ".99", "--contexts", "512"), "--tokens"), (("--sized", "gpt-9"), "--sized"),
                             (("--model", "/no/such.gguf"), "/no/such.gguf"), (("--model", __file__), "GGUF"),
                             (("--plain", "--in-place", "--kv"), "--plain"), (("--plot", "table.txt"), ".svg"),
                             (("--plain", "f16,fa=no"), "fa=off"),
                             (("--json", "/no/such/folder.json"), "/no/such")):
        expect_refused(compare, *wrong, complaint=complaint)

    with tempfile.TemporaryDirectory() as folder:
        results, picture = Path(folder, "results.json"), Path(folder, "picture.svg")
        model = sized_models.make_thin("llama-3.2-1b", Path(folder))
        shown = output_of(compare, "--model", model, "--contexts", *CELLS, "--fill", ".5", "--tokens", "4",
                          "--plain", "f16", "q8_0", "--in-place", "f16", "--kv", KINDS[-1], "--owners",
                          "--json", results, "--plot", picture)
        expect_all(shown, json.loads(results.read_text()), picture.read_text())


main()
