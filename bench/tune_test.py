"""winnow tune: what it writes, the backend reads; what else the file says stays, and what is no such file is refused.

    tune_test.py WINNOW
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path


def run(*command, **environment):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True,
                          env=os.environ | {"WINNOW_DEVICE": "Portable Computing Language"} | environment)
    print(done.stdout[-2000:] + done.stderr[-2000:])
    return done


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def main():
    winnow, = sys.argv[1:]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "winnow" / "tuning.json"
        file.parent.mkdir()
        other = {"device": "other", "platform": "made", "driver": "1", "date": "2026-01-01", "groups": 3}
        file.write_text(json.dumps({"winnow_tuning": 1, "devices": [other]}))
        tune = (winnow, "tune", "--seconds", 0.5, "--threads", 2)
        done = run(*tune, XDG_CONFIG_HOME=str(folder))
        expect(done.returncode == 0 and f"wrote {file}" in done.stdout, "it writes where the backend looks")
        expect(re.search(r"\[36/\d+\] .* s left", done.stderr), "progress is told")
        written = json.loads(file.read_text())
        expect(written["winnow_tuning"] == 1 and written["devices"][0] == other, "what is of other devices stays")
        mine = written["devices"][1:]
        expect(len(mine) == 2 and {each["platform"] for each in mine} == {"Portable Computing Language"},
               "contexts on the host's threads are on a device of their own")
        expect([path.name for path in file.parent.iterdir()] == [file.name], "nothing is left beside it")
        expect(run(*tune, XDG_CONFIG_HOME=str(folder)).returncode == 0, "again")
        expect(len(json.loads(file.read_text())["devices"]) == 3, "a device has one entry")

        info = (winnow, "info", "--backend", "opencl")
        expect(run(*info, WINNOW_TUNING=str(file)).returncode == 0, "the backend takes it")
        report = folder / "report.json"
        run(winnow, "bench", "--filter", "sdpa_vector", "--groups", 1, "--head-sizes", 64, "--keys", 64, "--seconds",
            .01, "--json", report, WINNOW_TUNING=str(file))
        expect(any(str(file) in line for line in json.loads(report.read_text())["log"]), "a report tells of the file")
        file.write_text("{}")
        refused = run(*info, WINNOW_TUNING=str(file))
        expect("expected 1; winnow tune writes it" in refused.stdout + refused.stderr, "what is wrong with it is told")
        refused = run(*tune, XDG_CONFIG_HOME=str(folder))
        expect(refused.returncode == 1 and "is no tuning file" in refused.stderr, "and it is not written over")
        expect(file.read_text() == "{}", "it stays")
        refused = run(*tune, "--out", folder / "winnow")
        expect(refused.returncode == 1 and "is no tuning file" in refused.stderr, "a folder is none")


main()
