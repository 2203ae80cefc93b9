"""`winnow eval` with all that it needs: installs, fetches a model and llama.cpp, builds, and runs it.

    ci/eval --text FILE|book|code|wiki [--model FILE|smollm2|gemma|qwen] [arguments of winnow eval]...
    ci/eval calibrate|profile|allocate --text ...                  `winnow calibrate` and the others, likewise

`book` is the King James Bible, `code` the sources of Python's standard library, `smollm2` (which is taken if nothing is
said) SmolLM2-135M-Instruct, `gemma` Gemma 3 270M, `qwen` Qwen2.5-Coder-0.5B-Instruct: texts.py fetches them. `wiki` is
WikiText-2's raw test set, the file that WINNOW_WIKITEXT names. The other arguments are handed on; --llama-cpp and
--plugin may be left out. WINNOW_DEVICE chooses another OpenCL device than PoCL.
"""

import os
import sys
from pathlib import Path

import parts
import texts
from parts import Failure

# What each task starts of llama.cpp, beside the program by which its folder is known.
PROGRAMS = {"eval": "llama-bench", "allocate": "llama-bench", "calibrate": "llama-perplexity",
            "profile": "llama-perplexity"}
NOTHING_RUNS = ("--help", "--list-configs", "--list-tasks", "--from")


def given(option, arguments):
    return any(argument == option or argument.startswith(f"{option}=") for argument in arguments)


def values(option, arguments):
    """(where it stands, what stands before it there, value) of each value of an option; "" behind the last argument."""
    for at, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == option:
            yield (at, f"{option}=", value) if equals else (at + 1, "", "".join(arguments[at + 1:at + 2]))


def named(option, kinds, arguments):
    """The arguments with the path of what an option names."""
    changed = list(arguments)
    for at, before, value in values(option, arguments):
        changed[at:at + 1] = [f"{before}{texts.found(kinds, value)}"] if at < len(arguments) else []
    return changed


def check_files(option, kinds, arguments):
    """Before minutes of setting up: a file that is named has to be there."""
    for _, _, value in values(option, arguments):
        if value not in kinds and not Path(value).is_file():
            raise Failure(f"{option}: there is no file {value!r}; expected one, or {', '.join(kinds)}")


def main():
    arguments = sys.argv[1:]
    task = arguments.pop(0) if arguments[:1] and arguments[0] in PROGRAMS else "eval"
    if given("--help", arguments):
        print(f"{__doc__}\nWhat `winnow {task}` says:\n")
    if any(given(option, arguments) for option in NOTHING_RUNS):
        folder = ("tools", "calibrate") if task in ("calibrate", "profile") else ("lab", "eval")
        command = [sys.executable, "-B", parts.SOURCE.joinpath(*folder) / "launch.py", task, *arguments]
    elif not given("--text", arguments):
        raise Failure("--text: missing; expected a file with the text to measure on, or one of "
                      f"{', '.join(texts.TEXTS)} (see ci/eval --help)")
    else:
        check_files("--text", texts.TEXTS, arguments)
        check_files("--model", texts.MODELS, arguments)
        parts.setup("quickstart")
        if not given("--model", arguments):
            arguments = ["--model", "smollm2", *arguments]
        arguments = named("--text", texts.TEXTS, named("--model", texts.MODELS, arguments))
        if not given("--llama-cpp", arguments):
            programs = parts.llama_cpp_release_build("llama-completion", PROGRAMS[task]) / "bin"
            arguments = ["--llama-cpp", str(programs), *arguments]
        measures = task in ("eval", "allocate")
        build = parts.winnow_build("winnow", *(["winnow_measure"] if measures else []))
        if not given("--plugin", arguments):
            arguments = ["--plugin", str(build / "lib" / "libwinnow_ggml.so"), *arguments]
        command = [build / "bin" / "winnow", task, *arguments]
    parts.choose_device(os.environ)
    sys.stdout.flush()
    os.execv(command[0], [str(part) for part in command])


if __name__ == "__main__":
    parts.run_main("ci/eval", main)
