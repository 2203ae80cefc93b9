"""ggml's conformance suite: every case of an operation that Winnow claims gives what ggml's CPU backend gives.

Also, that it claims all cases whose tensors are of types that it stores: f32, f16 and bf16.
"""

import csv
import io
import re

import llama_cpp
from llama_cpp import expect

# What a case of another storage type has in its parameters.
PLAIN = r"(f32|f16|bf16)"
PLAIN_CASE = {
    "FLASH_ATTN_EXT": re.compile(rf"type_K={PLAIN},type_V={PLAIN},"),
    "SET_ROWS": re.compile(rf"type_src={PLAIN},type_dst={PLAIN},"),
}
# ggml's suite also copies no rows at all (a view of half of one row): nothing to compute, so not claimed.
EMPTY_CASE = {"SET_ROWS": re.compile(r"r=1,v=1$")}


def claimed_cases(host, operation):
    """(claimed, not claimed): lists of parameter strings."""
    out, _, _ = host.run("test-backend-ops", "support", "-b", "Winnow", "-o", operation, "--output", "csv", winnow=True)
    table = out[out.index('"backend_name"'):]
    rows = [row for row in csv.DictReader(io.StringIO(table)) if row["op_name"] == operation]
    expect(rows, f"test-backend-ops lists no case of {operation}")
    claimed = [row["op_params"] for row in rows if row["supported"] == "1"]
    return claimed, [row["op_params"] for row in rows if row["supported"] != "1"]


def test():
    parser = llama_cpp.parser(__doc__)
    parser.add_argument("--operation", choices=sorted(PLAIN_CASE), required=True)
    options = parser.parse_args()
    host = llama_cpp.Host(options)
    operation = options.operation

    claimed, refused = claimed_cases(host, operation)
    print(f"{operation}: {len(claimed)} cases claimed, {len(refused)} not claimed")
    expect(claimed, "nothing is claimed")
    empty = EMPTY_CASE.get(operation)
    missing = [case for case in refused
               if PLAIN_CASE[operation].search(case + ",") and not (empty and empty.search(case))]
    expect(not missing, f"{len(missing)} cases of f32, f16 and bf16 are not claimed, the first: {missing[:3]}")

    # Cases that are not claimed cost nothing: they are passed over before anything is computed.
    out, err, report = host.run("test-backend-ops", "test", "-b", "Winnow", "-o", operation, winnow=True, status=None)
    results = re.findall(rf"{operation}\((.*?)\): (?:\x1b\[[\d;]*m)?(OK|FAIL|not supported)", out + err)
    passed = sum(result == "OK" for _, result in results)
    failed = [case for case, result in results if result == "FAIL"]
    expect(not failed, f"{len(failed)} cases failed, the first: {failed[:3]}")
    expect(passed == len(claimed), f"{passed} cases passed of {len(claimed)} claimed; the program ended with:\n"
                                   f"{(out + err)[-1500:]}")
    counted = "attention_calls" if operation == "FLASH_ATTN_EXT" else "append_calls"
    expect(report is not None and report[counted] == passed,
           f"{passed} cases passed, but the plugin counted {report and report[counted]} calls")
    print(f"{operation}: all {passed} claimed cases pass on {report['device']} ({report['platform']})")


llama_cpp.main(test)
