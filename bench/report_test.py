"""winnow-bench: what a report of --json says of machine and date, rows of several formats, variants and devices, and
the limits that each is held against.

    report_test.py WINNOW_BENCH [GPU_LAYER]
"""

import ctypes
import datetime
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

POCL = "Portable Computing Language"
SMALL = ("--groups", 2, "--head-sizes", 64, "--keys", 128, "--kv-heads", 1, "--seconds", .01)


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def pocl_library():
    """The path of PoCL's library, which the ICD loader has opened."""
    ctypes.CDLL("libOpenCL.so.1").clGetPlatformIDs(0, None, ctypes.byref(ctypes.c_uint()))
    return re.search(r"/\S*/libpocl\.so\S*", Path("/proc/self/maps").read_text())[0]


def main():
    program, gpu_layer = sys.argv[1], "".join(sys.argv[2:])
    with tempfile.TemporaryDirectory() as name:
        file = Path(name, "report.json")

        def run(*options, threads=1, **environment):
            command = [program, *SMALL, *options, "--threads", threads, "--json", file]
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True,
                                  env=os.environ | environment)
            print(done.stdout[-3000:] + done.stderr[-2000:])
            return done

        def measured(*options, **environment):
            done = run(*options, **environment)
            expect(done.returncode == 0, f"{options} failed")
            return json.loads(file.read_text()), done.stdout

        report, text = measured("--device", POCL, "--filter", "sdpa_vector")
        expect(report["driver"] and report["winnow"] and "OpenCL" in report["platform_version"], "versions are told")
        datetime.date.fromisoformat(report["date"])
        row, = report["sdpa_vector"]
        expect("device" not in row and "variants" not in row, "of one run rows say nothing that the report says")
        expect(all(row[key] > 0 for key in ("scores_seconds", "read_seconds", "arithmetic_seconds",
                                            "empty_launch_seconds", "multiply_adds_per_second",
                                            "conversions_per_second", "times_floor")), f"limits: {row}")
        floor = row["empty_launch_seconds"] + row["memory_seconds"]
        expect(abs(row["times_floor"] * floor / row["seconds"] - 1) < 1e-6, "the floor is a launch and reading without")
        # 2 sides of 128 keys of 64 elements, each converted once with one multiply-add, and one more for the other head
        of_peaks = 2 * 128 * 64 * (1 / row["conversions_per_second"] + 1 / row["multiply_adds_per_second"])
        expect(abs(row["arithmetic_seconds"] / of_peaks - 1) < 1e-6, "arithmetic is that of the row")
        larger = max(row["arithmetic_seconds"], row["read_seconds"]) / row["seconds"]
        expect(abs(row["fraction_of_what_binds"] / larger - 1) < 1e-6, "the larger one binds")
        table = [line for line in text.splitlines() if not line.startswith("device: ")]
        expect(max(map(len, table)) <= 120 and "% of bw" in text and "% binds" in text, "a table to read")

        # Rows of 68 bytes, so many that no load and no group's part comes out even: a byte left out ends the program.
        odd = ("--device", POCL, "--filter", "sdpa_vector", "--type", "q8_0", "--keys", 129, 1027)
        measured(*odd)
        if gpu_layer:
            as_gpu = {"OPENCL_LAYERS": gpu_layer, "POCL_DEVICES": "pthread"}
            report, _ = measured(*odd, **as_gpu)
            expect(all(row["read_seconds"] > 0 for row in report["sdpa_vector"]), "side by side, as on a GPU")
            refuses = as_gpu | {"WINNOW_LAYER_TEXT": "read_abreast", "WINNOW_LAYER_TAKEN_FOR": "read abreast"}
            expect("clBuildProgram" in run(*odd, **refuses).stderr, "a driver refuses plain kernels")
            report, _ = measured("--device", POCL, "--filter", "kv_append", **refuses)
            expect("OpenCL" in report["platform_version"], "what needs none of them goes on")
        else:
            print("skipped: a GPU's read, and plain kernels that are refused: there is no layer of OpenCL for it")

        report, _ = measured("--device", POCL, "--filter", "sdpa_vector", "--type", "q8_0", "f32", "--v-type", "turbo3")
        found = [(row["k_type"], row["v_type"]) for row in report["sdpa_vector"]]
        expect(found == [("q8_0", "turbo3"), ("f32", "turbo3")], f"one format of V with each of K: {found}")
        report, _ = measured("--device", POCL, "--filter", "sdpa_vector", "--type", "f32,f16", "--v-type", "f16,f32")
        found = [(row["k_type"], row["v_type"]) for row in report["sdpa_vector"]]
        expect(found == [("f32", "f16"), ("f16", "f32")], f"pairs: {found}")
        done = run("--type", "f16", "f32", "--v-type", "f16", "f32", "q8_0")
        expect(done.returncode == 1 and "--v-type: given are 3 formats, expected one, or 2" in done.stderr, "no pairs")

        report, text = measured("--device", "pthread", "basic", "--variants", "", "kernel=prefill", "--filter",
                                "sdpa_vector", POCL_DEVICES="pthread basic")
        found = [(row["device"].split("-")[0], row["variants"], row["variant"].split("_cpu")[0])
                 for row in report["sdpa_vector"]]
        expect(found == [(device, variants, kernel) for device in ("pthread", "basic")
                         for variants, kernel in (("chosen", "sdpa_vector"), ("kernel=prefill", "sdpa_prefill"))],
               f"each device with all variants: {found}")
        expect(re.fullmatch(r"pthread\S* .*; basic\S* .*", report["device"]) and report["platform"] == POCL,
               f"the report names both devices, and their platform once: {report['device']}, {report['platform']}")
        expect(report["options"]["variants"] == ["", "kernel=prefill"] and text.count("device: ") == 4, "they are told")

        report, _ = measured("--device", POCL, "--filter", "growth", "--layers", 3)
        expect({row["layers"] for row in report["growth"]} == {3}, "growth goes through the layers of a model")
        report, _ = measured("--device", POCL, "--filter", "growth", "--layers", 3, "--keys", 4096, "--layer-memory", 1)
        found = {row["cache"]: row["layers"] for row in report["growth"] if row["keys"] == 4096}
        expect(found["f16"] == found["plain read of f16"] == 1 and found["winnow:budget=1024"] == 3,
               f"as many layers as their own bytes let: {found}")

        report, _ = measured("--backend", "reference", "--filter", "sdpa_vector")
        expect("read_seconds" not in report["sdpa_vector"][0], "without OpenCL there are no limits")
        with tempfile.TemporaryDirectory() as without_drivers:
            report, _ = measured("--filter", "sdpa_vector", OCL_ICD_VENDORS=without_drivers, WINNOW_DEVICE="",
                                 WINNOW_DRIVER=pocl_library())
        expect(report["sdpa_vector"][0]["read_seconds"] > 0 and "OpenCL" in report["platform_version"],
               "a driver that WINNOW_DRIVER names has limits, too")

        is_listed = "--host-threads" in run("--help").stdout
        done = run("--device", POCL, "--filter", "sdpa_vector", "--host-threads", threads=2)
        if is_listed:
            row = json.loads(file.read_text())["sdpa_vector"][0]
            expect(done.returncode == 0 and row["read_seconds"] > 0, "lent threads have limits, too")
        else:
            expect("not expected: --host-threads" in done.stderr, "without OpenMP there is no such option")


main()
