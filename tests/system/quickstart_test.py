"""Runs ci/quickstart on a few tokens, and gives it arguments that it has to refuse.

    quickstart_test.py SOURCE
"""

import re
import subprocess
import sys


def run(quickstart, *arguments):
    result = subprocess.run([quickstart, *arguments], capture_output=True, text=True)
    print(f"$ ci/quickstart {' '.join(arguments)}\n{result.stdout}{result.stderr}", flush=True)
    return result


def main():
    quickstart = f"{sys.argv[1]}/ci/quickstart"
    assert "--tokens" in run(quickstart, "--help").stdout
    for wrong, complaint in ((("--tokens", "0"), "--tokens"), (("--tokens", "many"), "--tokens"),
                             (("--prompt", ""), "--prompt"), (("--model", "/no/such.gguf"), "/no/such.gguf"),
                             (("--model", __file__), "GGUF"), (("--speed", "9"), "--speed")):
        refused = run(quickstart, *wrong)
        assert refused.returncode == 2 and complaint in refused.stderr, f"{wrong} was not refused with a reason"

    done = run(quickstart, "--tokens", "16", "--runs", "1", "--prompt", "The tide")
    assert done.returncode == 0, f"exit status {done.returncode}"
    assert re.search(r"^device +\S", done.stdout, re.M)
    layers, attention, appends = (int(re.search(pattern, done.stdout, re.M)[1]) for pattern in
                                  (r"^layers +(\d+)$", r"^calls per layer +(\d+) of", r", (\d+) of append"))
    # The prompt and 15 more tokens, each a graph of its own, and whatever llama.cpp runs to warm up.
    assert layers == 30 and attention >= 16 and appends >= 16, (layers, attention, appends)
    assert re.search(r"^The tide \S", done.stdout, re.M), "no text"


main()
