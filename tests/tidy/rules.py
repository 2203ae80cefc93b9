"""The rules of the tree. A rule takes {path: text} and yields (path, complaint).

SAMPLES holds for each rule small trees that it has to complain about and one that it has to accept.
"""

import posixpath
import re
from pathlib import PurePosixPath

MAX_LINES = 500
MAX_HEADER_LINES = 600  # of a public header, which is read and shipped as one file
MAX_COLUMNS = 120
MAX_README_WORDS = 700
CODE = (".c", ".h", ".cpp", ".hpp", ".cl")


def in_folder(path, *folders):
    return any(path.startswith(folder + "/") for folder in folders)


def lines(text):
    return enumerate(text.splitlines(), start=1)


def without_comments(text):
    """The same text of C or C++ less its comments."""
    code = r'"(?:\\.|[^"\\\n])*"|(?<!\d)\'(?:\\.|[^\'\\\n])+\''
    return re.sub(rf"({code})|//[^\n]*|/\*.*?\*/", lambda match: match[1] or " ", text, flags=re.S)


def stems(tree):
    """One stem names kernel, launcher, test and benchmark, so that whoever finds one finds all four."""
    # Several kernels may carry out one operation, and then share its test and its benchmark: these have to name each of
    # them. What a comment of a benchmark names need not be measured. That the suite launches what it names is seen by
    # conformance.oclgrind.coverage.
    names = {"tests/conformance": "", "bench": ""}
    for path, text in tree.items():
        for folder in names:
            if in_folder(path, folder) and path.endswith(CODE):
                names[folder] += path.split("/")[-1] + "\n" + (without_comments(text) if folder == "bench" else text)
    for path in tree:
        match = re.fullmatch(r"kernels/(\w+)\.cl", path)
        if match is None:
            continue
        stem = match[1].removesuffix("_workgroup")  # a shape: the operation's launcher chooses it
        if f"backend/opencl/{stem}.cpp" not in tree:
            yield path, f"has no backend/opencl/{stem}.cpp"
        for folder, text in names.items():
            if not re.search(rf"\b{stem}(\b|_)", text):
                yield path, f"no file of {folder} names {stem}"


# Who may include what. A quoted include of a file beside the including one is always allowed; any other has to match
# `quoted`, and no include may match `never`.
CL_HEADERS = r"CL/.*"
PUBLIC = r"winnow(_cache|_opencl|_loader)?\.h"
SHARED = r"|(temporary_folder|saved_state)\.hpp"
LAYERS = [
    {"folder": "plugin_api", "quoted": PUBLIC, "never": CL_HEADERS},
    {"folder": "hosts/c", "quoted": PUBLIC, "never": CL_HEADERS},
    {"folder": "hosts/ggml", "quoted": PUBLIC + r"|ggml.*\.h", "never": CL_HEADERS},
    {"folder": "hosts/onnxruntime", "never": CL_HEADERS,
     "quoted": PUBLIC + r"|onnxruntime_c_api\.h|(cache_meaning|format_bits)\.hpp"},
    {"folder": "tests/conformance", "quoted": PUBLIC + SHARED + r"|abi\.h"},  # C checks that know the headers alone
    {"folder": "tests/faults", "quoted": PUBLIC + SHARED + r"|open_backend\.hpp"},
    {"folder": "tests/abi", "quoted": PUBLIC, "never": CL_HEADERS},
    {"folder": "lab", "never": CL_HEADERS, "quoted": PUBLIC + r"|(canonical_config|divergence)\.hpp"},
    {"folder": "tools", "never": CL_HEADERS,
     "quoted": PUBLIC + r"|(cache_meaning|canonical_config|format_bits|kv_rules|number_variables|open_backend)\.hpp"
               r"|(profile_file|report_with|whole_file)\.hpp"},
    {"folder": "backend/device", "quoted": r"winnow\.h|device/.*", "never": CL_HEADERS},
    {"folder": "backend/cache", "quoted": r"winnow_cache\.h|(cache|device)/.*", "never": CL_HEADERS},
    {"folder": "backend/api", "quoted": r"winnow(_cache|_opencl)?\.h|(device|cache|api)/.*", "never": CL_HEADERS},
    {"folder": "backend/reference", "quoted": r"winnow\.h|(device|reference)/.*", "never": CL_HEADERS},
    {"folder": "backend/opencl", "quoted": r"(?!reference/|api/|backend/|\.\./).*"},
    {"folder": "kernels", "quoted": r"(?!.*)"},
]


def layering(tree):
    """Dependencies go one way, downwards: what a folder does not include, it cannot come to need."""
    for path, text in tree.items():
        if not path.endswith(CODE):
            continue
        for layer in LAYERS:
            if not in_folder(path, layer["folder"]):
                continue
            for number, line in lines(text):
                match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
                if match is None:
                    continue
                quoted, name = match[1] == '"', match[2]
                own = quoted and posixpath.normpath(posixpath.join(posixpath.dirname(path), name)) in tree
                if own and name.startswith("../"):
                    yield path, f"line {number}: includes {name} by a relative path out of its folder"
                elif quoted and not own and not re.fullmatch(layer["quoted"], name):
                    yield path, f"line {number}: {layer['folder']} must not include {name}"
                elif "never" in layer and re.fullmatch(layer["never"], name):
                    yield path, f"line {number}: {layer['folder']} must not include {name}"


def naming(tree):
    """Files and folders are snake_case; capitals are for the pages that everybody looks for. A command that is named
    for llama.cpp has a hyphen, as llama.cpp's programs have."""
    fixed = {"CMakeLists.txt", "CMakePresets.json", "LICENSE", "winnow-config.cmake.in", "llama-cpp"}
    for path in tree:
        *folders, name = path.split("/")
        for part in [*folders, name]:
            if part in fixed or re.fullmatch(r"[A-Z_]+(\.md)?", part) or re.fullmatch(r"\.[a-z0-9-]+", part):
                continue
            if not re.fullmatch(r"[a-z0-9_]+(\.[a-z0-9]+)*", part):
                yield path, f"{part} is not snake_case"


def no_leftovers(tree):
    """A note to do something later belongs to the issues, where somebody reads it."""
    word = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
    for path, text in tree.items():
        for number, line in lines(text):
            if word.search(line):
                yield path, f"line {number}: {word.search(line)[0]}"


def length(tree):
    """A file longer than 500 lines is two things; tell them apart."""
    for path, text in tree.items():
        counts = path.endswith((*CODE, ".py", ".cmake", "CMakeLists.txt"))
        most = MAX_HEADER_LINES if in_folder(path, "plugin_api") else MAX_LINES
        if counts and len(text.splitlines()) > most:
            yield path, f"{len(text.splitlines())} lines, at most {most}"


def columns(tree):
    """clang-format holds C and C++ to 120 columns; this holds what it does not see. In Markdown tables and commands are
    as long as they are, and so is what has no space outside of inline code."""
    for path, text in tree.items():
        if path.endswith((".cl", ".py", ".cmake", ".md", "CMakeLists.txt")) or in_folder(path, "kernels"):
            for number, line in lines(text):
                fixed = path.endswith(".md") and (line.startswith(("|", "    ", "#", "<!--"))
                                                  or " " not in re.sub("`[^`]*`", "", line.strip()))
                if len(line) > MAX_COLUMNS and not fixed:
                    yield path, f"line {number}: {len(line)} columns, at most {MAX_COLUMNS}"


# Addresses that differ from machine to machine: a port or a password, a number or a name without a domain, a domain
# that only one network knows, and package registries, which each machine reaches in its own way.
OWN_NETWORK = re.compile(r"\d+(\.\d+){3}|\[.*|[^.]+|.*\.(local|localdomain|lan|home|corp|internal|intranet)")
REGISTRY = re.compile(r"(.*\.)?(pypi|pythonhosted|npmjs|crates|golang|rubygems|debian)\.(org|io)|"
                      r"(.*[.-])?(mirrors?|artifactory|nexus|registry|pypi|devpi)[.-].*")
LOOPBACK = ("127.0.0.1", "localhost")
MADE_UP = "lab/eval/calibration/"  # texts, whose machines do not exist


def is_own_address(host, port, path):
    """Whether a web address is of one machine or network alone, or of a package registry."""
    if host in LOOPBACK:
        return False
    return bool(port or "@" in host or OWN_NETWORK.fullmatch(host) or REGISTRY.fullmatch(host)
                or re.match(r"(/.*)?/simple(/|$)", path))


def no_machine(tree):
    """The tree knows no particular machine: no absolute path but the system's, no address of a network or registry."""
    place = re.compile(r"(?<![\w.~$})\]/*-])/(?:root|home|work|mnt|srv|opt|media)/\w")
    for path, text in tree.items():
        if path.startswith(MADE_UP):
            continue
        for number, line in lines(text):
            for word in place.findall(line):
                yield path, f"line {number}: speaks of {word}"
            for host, port, rest in re.findall(r"https?://(\[[^]\s]*\]|[\w.@-]+)(:\d+)?(/[\w./-]*)?", line):
                if is_own_address(host, port, rest):
                    yield path, f"line {number}: has the address {host}{port}{rest}"


def opens_with_comment(tree):
    """The first thing a file says is what it is for."""
    for path, text in tree.items():
        if path.endswith(CODE):
            pattern = r"\s*(/[/*])"
        elif path.endswith(".py"):
            pattern = r'(#!.*\n)?\s*(#|""")'
        elif path.endswith((".cmake", "CMakeLists.txt")) and "/" in path:
            pattern = r"\s*#"
        else:
            continue
        if not re.match(pattern, text):
            yield path, "does not open with a comment"


def silent_libraries(tree):
    """What is loaded into someone else's process neither prints nor ends it."""
    call = re.compile(r"(?<![\w.:>])(?:std::)?(printf|fprintf|vprintf|vfprintf|puts|putchar|perror|exit|_Exit|"
                      r"quick_exit|abort|terminate|atexit)\s*\(|\bstd::(cout|cerr|clog)\b")
    for path, text in tree.items():
        loaded = in_folder(path, "backend", "hosts/ggml", "hosts/onnxruntime")
        if path.endswith(CODE) and (loaded or path == "plugin_api/winnow_loader.c"):
            for number, line in lines(text):
                code = re.sub(r'"(\\.|[^"\\])*"', '""', line.split("//")[0])
                if call.search(code):
                    yield path, f"line {number}: calls {call.search(code)[0].rstrip('( ')}"


def include_once(tree):
    """C++ headers say #pragma once."""
    for path, text in tree.items():
        if path.endswith(".hpp") and not re.search(r"^#pragma once$", text, re.M):
            yield path, "has no #pragma once"


def test_names(tree):
    """Names of tests are snake_case, the suite's and the test's, so that filters are guessed right."""
    test = re.compile(r"^(?:TEST|TEST_F|TEST_P|INSTANTIATE_TEST_SUITE_P)\(\s*(\w*),\s*(\w*)", re.M)
    for path, text in tree.items():
        for name in (name for names in test.findall(text) if path.endswith(CODE) for name in names):
            if not re.fullmatch(r"[a-z0-9_]*", name):
                yield path, f"{name} is not snake_case"


def anchors(text):
    """Of the headings of a page: small letters and digits, hyphens for spaces, nothing of the rest."""
    headings = re.findall(r"^#+ +(.+)$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w -]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)).lower().replace(" ", "-")
            for heading in headings}


def links(tree):
    """A link of a page leads to a file of the tree and to a heading that it has."""
    known = {path: anchors(text) for path, text in tree.items() if path.endswith(".md")}
    places = {*tree, *(str(folder) for path in tree for folder in PurePosixPath(path).parents)}
    has_lab = "lab" in places  # the product's tree may be without it
    for path in known:
        for target in re.findall(r"\]\((?!\w+:)([^)\s]+)\)", tree[path]):
            name, _, anchor = target.partition("#")
            to = posixpath.normpath(posixpath.join(posixpath.dirname(path), name)) if name else path
            if in_folder(to, "lab") and not has_lab:
                continue
            if to not in places:
                yield path, f"links to {target}, which is not there"
            elif anchor and anchor not in known.get(to, ()):
                yield path, f"links to {target}, a heading that is not there"


def short_readme(tree):
    """README.md has at most 700 words without its tables and code: it invites, and pages below say more."""
    text = re.sub(r"^```.*?^```$", "", tree.get("README.md", ""), flags=re.M | re.S)
    words = sum(len(line.split()) for line in text.splitlines() if not re.match(r"\||    ", line))
    if words > MAX_README_WORDS:
        yield "README.md", f"{words} words, expected at most {MAX_README_WORDS}"


def casts(tree):
    """A conversion between numbers is a static_cast; braces make constants."""
    type_name = r"(?:u?int(?:8|16|32|64)_t|size_t|float|double|int|unsigned|char)"
    cast = re.compile(rf"(?<![\w<,]){type_name}\{{[^}}]*\b[a-z][^}}]*\}}|[=(,+*/&|?:-] *{type_name}\([a-z]\w*\)")
    for path, text in tree.items():
        if not path.endswith((".cpp", ".hpp")):
            continue
        for number, line in lines(without_comments(text)):
            for found in cast.findall(line):
                yield path, f"line {number}: {found} is a cast, expected static_cast"


# What may name the lab: the switch, what leaves it out, where `winnow eval` looks for it, who reads the whole tree.
NAMES_LAB = ("CMakeLists.txt", "pyproject.toml", "tools/CMakeLists.txt", "tools/doctor_test.py", "site/conf.py")


def apart_from_lab(tree):
    """The product is built, tested and installed without the lab: outside of ci/ and tests/ no file but a page names
    a file of lab/, its package of Python or its libraries."""
    name = re.compile(r"\blab/|[\"']lab[\"']|\(lab\)|\bwinnow_(eval|measure|divergence)\b")
    for path, text in tree.items():
        if path in NAMES_LAB or path.endswith(".md") or in_folder(path, "ci", "lab", "tests"):
            continue
        for number, line in lines(text):
            if name.search(line):
                yield path, f"line {number}: names {name.search(line)[0]}"


# For each rule, trees that it has to complain about (each of them), and one that it has to accept.
COMPLETE = {"kernels/f.cl": "", "backend/opencl/f.cpp": "",
            "tests/conformance/f_test.cpp": "", "bench/f_bench.cpp": ""}
SHARING = {path: text for path, text in COMPLETE.items() if path != "bench/f_bench.cpp"}
SAMPLES = {
    stems: ([*({key: "" for key in COMPLETE if key != gone} for gone in list(COMPLETE)[1:]),
             {**SHARING, "bench/rows_bench.cpp": '// "f" is not measured\n/* nor f */ print("//");'}],
            {**SHARING, "bench/rows_bench.cpp": 'print("// of", "f"); // and all'}),
    layering: ([{"hosts/c/a.c": '#include "device/device.hpp"\n'}, {"hosts/ggml/a.cpp": "#include <CL/cl.h>\n"},
                {"tests/conformance/a.cpp": '#include "opencl/sdpa.hpp"\n'},
                {"backend/api/a.cpp": '#include "opencl/sdpa.hpp"\n'},
                {"backend/device/a.hpp": "#include <CL/opencl.hpp>\n"},
                {"backend/cache/a.cpp": '#include "api/structs.hpp"\n'},
                {"backend/cache/a.hpp": "#include <CL/cl.h>\n"},
                {"backend/device/a.cpp": '#include "cache/plan/policy.hpp"\n'},
                {"backend/reference/a.cpp": '# include "opencl/sdpa.hpp"\n'},
                {"backend/opencl/a.cpp": '#include "reference/sdpa.hpp"\n'},
                {"backend/opencl/a.cpp": '#include "../reference/b.hpp"\n', "backend/reference/b.hpp": ""},
                {"kernels/a.cl": '#include "winnow.h"\n'}],
               {"hosts/c/a.c": '#include <stdio.h>\n#include "winnow.h"\n',
                "hosts/ggml/b.cpp": '#include "ggml-impl.h"\n',
                "backend/cache/b.cpp": '#include "cache/plan/policy.hpp"\n#include "device/format.hpp"\n',
                "backend/api/c.cpp": '#include "cache/cache.hpp"\n#include "device/device.hpp"\n#include "d.hpp"\n',
                "backend/api/d.hpp": "",
                "backend/opencl/e.cpp": '#include <CL/opencl.hpp>\n#include "sdpa_params.h"\n',
                "kernels/f.cl": '#include "g.h"\n', "kernels/g.h": ""}),
    naming: ([{"docs/someFile.md": ""}, {"Bench/a.cpp": ""}, {"tools/a-b.cpp": ""}],
             {"README.md": "", "a_b/c_1.hpp": "", ".clang-format": "", "tools/CMakeLists.txt": "", ".ci/run": ""}),
    links: ([{"a.md": "[b](b.md)"}, {"docs/a.md": "[b](../b.md#other-one)", "b.md": "# Another one"},
             {"a.md": "[a](#a)"}, {"a.md": "[a](b.c#a)", "b.c": ""}, {"a.md": "```\n# A\n```\n[a](#a)"}],
            {"docs/a.md": "[b](../b.md#the-one-and-others) [c](https:" + "//example.org/c.md) [d](../bench)\n"
                          "## [E](x.md) `f_g`\n[e](#e-f_g)",
             "docs/x.md": "", "b.md": "## The one, and others", "bench/a.cpp": ""}),
    no_leftovers: ([{"a.cpp": "// TO" + "DO: later"}, {"b.md": "FIX" + "ME"}], {"a.cpp": "todo_list"}),
    length: ([{"a.cpp": "\n" * (MAX_LINES + 1)}], {"a.cpp": "\n" * MAX_LINES, "b.md": "\n" * (MAX_LINES + 1)}),
    columns: ([{"a.cl": "x" * (MAX_COLUMNS + 1)}, {"a.md": "a " * MAX_COLUMNS}],
              {"a.cl": "x" * MAX_COLUMNS + "\ny", "a.md": f"| {'a ' * MAX_COLUMNS}|\n(`{'a ' * MAX_COLUMNS}`)."}),
    no_machine: ([{"a.md": "see /" + "home/x"}, *({"ci/setup": "https:" + address} for address in (
                      "//example.org/simple", "//example.org/root/pypi/simple/", "//example.org:8080/a", "//10.0.0.7/a",
                      "//" + "user@example.org/a", "//build7/a", "//packages.corp/a", "//py" + "pi.org/project/a",
                      "//files.pythonhosted.org/a", "//deb.debian.org/debian", "//mirror.example.org/a"))],
                 {"a.md": "/usr/lib, https:" + "//arxiv.org/abs/2306.14048, http:" + "//127.0.0.1:{port}",
                  "b.md": "[llama.cpp](https:" + "//github.com/ggml-org/llama.cpp)"}),
    opens_with_comment: ([{"kernels/a.cl": "__kernel void a() {}\n// a"}, {"a.hpp": "#pragma once\n// a"},
                          {"a.py": "import re\n"}, {"x/CMakeLists.txt": "project(a)"}],
                         {"a.cl": "// a\n", "a.h": "/* a */", "a.py": '"""A."""\n', "b.py": "#!/usr/bin/python3\n# b"}),
    silent_libraries: ([{"backend/api/a.cpp": "    std::abort();"}, {"backend/opencl/a.cpp": "printf(\"x\");"},
                        {"hosts/ggml/a.cpp": "std::cerr << 1;"}, {"plugin_api/winnow_loader.c": "exit(1);"}],
                       {"backend/api/a.cpp": 'snprintf(a, 1, "abort()"); // exit()\nobject.exit();',
                        "tools/a.cpp": 'puts("");'}),
    test_names: ([{"a.cpp": "TEST(cache, GoesOn) {"}, {"a.cpp": "TEST_F(Cache, goes_on) {"},
                  {"a.cpp": "INSTANTIATE_TEST_SUITE_P(Sizes, cache,"}, {"a.cpp": "TEST_P(\n    cache,\n    goesOn) {"}],
                 {"a.cpp": "TEST_F(cache, goes_on_2) {\nINSTANTIATE_TEST_SUITE_P(, cache, testing::Values(Case{}));",
                  "a.md": "TEST(A, B)"}),
    short_readme: ([{"README.md": "a " * (MAX_README_WORDS + 1)}],
                   {"README.md": f"| {'a ' * 999}|\n    b\n```c\n{'c ' * 999}\n```\n{'a ' * MAX_README_WORDS}",
                    "a.md": "a " * 999}),
    casts: ([{"a.cpp": "a = uint64_t{b} << 8;"}, {"a.hpp": "f(int64_t{b.size()})"}, {"a.cpp": "a = float(b);"},
             {"a.cpp": "a = int(b);"}],
            {"a.cpp": "uint32_t{WINNOW_TYPE_F16}, int64_t{1}, ~size_t{0} // int(a)\nstatic_cast<float>(b)\nint f(int);",
             "a.h": "(float)b", "b.cpp": "int a{b.size()};"}),
    apart_from_lab: ([{"backend/a.cpp": "// lab/a.md says it"}, {"tools/a.py": 'ROOT / "lab" / "eval"'},
                      {"bench/a.py": "from winnow_eval import report"}, {"tools/x/CMakeLists.txt": "include(lab)"},
                      {"hosts/CMakeLists.txt": "target_link_libraries(a PRIVATE winnow_divergence)"}],
                     {"CMakeLists.txt": "add_subdirectory(lab)", "ci/a.py": '"lab"', "tests/a.py": "import winnow_eval",
                      "lab/a.py": "# of lab/", "docs/a.md": "[b](../lab/b.md)", "a.cpp": '"label/"; // of the lab'}),
    include_once: ([{"a.hpp": "// a\n"}], {"a.hpp": "// a\n#pragma once\n", "a.h": "/* a */"}),
}
