"""WINNOW_PRESSURE: a cache of the policy hierarchical evicts below its budget when it is told of memory pressure, and
with "auto" when the control group that the process is in has little memory left.
"""

import contextlib
import subprocess
import sys

import control_group
import llama_cpp
import random_models
from llama_cpp import expect

CONTEXT = 1024
CHARACTERS = 400  # of the prompt, far below the budget, which is the whole context
KV = f"hierarchical:budget={CONTEXT}"
MIB = 1 << 20
LIMIT = 2000 * MIB
BALLAST = 1600 * MIB  # of which another process in the group has so much: pressure is .8 and more


def complete(host, options, pressure, group=None):
    """The cache's figures. group: the control group that the process is to be in."""
    arguments = llama_cpp.completion(options.model, 8, CONTEXT, "-f", options.prompt, "-ub", 64)
    _, _, report = host.run("llama-completion", *arguments, *llama_cpp.DEVICE, winnow=True, group=group,
                            environment={"WINNOW_KV": KV} | ({"WINNOW_PRESSURE": pressure} if pressure else {}))
    cache = llama_cpp.virtual_cache(report)
    print(f"WINNOW_PRESSURE={pressure or ''}{' in the group' if group else ''}: {cache['tokens_seen']} tokens seen, "
          f"{cache['evictions']} evictions")
    expect(cache["tokens_seen"] < CONTEXT / 2, f"the budget itself is near: {cache}")
    return cache


@contextlib.contextmanager
def ballast(group):
    """A process that has BALLAST bytes in the group."""
    holds = f"import sys\nhas = bytearray(b'x') * {BALLAST}\nprint('held', flush=True)\nsys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", holds], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                          preexec_fn=group.join) as process:
        expect(process.stdout.readline().strip() == "held", "no memory for the test")
        yield
        process.stdin.close()


def test():
    parser = llama_cpp.parser(__doc__, "text")
    parser.add_argument("--group", action="store_true", help="WINNOW_PRESSURE=auto in a control group with a limit")
    options = parser.parse_args()
    host = llama_cpp.Host(options)
    options.model = random_models.make("plain", options.work)
    options.prompt = llama_cpp.prompt_file(options, options.text.read_text(encoding="utf-8")[:CHARACTERS])
    if options.group:
        test_group(host, options)
        return
    expect(complete(host, options, None)["evictions"] == 0, "evictions without pressure")
    expect(complete(host, options, "0.5")["evictions"] == 0, "evictions under less than the trigger")
    expect(complete(host, options, "0.9")["evictions"] > 0, "no evictions under pressure")


def test_group(host, options):
    with control_group.limited(LIMIT) as group:
        if group is None:
            print("SKIPPED: WINNOW_PRESSURE=auto, because no control group can be made here")
            sys.exit(control_group.SKIPPED)
        expect(complete(host, options, None, group)["evictions"] == 0, "a group alone is no pressure")
        with ballast(group):
            expect(complete(host, options, "auto", group)["evictions"] > 0, "a full group is no pressure")


llama_cpp.main(test)
