"""Runs ci/quickstart on a few tokens, and gives it arguments that it has to refuse.

    quickstart_test.py SOURCE
"""

import json
import os
import re
import sys

from command import expect_refused, output_of, run

LOG = """
0.01 I common_perf_print: prompt eval time =   13210.00 ms /  3072 tokens (    4.30 ms per token,   232.55 tokens per s)
0.02 I common_perf_print:        eval time =    1000.00 ms /    31 runs   (   32.26 ms per token,    31.00 tokens per s)
"""[1:]


def test_timing(folder):
    """The two lines are told apart, though the one has the other's words."""
    sys.path.insert(0, folder)
    import processes

    prompt, generation = processes.timing(LOG, "prompt eval"), processes.timing(LOG, "eval")
    assert prompt[0] == 3072 and abs(prompt[1] - 232.55) < .01, prompt
    assert generation == (31, 31.0), generation
    assert processes.timing("", "eval") == (0, 0), "a time of nothing"


def expect_release_code():
    """What is measured beside Winnow is compiled as llama.cpp's users have it."""
    import parts

    unbuilt = run(f"{sys.argv[1]}/ci/quickstart", WINNOW_LLAMA_CPP_BUILD="/no/such")
    assert unbuilt.returncode == 1 and "/no/such has no program bin/llama-completion" in unbuilt.stderr
    if "WINNOW_LLAMA_CPP_BUILD" in os.environ:
        print("the levels of llama.cpp's code are not checked: it is that of WINNOW_LLAMA_CPP_BUILD", flush=True)
        return
    commands = json.loads((parts.llama_cpp_release_build("llama-completion") / "compile_commands.json").read_text())
    levels = {level for entry in commands for level in re.findall(r" -O\S*", entry["command"])}
    assert levels == {" -O3"}, levels


def model():
    import parts

    return str(parts.model())


def main():
    test_timing(f"{sys.argv[1]}/ci")
    quickstart = f"{sys.argv[1]}/ci/quickstart"
    assert "--tokens" in output_of(quickstart, "--help")
    for wrong, complaint in ((("--tokens", "0"), "--tokens"), (("--tokens", "many"), "--tokens"),
                             (("--prompt", ""), "--prompt"), (("--model", "/no/such.gguf"), "/no/such.gguf"),
                             (("--model", __file__), "GGUF"), (("--speed", "9"), "--speed"), (("--kv", ""), "--kv"),
                             (("--context", "0"), "--context"), (("--runs", "0"), "--runs"),
                             (("--no-budget", "--kv", "winnow"), "--no-budget")):
        expect_refused(quickstart, *wrong, complaint=complaint)

    expect_release_code()
    kv = "window:budget=32"
    shown = output_of(quickstart, "--tokens", "40", "--prompt", "The tide", "--context", "256", "--kv", kv)
    assert re.search(r"^device +\S", shown, re.M)
    layers, attention, appends = (int(re.search(pattern, shown, re.M)[1]) for pattern in
                                  (r"^layers +(\d+)$", r"^calls per layer +(\d+) of", r", (\d+) of append"))
    # The prompt and up to 39 more tokens, each a graph of its own, and whatever llama.cpp runs to warm up.
    assert layers == 30 and attention >= 16 and appends >= 16, (layers, attention, appends)
    assert re.search(r"^\[llama.cpp, f16 cache", shown, re.M), "no text"
    resident = re.search(r"^tokens +(\d+) in the context, of which ([\d.]+) are resident in a head$", shown, re.M)
    assert resident and int(resident[1]) >= 16 and 0 < float(resident[2]) <= 32, "the budget was not kept"
    rows = {name: [float(number) for number in rest.split()] for name, rest in
            re.findall(r"^(llama\.cpp, \S+ cache|Winnow.*?)((?: +[\d.]+){4})$", shown, re.M)}
    names = ["llama.cpp, f16 cache", "llama.cpp, q8_0 cache", "Winnow in place, f16 cache", f"Winnow, {kv}"]
    assert list(rows) == names, f"rows {list(rows)}"
    memory, cache = ([row[column] for row in rows.values()] for column in (0, 1))
    assert all(90 < each < 2000 for each in memory), memory  # the model alone is 92 MiB
    assert cache[0] == cache[2] > cache[1] > cache[3] > 0, cache
    build = os.environ.get("WINNOW_BUILD", f"{sys.argv[1]}/build/quickstart")
    assert "less than" in output_of(f"{build}/bin/winnow", "plan", "--model", model())
    first, later = map(float, re.search(r"took ([\d.]+) s, the next ([\d.]+) s", shown).groups())
    assert first > 0 and later > 0, (first, later)

    plain = output_of(quickstart, "--tokens", "2", "--no-budget", "--prompt", "The tide", WINNOW_BACKEND="reference",
                      WINNOW_DEVICE="")
    assert re.search(r"^device +reference$", plain, re.M), "not the reference backend"
    assert "budget" not in plain, "a budget that nobody asked for"


main()
