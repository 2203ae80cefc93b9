"""ggml's conformance suite: Winnow claims every case of an operation that ggml's CPU backend supports and whose types
llama.cpp offers for a cache, and each that is run gives what the CPU backend gives.

All cases are claimed in each run. Which are computed: all of them, a part of them (--part 2/8), or a sample.
"""

import csv
import hashlib
import io
import math
import re
from collections import Counter, defaultdict

import llama_cpp
from llama_cpp import expect

OPERATIONS = ("FLASH_ATTN_EXT", "SET_ROWS")
ASSIGNMENT = re.compile(r"\w+=(?:\[[^\]]*\]|[^,]*)")
TYPES = re.compile(r"type(?:_KV?|_V|_src|_dst)?=(\w+)")  # older suites of SET_ROWS have one type
OF_CACHES = {"f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"}  # which Winnow stores

# A sample takes from all strata alike, by the hash of the parameters, so that it is the same everywhere.
STRATUM = ("type_K", "type_V", "hsk", "hsv", "mask", "sinks", "max_bias")
# Cases of more multiplications are left to the runs of all cases, here and where one head size has other settings.
MOST_MULTIPLICATIONS = 3e8


def parameters(case):
    given = dict(assignment.split("=", 1) for assignment in ASSIGNMENT.findall(case))
    if "type_KV" in given:  # older suites give keys and values one type
        given |= dict.fromkeys(("type_K", "type_V"), given["type_KV"])
    return given


def support(host, operation, backend):
    """[(parameters, supported)] in the order of the suite."""
    out, _, _ = host.run("test-backend-ops", "support", "-b", backend, "-o", operation, "--output", "csv", winnow=True)
    table = out[out.index('"backend_name"'):]
    rows = [row for row in csv.DictReader(io.StringIO(table)) if row["op_name"] == operation]
    expect(rows, f"test-backend-ops lists no case of {operation} for {backend}")
    return [(row["op_params"], row["supported"] == "1") for row in rows]


def claimed_cases(host, operation):
    """The cases that Winnow claims; fails unless these are all of types of caches that ggml's CPU backend supports."""
    of_cpu, of_winnow = support(host, operation, "CPU"), support(host, operation, "Winnow")
    expect([case for case, _ in of_cpu] == [case for case, _ in of_winnow], "the two lists of cases differ")
    claimed = [case for case, supported in of_winnow if supported]
    neither = Counter("/".join(TYPES.findall(case)) for (case, cpu), (_, winnow) in zip(of_cpu, of_winnow)
                      if not cpu and not winnow)
    print(f"{operation}: {len(of_cpu)} cases, {sum(cpu for _, cpu in of_cpu)} supported by ggml's CPU backend, "
          f"{len(claimed)} claimed")
    if neither:
        print(f"{operation}: {sum(neither.values())} cases that neither supports, by types: "
              + ", ".join(f"{types} {count}" for types, count in sorted(neither.items())))
    others = [case for case, cpu in of_cpu if cpu and not OF_CACHES.issuperset(TYPES.findall(case))]
    expect(not set(others) & set(claimed), "cases are claimed of types that Winnow does not store")
    print(f"{operation}: {len(others)} cases of other types are left to ggml's CPU backend")
    missing = sorted({case for case, cpu in of_cpu if cpu} - set(claimed) - set(others))
    expect(not missing, f"{len(missing)} cases that ggml's CPU backend supports are not claimed, the first: "
                        f"{missing[:3]}")
    return claimed


def multiplications(case):
    """Of an attention."""
    given = parameters(case)
    repeats = math.prod(map(int, given["nr23"].strip("[]").split(",")))
    heads, tokens, keys = int(given["nh"]) * repeats, int(given["nb"]), int(given["kv"])
    return heads * tokens * keys * (int(given["hsk"]) + int(given["hsv"]))


def by_hash(case):
    return hashlib.sha256(case.encode()).digest()


def sample(cases, fewest):
    """`fewest` cases, or all: of each stratum one, then of each a second, ...; and more until every value is there."""
    strata = defaultdict(set)
    for case in cases:
        if multiplications(case) <= MOST_MULTIPLICATIONS:
            given = parameters(case)
            strata[tuple(given[name] for name in STRATUM)].add(case)
    rank = {case: place for stratum in strata.values() for place, case in enumerate(sorted(stratum, key=by_hash))}
    chosen, seen = set(), set()
    for case in sorted(rank, key=lambda case: (rank[case], by_hash(case))):
        values = {(name, parameters(case)[name]) for name in STRATUM}
        if len(chosen) < fewest or not values <= seen:
            chosen.add(case)
            seen |= values
    print(f"sample: {len(chosen)} cases by hash, of {len(strata)} combinations of {', '.join(STRATUM)}, of the cases "
          f"with at most {MOST_MULTIPLICATIONS:.0e} multiplications")
    for name in STRATUM:
        values = Counter(parameters(case)[name] for case in chosen)
        print(f"sample: {name} " + ", ".join(f"{value} {count}" for value, count in values.most_common()))
    return chosen


def part(cases, number, parts):
    """The part with this number, from 1: whole groups of one type and head size, so that programs are shared."""
    groups = defaultdict(set)
    for case in cases:
        given = parameters(case)
        groups[given.get("type_K", given.get("type_dst")), given.get("hsk")].add(case)
    sizes = [0] * parts
    chosen = set()
    for key in sorted(groups, key=lambda key: (-sum(map(cost, groups[key])), key)):
        smallest = sizes.index(min(sizes))
        sizes[smallest] += sum(map(cost, groups[key]))
        if smallest == number - 1:
            chosen |= groups[key]
    return chosen


def cost(case):
    """What a case takes, in multiplications: the call itself is worth some as well."""
    return 2e8 + multiplications(case) if "hsk=" in case else 2e8


def expression(cases):
    """A regular expression that matches just these lists of parameters. Alternatives with the same rest are joined:
    the program's library limits how large an expression may become."""
    def joined(tails):
        branches = defaultdict(set)
        for head, *tail in tails:
            branches[head].add(tuple(tail))
        by_rest = defaultdict(list)
        for head, rest in branches.items():
            by_rest[joined(rest) if any(rest) else ""].append(re.escape(head).replace("\\-", "-"))
        options = []
        for rest, heads in sorted(by_rest.items()):
            head = heads[0] if len(heads) == 1 else f"({'|'.join(sorted(heads))})"
            options.append(f"{head},{rest}" if rest else head)
        return options[0] if len(options) == 1 else f"({'|'.join(options)})"

    return f"^{joined({tuple(ASSIGNMENT.findall(case)) for case in cases})}$"


def run(host, operation, claimed, chosen):
    """Computes the chosen cases, and fails unless each of them passes."""
    wanted = Counter(case for case in claimed if chosen is None or case in chosen)
    selection = [] if chosen is None else ["-p", expression(chosen)]
    # Cases that are not claimed cost nothing: they are passed over before anything is computed.
    out, err, report = host.run("test-backend-ops", "test", "-b", "Winnow", "-o", operation, *selection, winnow=True,
                                status=None)
    results = re.findall(rf"{operation}\((.*?)\): (?:\x1b\[[\d;]*m)?(OK|FAIL)", out + err)
    failed = [case for case, result in results if result == "FAIL"]
    expect(not failed, f"{len(failed)} cases failed, the first: {failed[:3]}")
    passed = Counter(case for case, _ in results)
    expect(passed == wanted, f"{passed.total()} cases passed of {wanted.total()} wanted, the first that differ: "
                             f"{sorted((wanted - passed) + (passed - wanted))[:3]}; the program ended with:\n"
                             f"{(out + err)[-1500:]}")
    # A case that stores no rows is no call.
    empty = sum(count for case, count in wanted.items() if case.endswith("r=1,v=1"))
    counted = 0
    if report is not None:
        counted = report["attention_calls"] + report["append_calls"]
    expect(counted == wanted.total() - empty,
           f"{wanted.total()} cases passed, {empty} of them without rows, but the plugin counted {counted} calls")
    print(f"{operation}: {passed.total()} of {len(claimed)} claimed cases computed, all pass on {report['device']} "
          f"({report['platform']}); {report['attention_calls']} attention and {report['append_calls']} append calls, "
          f"{empty} without rows; "
          f"{report['programs_built']} programs built, {report['programs_loaded']} loaded")


def test():
    parser = llama_cpp.parser(__doc__)
    parser.add_argument("--operation", choices=OPERATIONS, required=True)
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--sample", type=int, metavar="FEWEST", help="compute a sample of at least as many cases")
    choice.add_argument("--part", metavar="I/N", help="compute the I-th of N parts")
    options = parser.parse_args()
    host = llama_cpp.Host(options)
    claimed = claimed_cases(host, options.operation)
    chosen = None
    if options.sample is not None:
        chosen = sample(claimed, options.sample)
    elif options.part is not None:
        number, parts = map(int, options.part.split("/"))
        chosen = part(claimed, number, parts)
        print(f"part {number} of {parts}")
    run(host, options.operation, claimed, chosen)


llama_cpp.main(test)
