"""`winnow eval` with all that it needs: installs, fetches a model and llama.cpp, builds, and runs it.

    ci/eval --text FILE [arguments of winnow eval]...

The arguments are handed on; --model, --llama-cpp and --plugin may be left out. WINNOW_DEVICE chooses another OpenCL
device than PoCL.
"""

import os
import sys

import parts
from parts import Failure

PROGRAMS = ("llama-perplexity", "llama-completion", "llama-bench")
NOTHING_RUNS = ("--help", "--list-configs", "--from")


def given(option, arguments):
    return any(argument == option or argument.startswith(f"{option}=") for argument in arguments)


def main():
    arguments = sys.argv[1:]
    if any(given(option, arguments) for option in NOTHING_RUNS):
        command = [sys.executable, "-B", parts.SOURCE / "tools" / "eval" / "launch.py", *arguments]
    elif not given("--text", arguments):
        raise Failure("--text: missing; expected a file with the text to measure on (see ci/eval --help)")
    else:
        parts.setup("quickstart")
        if not given("--model", arguments):
            arguments = ["--model", str(parts.model()), *arguments]
        if not given("--llama-cpp", arguments):
            arguments = ["--llama-cpp", str(parts.llama_cpp_build(*PROGRAMS) / "bin"), *arguments]
        build = parts.winnow_build("winnow")
        if not given("--plugin", arguments):
            arguments = ["--plugin", str(build / "lib" / "libwinnow_ggml.so"), *arguments]
        command = [build / "bin" / "winnow", "eval", *arguments]
    parts.choose_device(os.environ)
    sys.stdout.flush()
    os.execv(command[0], [str(part) for part in command])


if __name__ == "__main__":
    parts.run_main("ci/eval", main)
