"""What ci/llama-cpp makes of a tree and of the results of tests: programs, names and options that the tree lacks are
named, and are no failures; a program of Winnow's that cannot be built for another reason is one. What is no tree is
refused. llama.cpp is built again of a tree that a path names, and not of one that is kept.

    llama_cpp_test.py SOURCE
"""

import io
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

from command import run

RESULTS = """<testsuite>
<testcase name="ggml.rpc" status="run"><system-out>fine
not tested: two servers: this llama.cpp has one
not tested: two servers: this llama.cpp has one
fine</system-out></testcase>
<testcase name="ggml.generate" status="fail"><system-out>FAILED: the texts differ</system-out></testcase>
<testcase name="ggml.server_ways" status="fail"><system-out>FAILED: llama-server --port 1 ended:
error: invalid argument: --cache-reuse</system-out></testcase>
<testcase name="ggml.virtual_server" status="fail"><system-out>FAILED: llama-server --port 1 ended:
error: invalid argument: --cache</system-out></testcase>
<testcase name="ggml.virtual_rules" status="fail"><system-out>FAILED: the texts differ
error: invalid argument: --cache-reuse</system-out></testcase>
</testsuite>
"""
# What a build ended with, and the name that the tree lacks.
LOGS = {
    "a.cpp:1:2: error: \u2018LLAMA_NEWER\u2019 was not declared in this scope": "LLAMA_NEWER",
    "a.cpp:1:2: error: use of undeclared identifier 'llama_newer'": "llama_newer",
    "ninja: error: '/b/bin/libllama-common.so', needed by 'bin/a', missing and no known rule": "libllama-common.so",
    "a.cpp:1:2: error: too few arguments to function \u2018void llama_decode()\u2019": None,
    "a.cpp:1:2: error: \u2018llama_decode\u2019 is no type": None,
    "a.cpp:1:2: error: \u2018newer\u2019 was not declared in this scope": None,
}
PROGRAMS = {"tools/server": "set(TARGET llama-server)", "tools/rpc": "set(TARGET rpc-server)",
            "tests": "llama_build_and_test(test-backend-ops.cpp)"}


def write_tree(folder):
    for path, text in PROGRAMS.items():
        (folder / path).mkdir(parents=True)
        (folder / path / "CMakeLists.txt").write_text(text)
    (folder / "ggml" / "src").mkdir(parents=True)
    numbers = zip(("MAJOR", "MINOR", "PATCH"), (3, 4, 5))
    (folder / "ggml" / "CMakeLists.txt").write_text("\n".join(f"set(GGML_VERSION_{part} {number})"
                                                              for part, number in numbers))
    (folder / "ggml" / "src" / "ggml-backend-impl.h").write_text("#define GGML_BACKEND_API_VERSION 7\n")
    (folder / "include").mkdir()
    (folder / "include" / "llama.h").write_text("void llama_decode(void);\n")
    return folder


def check_builds(parts, tree, folder):
    """Of a tree that may have changed all programs are built each time, of one that is kept each is once."""
    commands = []
    parts.CACHE, parts.run = folder / "cache", lambda command, **_: commands.append(command[1])
    parts.llama_cpp_source = lambda release: tree
    for source, expected in ((tree, ["-S", "--build"] * 2), (None, ["-S", "--build"])):
        commands.clear()
        build = parts.CACHE / f"llama-cpp-build-{bool(source)}"
        build.mkdir(parents=True)
        for _ in range(2):
            assert parts.llama_cpp_build("llama-server", release=str(bool(source)), source=source) == build
        assert commands == expected, f"{source}: {commands}, expected {expected}"


def main():
    source = Path(sys.argv[1])
    refused = run(source / "ci" / "llama-cpp", "/no/such")
    assert refused.returncode == 1 and "/no/such is no source tree of llama.cpp" in refused.stderr
    assert "b11434" in refused.stderr, "what is known is not named"
    sys.path.insert(0, str(source / "ci"))
    import llama_cpp

    with tempfile.TemporaryDirectory() as folder:
        tree = write_tree(Path(folder) / "b1234")
        programs = llama_cpp.programs_of(tree)
        assert programs == ["llama-server", "rpc-server", "test-backend-ops"], programs
        lacking = llama_cpp.lacks(programs)
        assert "this llama.cpp has no llama-parallel" in lacking and not any("rpc" in line for line in lacking), lacking
        results = Path(folder) / "results.xml"
        results.write_text(RESULTS)
        program = Path(folder) / "llama-server"
        program.write_text("#!/bin/sh\necho '-c, --cache N   a size'\n")
        program.chmod(0o755)
        passed, absent = llama_cpp.read_results(results, program.parent)
        assert passed == {"rpc": True, "generate": False, "virtual_server": False, "virtual_rules": False}, passed
        assert absent == ["not two servers of rpc: this llama.cpp has one",
                          "not server_ways: llama-server of this llama.cpp has no --cache-reuse"], absent
        for log, expected in LOGS.items():
            assert llama_cpp.lacking(tree, log) == expected, f"{log}: {llama_cpp.lacking(tree, log)}"
        check_builds(llama_cpp.parts, tree, Path(folder))
        shown = io.StringIO()
        with redirect_stdout(shown):
            llama_cpp.show(tree.name, tree, {"text": ["generate"], "programs": ["rpc", "programs"], "server": []},
                           passed, absent)
    row = shown.getvalue().splitlines()[-1]
    assert row == f"| b1234 | - | 3.4.5 | 7 | fails: generate | 1 pass | - | {'; '.join(absent)} |", row


main()
