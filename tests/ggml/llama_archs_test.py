"""llama.cpp's test of its model architectures, with Winnow as the device: small random models, whose logits have to be
those of ggml's CPU backend, and the same again after the model was saved and loaded.

What it prints says for every architecture who computed the attention and where the cache was. docs/models.md
has both, and a run fails where it sees something else, so that an architecture that leaves Winnow without a word is
found. The page has the lists of the newest version of ggml, and what differs with others.

Older programs know one architecture or all, and no device: they run once for each that --archs names.

    llama_archs_test.py --llama-cpp DIR --plugin libwinnow_ggml.so --preload libwinnow_load_backend.so --work DIR \\
        --page docs/models.md --write      makes the page's lists of this ggml anew, from a run in each mode
"""

import os
import re
import subprocess
import textwrap
from pathlib import Path

import llama_cpp
from llama_cpp import expect

SEED = 1  # of the weights and tokens, which the program draws
LOG_LEVEL = 4  # with the plugin's lines on each context
PACKED_ERROR = 0.1  # mean squared error of logits, relative, where keys and values are packed
# What WINNOW_KV is in each mode; with a budget the logits are others, and only where the cache is counts.
KV = {"in_place": "", "virtual": "none:k=f16,v=f16", "packed": "winnow", "budget": "winnow:budget=1/2"}
INEXACT = ("packed", "budget")
CONTEXT = "constructing llama_context"  # is in the log of every context
META = "ggml-backend-meta.cpp"  # which splits tensors over devices, and aborts where an operation is on none of them
COLUMNS = {"in_place": "without `WINNOW_KV`", "packed": "`winnow`", "budget": "`winnow:budget=1/2`"}
BEGIN, END = "<!-- begin architectures -->\n", "<!-- end architectures -->\n"
# Why a cache stays in place, in the words of the page: {what the log says: them}.
REASONS = {
    r"only flash attention": "{} uses it",
    r"written in parts of a token's row": "{} writes parts of a row",
    r"the mask is computed \((\w+)": "the mask of {} is computed",
    r"another backend than Winnow": "{} is another backend's",
}
NONE, VIRTUAL, IN_PLACE, BY_LLAMA_CPP = "no KV cache", "virtual", "in place", "llama.cpp attends"
NO_MODEL = "no model"  # with one version of ggml, and the newest one has it


class Architecture:
    """What the program printed of one."""

    def __init__(self):
        self.tests = []  # (squared errors, whether the model is the same after saving) of those that were not skipped
        self.attentions = 0
        self.caches = 0  # whether there are any
        self.virtual = 0  # caches
        self.stay = set()  # reasons, in the words of the page
        self.has_log = True  # which tells of caches

    def add(self, text):
        """A test and its log."""
        text = re.sub(r"\x1b\[[\d;]*m", "", text)
        # Newer ones have a third result: tokens and embeddings in one batch, as in several.
        result = re.search(r"\b(OK|FAIL|SKIP)\b(?: \(toggle\))? +\(([^)]*)\)\| +(OK|FAIL|SKIP)\|"
                           r"(?: *(?:OK|FAIL) +\(([^)]*)\)\|)?", text)
        skipped = re.search(r"\bSKIP +\| +SKIP\|", text)
        expect(result or skipped, f"no result in\n{text[-2000:]}")
        if skipped:
            return
        expect("(toggle)" not in text, f"no attention without a causal mask:\n{text[-2000:]}")
        self.tests.append(([float(error) for error in result.group(2, 4) if error], result[3] != "FAIL"))
        self.count(text)

    def count(self, text):
        """What the log says of caches and attention."""
        calls = re.findall(r"winnow: (\d+) attention and \d+ append calls", text)
        self.attentions += sum(int(count) for count in calls)
        self.virtual += len(re.findall(r"winnow: \S+ and \d+ layers in all \(", text))
        self.caches += len(re.findall(r"llama_kv_cache: size = ", text))
        stays = r"stays in place.*? in spite of WINNOW_KV=\S+: .*? \(([A-Z_]+)\): (.*)"
        for operation, said in re.findall(stays, text):
            words = [words for pattern, words in REASONS.items() if re.search(pattern, said)]
            expect(len(words) == 1, f"no words for a reason: {operation}: {said}")
            self.stay.add(words[0].format(f"`{operation}`"))

    def cell(self, mode):
        """What the page says of it."""
        if not self.caches:
            return NONE
        if mode == "in_place":
            return IN_PLACE if self.attentions else BY_LLAMA_CPP
        if not self.stay:
            return VIRTUAL
        return f"{'in part' if self.virtual else IN_PLACE}: {', '.join(sorted(self.stay))}"


def run(host, options, mode):
    """({name: Architecture}, the version of ggml)"""
    usage, _, _ = host.run("test-llama-archs", "-a", winnow=False, status=None)
    if "regex" in usage:
        found, version = run_newer(host, options, mode)
    else:
        expect(options.archs, "this test-llama-archs takes one architecture: name some with --archs")
        found = {}
        for name in options.archs:
            found[name], version = run_older(host, options, mode, name)
    expect(any(architecture.attentions for architecture in found.values()), "there was no attention call")
    return found, version


def start(host, options, mode, *arguments, stderr):
    preload = ":".join(filter(None, (options.preload, os.environ.get("WINNOW_TEST_PRELOAD"))))
    return host.start("test-llama-archs", "-s", SEED, *arguments, winnow=True, stdout=subprocess.PIPE, stderr=stderr,
                      environment=llama_cpp.kv_environment(KV[mode]) | {"LD_PRELOAD": preload})


def run_older(host, options, mode, name):
    """(Architecture, the version of ggml), of a program whose log has no place in the table."""
    with start(host, options, mode, "-v", "-a", name, stderr=subprocess.PIPE) as process:
        table, log = process.communicate()
    report = host.take_report()
    expect(report is not None, f"{name}: the plugin was not called: it wrote no report\n{log[-3000:]}")
    architecture = Architecture()
    architecture.count(log)
    table = re.sub(r"\x1b\[[\d;]*m", "", table)
    for device, result in re.findall(rf"^\| *{re.escape(name)}\|([^|\n]*)\| *(?:Dense|MoE)\|(.*)", table, re.M):
        if report["device"] not in device:
            continue
        error = re.search(r"[\d.]+e[-+]\d+|nan", result)
        expect(error and "FAIL" not in result or mode in INEXACT, f"{name}: {result}\n{log[-3000:]}")
        architecture.tests.append(([float(error[0])], True))
        if "(" not in result:  # around the error, where there is a second result
            llama_cpp.not_tested("saved models", "test-llama-archs of this llama.cpp saves none")
    if process.returncode < 0 and META in log:
        llama_cpp.not_tested("experts", "test-llama-archs of this llama.cpp takes a device Meta, too, which ends it")
    else:
        expect(process.returncode in (0, 1), f"{name}: ended with {process.returncode}:\n{log[-3000:]}")
    architecture.has_log = CONTEXT in log
    expect(architecture.tests, f"{name}: no result on {report['device']}:\n{table}\n{log[-3000:]}")
    if not architecture.has_log:
        architecture.attentions = report["attention_calls"]
        errors = [error for its, _ in architecture.tests for error in its]
        expect(max(errors) <= PACKED_ERROR or mode == "budget", f"{name}: squared errors of {errors}")
        print(f"{name}: squared errors of {errors}, {architecture.attentions} attention calls")
        llama_cpp.not_tested("the place of caches", "test-llama-archs of this llama.cpp shows no log")
    else:
        check({name: architecture}, report, mode)
    return architecture, report["ggml_version"]


def run_newer(host, options, mode):
    """The same as run(), of a program that runs all on a device."""
    arguments = ["-b", "Winnow", "-v", LOG_LEVEL]
    if options.archs:
        arguments += ["-a", f"^({'|'.join(options.archs)})$"]
    with start(host, options, mode, *arguments, stderr=subprocess.STDOUT) as process:
        printed, _ = process.communicate()
    report = host.take_report()
    summary = re.search(r"Summary: .*", printed)
    ended = f"{' '.join(process.args)}\nended with status {process.returncode}"
    expect(summary, f"{ended}:\n{printed[-3000:]}")
    print(f"{mode}: {ended}, {summary[0]}", flush=True)
    expect(process.returncode == 0 or mode in INEXACT, f"some failed:\n{failures(printed)}")
    expect(report is not None, "the plugin was not called: it wrote no report")
    found = {}
    # A line of the table begins, then comes the log of the test, then the line's end.
    for name, text in re.findall(r"^\| *([\w.-]+)\|[^|\n]*\| *(?:Dense|MoE)\|(.*?)(?=^\|(?! *[-+])|^Summary: )",
                                 printed, re.M | re.S):
        found.setdefault(name, Architecture()).add(text)
    check(found, report, mode)
    return found, report["ggml_version"]


def failures(text):
    lines = [line for line in text.splitlines() if "FAIL" in line or " E " in line]
    return "\n".join(lines) or text[-3000:]


def check(found, report, mode):
    """What holds of every architecture: the report says the same as the log, and the logits are near."""
    virtual = sum(architecture.virtual for architecture in found.values())
    expect(len(report["caches"]) == virtual, f"{len(report['caches'])} caches in the report, {virtual} in the log")
    stay = any(architecture.stay for architecture in found.values())
    expect(bool(report["in_place"]) == stay, f"the report and the log differ: {report['in_place']}")
    expect(report["attention_calls"] == sum(architecture.attentions for architecture in found.values()),
           f"{report['attention_calls']} attention calls in the report")
    if mode == "in_place":
        expect(report["sdpa_calls"] == report["attention_calls"], "the plugin and Winnow count differently")
    tested = {name: architecture for name, architecture in found.items() if architecture.tests}
    print(f"{sum(len(architecture.tests) for architecture in tested.values())} tests of {len(tested)} architectures")
    for name, architecture in tested.items():
        has_cache, is_kept = architecture.caches > 0, mode != "in_place" and not architecture.stay
        expect(not has_cache or not is_kept or architecture.attentions, f"{name}: no attention over a virtual cache")
        expect(has_cache or not architecture.attentions, f"{name}: attentions without a cache")
    errors = {name: sum((its for its, _ in architecture.tests), []) for name, architecture in tested.items()}
    unknown = [name for name, its in errors.items() if any(error != error for error in its)]
    expect(not unknown, f"logits that are not a number: {unknown}")
    errors = {name: max(its) for name, its in errors.items()}
    worst = max(errors, key=errors.get)
    print(f"largest squared error of logits, relative: {errors[worst]:.2e} ({worst})")
    expect(all(same for architecture in tested.values() for _, same in architecture.tests), "saved models differ")
    expect(mode != "packed" or errors[worst] <= PACKED_ERROR, f"expected at most {PACKED_ERROR}")


def list_of(names):
    return ", ".join(f"`{name}`" for name in sorted(names))


def table(cells):
    return "\n".join([f"| architecture | {' | '.join(COLUMNS.values())} |", "|---" * (1 + len(COLUMNS)) + "|",
                      *(f"| `{name}` | {' | '.join(its[mode] for mode in COLUMNS)} |"
                        for name, its in sorted(cells.items()))])


def newest(page):
    return max(page, key=lambda version: [int(part) for part in version.split(".")])


def differences(cells, base):
    """What an older version has other than base."""
    missing = dict.fromkeys(COLUMNS, NO_MODEL)
    return {name: cells.get(name, missing) for name in set(cells) | set(base) if cells.get(name) != base.get(name)}


def lists(page, skipped):
    """The lists of the page: page is {version of ggml: {name: {mode: cell}}}, for the modes of COLUMNS."""
    version = newest(page)
    cells = page[version]
    virtual, none = ([name for name, its in cells.items() if its == dict(zip(COLUMNS, wanted))]
                     for wanted in ((IN_PLACE, VIRTUAL, VIRTUAL), (NONE, NONE, NONE)))
    rest = {name: its for name, its in cells.items() if name not in virtual + none}
    paragraphs = [
        f"**With ggml {version}** there are {len(cells)} architectures.",
        f"**Virtual** ({len(virtual)}); without `WINNOW_KV` Winnow attends to llama.cpp's own cache: "
        f"{list_of(virtual)}.",
        f"**No KV cache** ({len(none)}): {list_of(none)}.",
        f"**In place, all or in part** ({len(rest)}):",
        table(rest),
        f"**Not tested** ({len(skipped)}), because llama.cpp's test program makes no model of these: "
        f"{list_of(skipped)}.",
    ]
    for older in sorted(set(page) - {version}):
        other = differences(page[older], cells)
        paragraphs += [f"**With ggml {older}** these differ:", table(other)] if other else [
            f"**With ggml {older}** nothing differs."]
    fill = textwrap.TextWrapper(120, break_on_hyphens=False, break_long_words=False).fill
    wrapped = [text if text.startswith("|") else fill(text) for text in paragraphs]
    return "\n" + "\n\n".join(wrapped) + "\n\n"


def read_table(text):
    return {name: dict(zip(COLUMNS, rest.split(" | "))) for name, rest in
            re.findall(r"^\| `([\w.-]+)` \| (.*) \|$", text, re.M)}


def read_lists(text):
    """{name: {mode: cell}} of the newest version."""
    cells = read_table(text)
    for title, wanted in (("Virtual", (IN_PLACE, VIRTUAL, VIRTUAL)), ("No KV cache", (NONE,) * 3)):
        paragraph = re.search(rf"^\*\*{title}\*\*.*?:\s(`.*?`)\.\n\n", text, re.M | re.S)
        expect(paragraph, f"the page does not say which: {title}")
        cells |= {name: dict(zip(COLUMNS, wanted)) for name in re.findall(r"`([^`]+)`", paragraph[1])}
    return cells


def read_page(page):
    """({version of ggml: {name: {mode: cell}}}, names of which the newest has no model)"""
    text = page.read_text(encoding="utf-8")
    expect(BEGIN in text and END in text, f"{page} has no {BEGIN.strip()} and {END.strip()}")
    text = text.split(BEGIN)[1].split(END)[0]
    _, version, base, *others = re.split(r"^\*\*With ggml ([\d.]+)\*\*", text, flags=re.M)
    versions = {version: read_lists(base)}
    for older, differing in zip(others[::2], others[1::2]):
        cells = versions[version] | read_table(differing)
        versions[older] = {name: its for name, its in cells.items() if NO_MODEL not in its.values()}
    skipped = re.search(r"^\*\*Not tested\*\*.*?:\s(.*?)\.\n", base, re.M | re.S)
    return versions, re.findall(r"`([^`]+)`", skipped[1])


def compare(cells, found, options):
    """The page says of each architecture what was seen."""
    column = "packed" if options.mode == "virtual" else options.mode
    tested = {name: architecture for name, architecture in found.items() if architecture.tests}
    expect(not options.archs or set(tested) == set(options.archs), f"expected {options.archs}, found {sorted(tested)}")
    seen = {name: architecture.cell(options.mode) for name, architecture in tested.items() if architecture.has_log}
    others = [f"{name}: {cell}, and the page says {cells[name][column] if name in cells else 'nothing'}"
              for name, cell in seen.items() if cells.get(name, {}).get(column) != cell]
    expect(not others, f"{options.page} does not say what was seen:\n" + "\n".join(others))


def write(host, options):
    page, skipped = read_page(options.page)
    cells = {}
    for mode in COLUMNS:
        found, version = run(host, options, mode)
        for name, architecture in found.items():
            if architecture.tests:
                cells.setdefault(name, {})[mode] = architecture.cell(mode)
    page[version] = cells
    if version == newest(page):
        skipped = [name for name in found if name not in cells]
    text = options.page.read_text(encoding="utf-8")
    options.page.write_text(text.split(BEGIN)[0] + BEGIN + lists(page, skipped) + END + text.split(END)[1],
                            encoding="utf-8")


def test():
    parser = llama_cpp.parser(__doc__)
    parser.add_argument("--preload", required=True, help="the library that loads the plugin into the program")
    parser.add_argument("--page", type=Path, required=True, help="docs/models.md")
    parser.add_argument("--archs", nargs="*", help="the architectures; by default all")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--mode", choices=KV, help="the run that is compared with the page")
    what.add_argument("--write", action="store_true", help="make the lists of the page instead")
    options = parser.parse_args()
    host = llama_cpp.Host(options)
    if options.write:
        write(host, options)
        return
    page, _ = read_page(options.page)
    found, version = run(host, options, options.mode)
    if version not in page:
        print(f"{options.page} says nothing of ggml {version}: compared with ggml {newest(page)}")
    cells = page.get(version, page[newest(page)])
    compare(cells, found, options)
    if not options.archs:
        tested = {name for name, architecture in found.items() if architecture.tests}
        expect(set(cells) == tested, f"the page has others: {sorted(set(cells) ^ tested)}")


llama_cpp.main(test)
