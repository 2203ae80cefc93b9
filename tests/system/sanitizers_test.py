"""Builds the reference backend, its judges and the fuzz targets with clang, ASan and UBSan, and runs them.

clang, because g++ 12 warns of the standard library's own regular expressions under ASan. With `all` everything is
built, so that both compilers see every file, each by itself, so that an include that is missing is found. In a sample
OBJECTS, those of winnow-conformance with ; between, are linked as they were compiled without sanitizers: they watch the
backend and all memory that is allocated, and what the suite does with its own is left to `all`. Without the checks of
UBSan whose runtime only C++ programs have.

    sanitizers_test.py SOURCE BUILD sample|all OBJECTS
"""

import os
import subprocess
import sys
from pathlib import Path

# What a sample leaves out: the long tables of attention cases and of rows, the many schedules of caches, and of the
# cache's model all policies but three; operations on slots in OpenCL, where nearly all of the time is the driver's
# compiler; files whose checksum is made right, which the fuzz targets have; and what is long and about values alone.
LONG = (r"conformance\.reference\.(sdpa|formats/(attention|conversions|rows)|"
        r"cache/(policies|edits|schedules|memory|exact_rows))|"
        r"unit\.(cases/opencl_slot_attention|opencl_slots|all/opencl_deferred_append.*/(.*_|packed)|"
        r"languages/opencl_1_2|policies/cache_model.*\"(window|random|scissorhands|hierarchical|none|"
        r"winnow:k=f32,v=f32,residual|h2o:k=f32,v=f32,residual)|"
        r"cache_policy\.budgets_hold|cache_memory\.a_reservation_holds_under|cache_schedule\.queries_whose_scores|"
        r"cache_snapshot\.a_right_checksum|cache_select\.takes_the_smallest|cache_config\.comes_back_from_its_own|"
        r"cache_recall\.(the_center_of_signatures|tokens_after_a_truncate)|opencl_worker_queues\.divided_operations)")

SUPPRESSIONS = Path(__file__).resolve().parent / "lsan.supp"
# Of a sample. It is not optimized, but for what the fuzzer drives (tests/fuzz): half of the time to build it.
TARGETS = ("winnow-unit", "winnow-conformance", "abi_test", "winnow_abi_types", "winnow_host", "winnow_reference",
           "fuzz_descriptors", "fuzz_calls", "fuzz_config", "fuzz_file", "fuzz_profile")
FLAGS = "-g1 -fsanitize=undefined -fno-sanitize=vptr,function"


def run(*command):
    print("$", *command, flush=True)
    options = {
        # An allocation that is refused is a case of the suite. The compiler of a driver gives threads signal stacks of
        # its own, which ASan would take for those that it made, and unmap.
        "ASAN_OPTIONS": "detect_leaks=1:strict_string_checks=1:allocator_may_return_null=1:use_sigaltstack=0",
        # LeakSanitizer of clang 14 takes the dynamic thread-local memory of a driver's threads for what it is not, and
        # dies of it after the test has passed.
        "LSAN_OPTIONS": f"suppressions={SUPPRESSIONS}:print_suppressions=0:use_tls=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    result = subprocess.run(command, env=os.environ | options)
    if result.returncode != 0:
        sys.exit(f"status {result.returncode}")


def main():
    source, build, extent, objects = sys.argv[1:]
    is_sample = extent == "sample"
    flags = f"{'-O0' if is_sample else '-O1'} {FLAGS}"
    run("cmake", "-S", source, "-B", build, "-G", "Ninja", "-DCMAKE_C_COMPILER=clang", "-DCMAKE_CXX_COMPILER=clang++",
        "-DCMAKE_BUILD_TYPE=Debug", f"-DCMAKE_C_FLAGS_DEBUG={flags}", f"-DCMAKE_CXX_FLAGS_DEBUG={flags}",
        "-DWINNOW_SANITIZE=address", "-DWINNOW_BUILD_BENCH=OFF", "-DWINNOW_FUZZ=ON", "-DWINNOW_WARNINGS_AS_ERRORS=ON",
        f"-DWINNOW_QUICK_BUILD={'ON' if is_sample else 'OFF'}", f"-DWINNOW_FUZZ_SECONDS={10 if is_sample else 3600}",
        f"-DWINNOW_CONFORMANCE_CASES={20 if is_sample else ''}",
        f"-DWINNOW_CONFORMANCE_OBJECTS={objects if is_sample else ''}")
    run("cmake", "--build", build, *(("--target", *TARGETS) if is_sample else ()))
    # Not abi.opencl: it unloads the driver with its threads, which LeakSanitizer does not survive.
    leave_out = ["-E", LONG] if is_sample else []
    run("ctest", "--test-dir", build, "--output-on-failure", "--no-tests=error", "--parallel", "2", "-R",
        r"^(unit|abi\.(reference|types)|conformance\.reference|host_c\.reference|fuzz)", *leave_out)


main()
