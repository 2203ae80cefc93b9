"""winnow-bench --compare: times that changed are told, what differs by itself is not, and other things are refused.

    compare_test.py WINNOW_BENCH WINNOW
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path


def report(*seconds, device="made up", read=(1e-3,)):
    """One row of decoding for each `seconds`, a tuple of the times of each repeat."""
    def run(at):
        rows = [{"group": group, "head_size": 64, "keys": 512, "variant": "made", "seconds": times[at % len(times)],
                 "read_seconds": read[at % len(read)], "times_ggml": 3.0} for group, times in enumerate(seconds, 1)]
        return {"sdpa_vector": rows, "steps": [{"config": "made", "kinds_seconds": [4e-5, 2e-5, 3e-5, 1e-3]}]}

    repeats = len(seconds[0])
    return {"device": device, "platform": "made up"} | (run(0) if repeats == 1 else {
        "repeats": [run(at) for at in range(repeats)]})


def compared(program, folder, before, after):
    """(status, what was printed)"""
    for name, content in (("before", before), ("after", after)):
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / name).write_text(text)
    done = subprocess.run([program, "--compare", folder / "before", "--from", folder / "after"], capture_output=True,
                          text=True)
    print(done.stdout + done.stderr)
    return done.returncode, done.stdout + done.stderr


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def main():
    program, winnow = sys.argv[1:]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def told(before, after):
            status, text = compared(program, folder, before, after)
            expect(status == 0, text)
            return text

        quiet = report((1.00e-4, 1.01e-4), (2.0e-4, 2.1e-4))
        expect("0 of 5 figures" in told(quiet, quiet), "the same differs from itself")
        text = told(quiet, report((1.10e-4, 1.12e-4), (2.0e-4, 2.1e-4)))
        expect("1 of 5 figures" in text and "+10.0" in text and "group=1" in text and "group=2" not in text, text)
        text = told(quiet, report((0.90e-4, 0.91e-4), (2.0e-4, 2.1e-4)))
        expect("-10.0" in text and "1 of 5" in text, text)
        expect("0 of 5" in told(quiet, report((1.02e-4, 1.03e-4), (2.09e-4, 2.2e-4))), "within noise")
        expect("0 of 5" in told(quiet, report((1.04e-4, 1.3e-4), (2.0e-4, 2.1e-4))), "a noisy time is no change")
        expect("0 of 5" in told(report((1e-4,), (2e-4,)), report((1.08e-4,), (2e-4,))), "one run each tells little")
        expect("1 of 5" in told(report((1e-4,), (2e-4,)), report((1.2e-4,), (2e-4,))), "a fifth is a change")
        text = told(quiet, report((1.00e-4, 1.01e-4), (2.0e-4, 2.1e-4), read=(2e-3,)))
        expect("limits of the machine" in text and "2 of 5" in text, text)
        text = told(quiet, report((1.00e-4, 1.01e-4), (2.0e-4, 2.1e-4), (3e-4, 3e-4)))
        expect(text.count("only now: ") == 2 and "group=3" in text and "only before" not in text, text)
        text = told(quiet, report((1.00e-4, 1.01e-4)))
        expect(text.count("only before: ") == 2, text)

        text = told(quiet | {"driver": "1", "winnow": "0.4"}, quiet | {"driver": "2", "winnow": "0.4", "date": "now"})
        expect('another driver: before "1", now "2"\n' in text and "winnow" not in text and "0 of 5" in text, text)
        expect("another" not in told(quiet | {"driver": "1"}, quiet), "an older report does not tell")
        with_scores = [quiet | {"repeats": [run | {"sdpa_vector": [row | {"scores_seconds": seconds}
                                                                  for row in run["sdpa_vector"]]}
                                            for run in quiet["repeats"]]} for seconds in (1.1e-4, 1.3e-4)]
        text = told(*with_scores)
        expect("2 of 7" in text and text.count("scores_seconds") == 2, f"handing out scores is a figure: {text}")

        for before, words in ((report((1e-4,), device="another"), 'another device: "another" and "made up"'),
                              (report((1e-4,)) | {"options": {"threads": 1}},
                               'another options: {"threads":1} and null'),
                              ([], "another device: null"),
                              ("{", "is not JSON"), ({"device": "made up", "platform": "made up"}, "it has no times"),
                              ({"device": "made up", "platform": "made up", "repeats": [{"a": [1]}]}, "no report")):
            status, text = compared(program, folder, before, quiet)
            expect(status == 1 and words in text, f"{words}: {status}, {text}")
        done = subprocess.run([program, "--compare", folder / "none"], capture_output=True, text=True)
        expect(done.returncode == 1 and f"cannot read {folder / 'none'}: No such file" in done.stderr, done.stderr)
        done = subprocess.run([program, "--from", folder / "after"], capture_output=True, text=True)
        expect(done.returncode != 0 and "--compare" in done.stderr, done.stderr)
        done = subprocess.run([program, "--filter", "nothing"], capture_output=True, text=True)
        expect(done.returncode == 1 and "sdpa_vector, sparse_v" in done.stderr, f"a filter without a match: {done}")
        options = [subprocess.run([*command, "--help"], capture_output=True, text=True, check=True).stdout.split("OPT")
                   for command in ([program], [winnow, "bench"])]
        expect(options[0][-1] == options[1][-1] and "--repeat" in options[0][-1], "winnow bench is something else")


main()
