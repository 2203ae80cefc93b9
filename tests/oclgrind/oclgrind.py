"""Runs a program on Oclgrind, a simulator of an OpenCL 1.2 device that watches every access of a kernel.

    oclgrind.py run ICD LAYER COMMAND...              fails where the command does, or where Oclgrind reports anything
    oclgrind.py convicts ICD LAYER REPORT COMMAND...  fails unless `run` fails with a report that matches
    oclgrind.py coverage [--without REGEX] KERNELS LOG...
                                                      fails where the logs of these runs lack a kernel or a format

Oclgrind (ICD is its library, LAYER what mends a part of it, whole_stores.c) looks for races between work-groups,
accesses outside of buffers and variables, values that nobody has stored and that decide something, and calls of the API
that fail. It writes what it finds to stderr, where the programs write nothing: whatever appears there is a finding,
whether or not the results agree.

Versions from 19.10 on take element 11 of a vector that is shuffled for one without a value; 18.3 does not.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

CHECKS = {"OCLGRIND_DATA_RACES": "1", "OCLGRIND_UNINITIALIZED": "1", "OCLGRIND_CHECK_API": "1",
          "OCLGRIND_NUM_THREADS": "1", "OCLGRIND_MAX_ERRORS": "100",
          # It adds up the local memory of all kernels of a program: sdpa_vector's and sdpa_combine's.
          "OCLGRIND_LOCAL_MEM_SIZE": str(96 << 10)}
# Of these kernels every format is asked for on these sides.
SIDES = {("sdpa_vector_workgroup", "K_FORMAT"), ("sdpa_vector_workgroup", "V_FORMAT"),
         ("sdpa_vector", "K_FORMAT"), ("sdpa_vector", "V_FORMAT"), ("sdpa_prefill", "K_FORMAT"),
         ("sdpa_prefill", "V_FORMAT"), ("kv_append", "K_FORMAT"), ("kv_append", "V_FORMAT"),
         ("kv_requantize", "SRC_FORMAT"), ("kv_requantize", "DST_FORMAT"), ("kv_dequantize", "SRC_FORMAT"),
         ("slot_evict", "K_FORMAT"), ("slot_evict", "V_FORMAT")}
# Ways to build sdpa_vector that are kernels of their own.
BUILDS = ("-DSTEP=1", "-DSTEP=0", "-DSLOTS=1", "-DSLOTS=0", "-DSEGMENTS=1", "-DSEGMENTS=2", "-DLENGTHS=1")


def simulated(icd, layer, command):
    """Runs the command with Oclgrind as the only driver and without compiled programs; the status and the reports."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "oclgrind.icd").write_text(f"{icd}\n")
        environment = os.environ | CHECKS | {"OCL_ICD_VENDORS": folder, "XDG_CACHE_HOME": folder,
                                             "OPENCL_LAYERS": layer}
        environment.pop("WINNOW_DEVICE", None)
        result = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True)
    return result.returncode, result.stderr


def run(icd, layer, *command):
    status, reports = simulated(icd, layer, command)
    print(reports[:20000])
    assert status == 0, f"exit status {status}"
    assert not reports.strip(), f"Oclgrind reports:\n{reports[:2000]}"


def convicts(icd, layer, expected, *command):
    try:
        run(icd, layer, *command)
    except AssertionError as failure:
        assert re.search(expected, str(failure)), f"nothing that Oclgrind reports matches {expected!r}: {failure}"
        return
    raise AssertionError(f"Oclgrind reports nothing; expected {expected!r}")


def kernel_of(name, file):
    """A kernel's name; those for groups of many work-items are called like those for one."""
    return name + "_workgroup" if file.endswith("_workgroup.cl") else name


def expected_kernels(folder):
    entry = re.compile(r"__kernel\s+void\s+(\w+)\s*\(")
    # One that is in a header is of more than one file.
    return {kernel_of(name, path.name) for path in folder.iterdir() if path.suffix in (".cl", ".h")
            for name in entry.findall(path.read_text())} | {path.stem for path in folder.glob("*_workgroup.cl")}


def expected_formats(folder):
    return {name for path in folder.glob("format_*.h")
            for name in re.findall(r"^#define FORMAT_PACKED_(\w+) [01]$", path.read_text(), re.M)}


def coverage(*arguments):
    without, (folder, *logs) = (arguments[1], arguments[2:]) if arguments[0] == "--without" else ("", arguments)
    launched = [re.fullmatch(r"first launch of (\w+) of (\w+\.cl) \((.*)\)", line) for log in logs
                for line in Path(log).read_text().splitlines() if line.startswith("first launch of ")]
    assert launched and all(launched), "the logs name no kernels"
    kernels, formats = expected_kernels(Path(folder)), expected_formats(Path(folder))
    assert len(kernels) > 10 and len(formats) > 10, f"{folder} is not the folder of the kernels"
    kernels = {name for name in kernels if not re.fullmatch(without, name)}
    missing = sorted(kernels - {kernel_of(match[1], match[2]) for match in launched})
    found = {(kernel_of(match[1], match[2]), side, name) for match in launched
             for side, name in re.findall(r"-D(\w+_FORMAT)(?:_\d)?=(\w+)", match[3])}
    missing += sorted(f"{kernel} with {side} {name}" for kernel, side in SIDES for name in formats
                      if (kernel, side, name) not in found)
    missing += [f"{kernel} with {build}" for kernel in ("sdpa_vector", "sdpa_vector_workgroup") for build in BUILDS
                if not any(kernel_of(match[1], match[2]) == kernel and build in match[3].split() for match in launched)]
    print(f"{len(kernels)} kernels, {len(formats)} formats, {len(launched)} specialisations")
    assert not missing, "no run on Oclgrind had: " + "; ".join(missing)


if __name__ == "__main__":
    {"run": run, "convicts": convicts, "coverage": coverage}[sys.argv[1]](*sys.argv[2:])
