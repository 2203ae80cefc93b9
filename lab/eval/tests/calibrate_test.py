"""`winnow eval` of what `winnow calibrate` made of a small text (tools/calibrate/tests/model_test.py): networks by
which a policy ranks, and codebooks by which recall signs its pages.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import measured
import numpy
from measured import expect

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "research"))

import recorded_rows  # noqa: E402

SIZES = ("--contexts", 256, "--count", 2, "--batch", 128, "--ubatch", 64, "--no-generation", "--no-pictures",
         "--weights", "as-is", "--mode", "decode", "--tasks", "none")
SIGNS = "winnow:budget=1/4,recall=host"
IN_BYTES = "winnow:budget=4M,recall=host"  # less than the signatures of a million tokens take


def check_recorded_rows(options):
    """Whole rows have the values, and all queries: each eighth one is what is recorded otherwise."""
    given = argparse.Namespace(llama_cpp=options.llama_cpp, plugin=options.plugin, model=options.model,
                               text=options.text, context=256, count=2)
    (few, *_), *_ = recorded_rows.record(given, "all")
    (whole, *_), *_ = recorded_rows.record(given, "all", is_whole=True)
    expect(few[1].size == 0 and whole[1].shape == few[0].shape, f"values of {few[1].shape} and {whole[1].shape}")
    expect(whole[2].shape[1] == 256 and numpy.array_equal(whole[2][:, ::8], few[2]), f"queries {whole[2].shape}")
    expect(numpy.array_equal(whole[0], few[0]) and whole[1].any(), "other keys, or no values")


def main():
    parser = measured.parser(__doc__)
    parser.add_argument("--calibrated", type=Path, required=True, help="folder of what winnow calibrate wrote")
    options = parser.parse_args()
    check_recorded_rows(options)
    with tempfile.TemporaryDirectory() as folder:
        work = measured.Eval(options, Path(folder) / "out")
        network, codebooks = options.calibrated / "network.json", options.calibrated / "codebooks.bin"
        codes = f"{SIGNS},signature=codes,codebook_file={codebooks}"
        learned = f"learned:budget=1/4,network_file={network}"
        work.good(*SIZES, SIGNS, IN_BYTES, codes, learned)
        rows = {row["name"]: row for row in work.results()["rows"] if row["mode"] == "decode"}
        expect(0 < rows[IN_BYTES]["kld"] < rows[SIGNS]["kld"], f"a budget of bytes loses {rows[IN_BYTES]['kld']}")
        expect(rows[codes]["files"].keys() == {str(codebooks)}, f"files {rows[codes].get('files')}")
        missed = {name: row["misses_percent"] for name, row in rows.items() if "misses_percent" in row}
        expect(missed.keys() == {SIGNS, IN_BYTES, codes}, f"misses of {missed.keys()}")
        expect(0 < missed[IN_BYTES] < missed[SIGNS] < 10, f"misses {missed}")
        expect(0 < rows[codes]["kld"] < 1, f"codes lose {rows[codes]['kld']}")
        expect(rows[codes]["per_context"] != rows[SIGNS]["per_context"], "codes pick what signs pick")
        short = Path(folder) / "short.bin"
        short.write_bytes(codebooks.read_bytes()[:-100])
        work = measured.Eval(options, Path(folder) / "refused")
        work.refused(["short.bin is cut short"], *SIZES, f"{SIGNS},signature=codes,codebook_file={short}")
        work.refused(["trained on contexts of 512 tokens, expected at least 768", "generation after 512 tokens"],
                     *SIZES, "--contexts", 512, "--generation", codes)
        status, _, err = measured.Eval(options, Path(folder) / "longer").run("--contexts", 1024, *SIZES[2:], codes)
        expect(status == 1 and "trained on contexts of 512 tokens, expected at least 1024" in err, f"{status}: {err}")


main()
