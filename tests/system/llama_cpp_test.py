"""What ci/llama-cpp makes of a tree and of the results of tests: programs that the tree lacks and options that its
programs lack are named, and are no failures. What is no tree is refused.

    llama_cpp_test.py SOURCE
"""

import io
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

from command import run

RESULTS = """<testsuite>
<testcase name="ggml.rpc" status="run"><system-out>fine</system-out></testcase>
<testcase name="ggml.generate" status="fail"><system-out>FAILED: the texts differ</system-out></testcase>
<testcase name="ggml.server_ways" status="fail"><system-out>
error: invalid argument: --cache-reuse</system-out></testcase>
</testsuite>
"""
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
    return folder


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
        passed, absent = llama_cpp.read_results(results)
        assert passed == {"rpc": True, "generate": False}, passed
        assert absent == ["not server_ways: its program has no --cache-reuse"], absent
        shown = io.StringIO()
        with redirect_stdout(shown):
            llama_cpp.show(tree.name, tree, {"text": ["generate"], "programs": ["rpc", "programs"], "server": []},
                           passed, absent)
    row = shown.getvalue().splitlines()[-1]
    assert row == f"| b1234 | - | 3.4.5 | 7 | fails: generate | 1 pass | - | {absent[0]} |", row


main()
