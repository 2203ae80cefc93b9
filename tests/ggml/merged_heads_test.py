"""Appends of rows in which all heads of a token lie side by side, as llama.cpp stores them: for every type of cache
Winnow claims them, and computes what ggml's CPU backend does.

The rows of ggml's own suite have up to 256 elements; a model with 8 KV heads of 128 elements has rows of 1024.
"""

import re
from pathlib import Path

import llama_cpp
from llama_cpp import expect

TYPES = ("F16", "BF16", "Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0", "IQ4_NL")
SIZES = (576, 1024, 1056, 4096, 16384)  # elements of a row
TOKENS = 5


def numbers_of(header, enumeration, prefix):
    """{name: number} of an enumeration of ggml.h."""
    body = re.search(rf"enum {enumeration} \{{(.*?)\}};", header.read_text(encoding="utf-8"), re.DOTALL)[1]
    numbers, following = {}, 0
    for name, given in re.findall(rf"^\s*{prefix}(\w+)(?:\s*=\s*(\d+))?,", body, re.MULTILINE):
        numbers[name] = int(given) if given else following
        following = numbers[name] + 1
    return numbers


def cases(header):
    """One line for each append, as test-backend-ops reads it: every row of a cache is set once."""
    types = numbers_of(header, "ggml_type", "GGML_TYPE_")
    operation = numbers_of(header, "ggml_op", "GGML_OP_")["SET_ROWS"]
    for name in TYPES:
        for size in SIZES:
            rows = f"{types['F32']} {size} {TOKENS} 1 1 0 0 0 0"
            indices = f"{types['I64']} {TOKENS} 1 1 1 0 0 0 0"
            yield f"{operation} {types[name]} {size} {TOKENS} 1 1 0 2 {rows} {indices} {name.lower()}_{size}"


def test():
    parser = llama_cpp.parser(__doc__)
    parser.add_argument("--ggml-header", type=Path, required=True, help="ggml.h")
    options = parser.parse_args()
    host = llama_cpp.Host(options)
    wanted = list(cases(options.ggml_header))
    file = options.work / "merged_heads.txt"
    file.write_text("\n".join(wanted) + "\n", encoding="utf-8")
    # The program compares memory that it never set, for cases from a file: glibc is to hand out zeros.
    out, err, report = host.run("test-backend-ops", "test", "-b", "Winnow", "--test-file", file, winnow=True,
                                status=None, environment={"MALLOC_PERTURB_": "255"})
    results = dict(re.findall(r"SET_ROWS\(name=(\w+),.*\): (?:\x1b\[[\d;]*m)?(OK|FAIL|not supported)", out + err))
    expect(len(results) == len(wanted), f"{len(results)} results of {len(wanted)} appends:\n{(out + err)[-2000:]}")
    wrong = {name: result for name, result in results.items() if result != "OK"}
    expect(not wrong, f"{len(wrong)} of {len(wanted)} appends of merged heads: {wrong}")
    expect(report is not None and report["append_calls"] == len(wanted), f"the plugin counted otherwise: {report}")
    print(f"{len(wanted)} appends of rows of {SIZES} elements to {', '.join(TYPES)}: all as ggml's CPU backend on "
          f"{report['device']} ({report['platform']}), {report['programs_built']} programs built")


llama_cpp.main(test)
