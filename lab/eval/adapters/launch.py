"""Starts an adapter in a virtual environment of its own (environment.py).

    launch.py kvpress|openvino|policy|codes ARGUMENTS...
"""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[2] / "tools" / "calibrate"))
sys.dont_write_bytecode = True

import environment  # noqa: E402

PROGRAMS = {"kvpress": "kvpress_rows.py", "openvino": "openvino_tasks.py", "policy": "policy_rows.py",
            "codes": "codes_rows.py"}
ENVIRONMENTS = {"codes": "policy"}  # of another adapter, which needs the same
FROM_SOURCE = ("policy", "codes")
WINNOWKV = HERE.parents[2] / "hosts" / "python"  # of this source tree


def requirements(name):
    return HERE / f"requirements_{ENVIRONMENTS.get(name, name)}.txt"


def main():
    environment.check_python("launch.py")
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in PROGRAMS:
        sys.exit(f"launch.py: \"{name}\", expected {', '.join(PROGRAMS)} and the arguments of that adapter")
    variables = os.environ | {"PYTHONPATH": f"{HERE.parent}:{WINNOWKV}", "PYTHONDONTWRITEBYTECODE": "1"}
    if name == "codes":  # numpy's threads compete with torch's
        variables.setdefault("OPENBLAS_NUM_THREADS", "1")
    if name in FROM_SOURCE and not WINNOWKV.is_dir():
        sys.exit(f"launch.py: {name} runs from a source tree only, because it needs hosts/python")
    program = str(environment.python(ENVIRONMENTS.get(name, name), requirements(name), name))
    os.execve(program, [program, str(HERE / PROGRAMS[name]), *sys.argv[2:]], variables)


if __name__ == "__main__":
    environment.run_main("launch.py", main)
