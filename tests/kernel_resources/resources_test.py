"""What the kernels for GPUs take of an NVIDIA H100 and an AMD MI200: registers, spills, local memory, and how many
groups that leaves room for. clang and ptxas say it, so that no GPU is needed; a GPU's own compiler may take others.

Everything is compared with resources.json. A change for the better is to be written there (--write), one for the worse
is to be understood first. What a token's row takes that a step stores, one work-item alone, is among what is spilled.
Attention that stores no row spills nothing but what SPILLS names, in the table, too. What agreed is not compiled again
while this file, the table, the compilers, libclc and all that was included are the same (known_passes.py); the table is
printed in any case.

    resources_test.py --clang PROGRAM --ptxas PROGRAM --kernels FOLDER [--write]
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))

import known_passes  # noqa: E402

TABLE = Path(__file__).with_name("resources.json")
LIBRARIES = Path("/usr/lib/clc")  # of libclc
SIZES = {"HEAD_SIZE": 128, "V_HEAD_SIZE": 128, "GROUP_SIZE": 128, "SINGLE_LAUNCH": 0}
STATISTIC = {"STATISTIC": 1}
STEP = {"SLOTS": 1, "STEP": 1, **STATISTIC}
# Bytes that attention without a step may spill.
SPILLS = {("sdpa_vector q8_0, 4 rows", "MI200"): 320, ("sdpa_vector q8_0, 8 rows", "MI200"): 320,
          ("sdpa_prefill q8_0, 32 rows", "MI200"): 80}


@dataclass(frozen=True)
class Kernel:
    name: str
    group: int  # work-items
    defines: dict
    stem: str = ""  # of its file, where that has more than one

    @property
    def file(self):
        return f"{self.stem or self.name}_workgroup.cl"

    @property
    def is_attention_alone(self):
        """Which stores no row."""
        return self.name.startswith("sdpa_") and not self.defines["STEP"]


def attention(rows, *formats, name="sdpa_vector", **more):
    """sdpa_vector, or another, for the formats of K and V of each segment."""
    made = {"SEGMENTS": len(formats), "SLOTS": 0, "STEP": 0, "APPEND": 0, "ROWS": rows, **SIZES, **more}
    for segment, pair in enumerate(formats):
        made |= {f"K_FORMAT_{segment}": pair[0], f"V_FORMAT_{segment}": pair[1]}
        made |= {f"USES_{each}": 1 for each in pair}
    return Kernel(name, SIZES["GROUP_SIZE"], made)


def prompt(rows, *formats, **more):
    """sdpa_prefill, likewise."""
    return attention(rows, *formats, name="sdpa_prefill", **more)


def pages(name, **defines):
    """An operation on pages of keys of 128 elements."""
    return Kernel(name, 256, {"K_SIZE": 128, **defines})


def slots(name, stem="", **defines):
    """An operation on slots."""
    return Kernel(name, 256, defines, stem)


def rows(name, k, v, group=64):
    """An operation that stores rows of 128 elements in these formats."""
    sizes = {"K_SIZE": 128, "V_SIZE": 128}
    return Kernel(name, group, {"K_FORMAT": k, "V_FORMAT": v, f"USES_{k}": 1, f"USES_{v}": 1, **sizes})


def moved(name, source, to):
    """An operation that reads rows of 128 elements in one format and stores them in another."""
    packed = {f"USES_{each}": 1 for each in (source, to) if each != "f16"}
    return Kernel(name, 64, {"SRC_FORMAT": source, "DST_FORMAT": to, "SIZE": 128, **packed})


F16 = ("f16", "f16")
# As NVIDIA's driver gets them.
SUBGROUP = {"SUBGROUP_SIZE": 32, "SUBGROUP_PTX": 1}
TENSOR = {**SUBGROUP, "TENSOR_CORES": 1}
CASES = {
    "sdpa_vector f16, 1 row": attention(1, F16),
    "sdpa_vector f16, 4 rows": attention(4, F16),
    "sdpa_vector f16, 8 rows": attention(8, F16),
    "sdpa_vector turbo4, 4 rows": attention(4, ("turbo4", "turbo4")),
    "sdpa_vector q8_0, 4 rows": attention(4, ("q8_0", "q8_0")),
    "sdpa_vector q8_0, 8 rows": attention(8, ("q8_0", "q8_0")),
    "sdpa_vector step, f16 and turbo4/turbo3, 4 rows": attention(4, F16, ("turbo4", "turbo3"), **STEP),
    "subgroup f16, 4 rows": attention(4, F16, **SUBGROUP),
    "subgroup q8_0, 4 rows": attention(4, ("q8_0", "q8_0"), **SUBGROUP),
    "tensor cores f16, 1 row": attention(1, F16, **TENSOR),
    "tensor cores f16, 8 rows": attention(8, F16, **TENSOR),
    "tensor cores q8_0, 8 rows": attention(8, ("q8_0", "q8_0"), **TENSOR),
    "tensor cores q4_0, 8 rows": attention(8, ("q4_0", "q4_0"), **TENSOR),
    "tensor cores turbo4, 8 rows": attention(8, ("turbo4", "turbo4"), **TENSOR),
    "tensor cores step, f16 and turbo4/turbo3, 4 rows": attention(4, F16, ("turbo4", "turbo3"), **STEP, **TENSOR),
    "sdpa_prefill f16, 32 rows": prompt(32, F16),
    "sdpa_prefill f16, 16 rows of 256 elements": prompt(16, F16, HEAD_SIZE=256, V_HEAD_SIZE=256),
    "sdpa_prefill q8_0, 32 rows": prompt(32, ("q8_0", "q8_0")),
    "sdpa_prefill slots, f16 and turbo4/turbo3, 32 rows": prompt(32, F16, ("turbo4", "turbo3"), SLOTS=1),
    "page_pick by signs, 4 heads": pages("page_pick", GROUP=4),
    "page_pick by codes, 4 heads": pages("page_pick", GROUP=4, CODES=1),
    "kv_append turbo4/turbo3": rows("kv_append", "turbo4", "turbo3"),
    "kv_append q8_0": rows("kv_append", "q8_0", "q8_0"),
    "page_sign turbo4": pages("page_sign", K_FORMAT="turbo4", USES_turbo4=1),
    "kv_requantize turbo4 to turbo3": moved("kv_requantize", "turbo4", "turbo3"),
    "kv_dequantize turbo4 to f16": moved("kv_dequantize", "turbo4", "f16"),
    "hadamard": Kernel("hadamard", 64, {"SIZE": 128}),
    "slot_append turbo4/turbo3": rows("slot_append", "turbo4", "turbo3"),
    "slot_evict turbo4/turbo3": rows("slot_evict", "turbo4", "turbo3", 256),
    "slot_accumulate": slots("slot_accumulate", **STATISTIC),
    "slot_compact": slots("slot_compact"),
    "slot_compact, rows": slots("slot_compact_move", "slot_compact"),
    "slot_copy": slots("slot_copy"),
    "slot_edit": slots("slot_edit"),
    "slot_scores": slots("slot_scores"),
    "slot_zero": slots("slot_zero"),
}


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nended with status {done.returncode}:\n{done.stderr[-4000:]}")
    return done.stdout + done.stderr


def compiled(options, target, library, kernel, output):
    """Compiles into this file; all files that were read for it."""
    # The version that OpenCL C's own compiler would define for a device of 1.2. -H lists what is included.
    source = options.kernels / kernel.file
    said = run(options.clang, "-x", "cl", "-cl-std=CL1.2", *target, "-include", "opencl-c.h",
               "-D__OPENCL_VERSION__=120", "-w", "-H", "-O3", "-I", options.kernels,
               *(f"-D{name}={value}" for name, value in kernel.defines.items()), "-Xclang", "-mlink-builtin-bitcode",
               "-Xclang", LIBRARIES / library, "-S", "-o", output, source)
    return {source, LIBRARIES / library, *re.findall(r"^\.+ (.+)$", said, re.M)}


def number(pattern, text):
    found = re.search(pattern, text)
    if found is None:
        sys.exit(f"the compiler says no \"{pattern}\":\n{text[-4000:]}")
    return int(found[1])


def on_h100(options, kernel, folder, read):
    """65536 registers and 227 KiB of local memory for 64 warps, whose registers come in steps of 8."""
    read |= compiled(options, ("-target", "nvptx64-unknown-nvcl", "-Xclang", "-target-cpu", "-Xclang", "sm_80"),
                     "nvptx64--nvidiacl.bc", kernel, folder / "kernel.ptx")
    said = run(options.ptxas, "-arch=sm_90", "-v", folder / "kernel.ptx", "-o", folder / "kernel.cubin")
    said = said[said.index(f"function '{kernel.name}'"):].split("Compiling entry function")[0]
    registers = number(r"Used (\d+) registers", said)
    local = number(r"(\d+) bytes smem", said) if "bytes smem" in said else 0
    spilled = number(r"(\d+) bytes spill stores", said) + number(r"(\d+) bytes stack frame", said)
    groups = min(65536 // (kernel.group * (-(-registers // 8) * 8)), 227 * 1024 // (local + 1024),
                 64 // (kernel.group // 32))
    return {"registers": registers, "spilled": spilled, "local": local, "groups": groups}


def on_mi200(options, kernel, folder, read):
    """Of each of 4 units: 512 registers for a lane of a wavefront of 64; 64 KiB of local memory for all of them."""
    read |= compiled(options, ("-target", "amdgcn-amd-amdhsa", "-mcpu=gfx90a", "-nogpulib"), "amdgcn--amdhsa.bc",
                     kernel, folder / "kernel.s")
    said = (folder / "kernel.s").read_text(encoding="utf-8")
    said = said[said.index(f"\n{kernel.name}:"):]
    registers, local = number(r"; TotalNumVgprs: (\d+)", said), number(r"; LDSByteSize: (\d+)", said)
    waves = 4 * min(512 // (-(-registers // 8) * 8), 8)
    return {"registers": registers, "spilled": number(r"; ScratchSize: (\d+)", said), "local": local,
            "groups": min(waves // (kernel.group // 64), 64 * 1024 // max(local, 1))}


def print_table(kernels):
    for name, one in kernels.items():
        for gpu, taken in one.items():
            print(f"{name:48} {gpu:6} {taken['registers']:4} registers, {taken['spilled']} bytes spilled, "
                  f"{taken['local']} bytes of local memory, {taken['groups']} groups at once", flush=True)


def unexpected_spills(kernels):
    """Of attention that stores no row; also of a table that --write made."""
    return [f"{name}, {gpu}: {taken['spilled']} bytes spilled, expected at most {SPILLS.get((name, gpu), 0)}"
            for name, one in kernels.items() if CASES[name].is_attention_alone for gpu, taken in one.items()
            if taken["spilled"] > SPILLS.get((name, gpu), 0)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    for name in ("--clang", "--ptxas", "--kernels"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--passes", type=Path, help="folder of what is known to pass, instead of the usual one")
    parser.add_argument("--write", action="store_true", help="write resources.json anew")
    options = parser.parse_args()
    told = [run(program, "--version") for program in (options.clang, options.ptxas)]
    passes = known_passes.KnownPasses("kernel_resources", options.kernels.iterdir(), options.passes, most=10)
    if not options.write and passes.knows(*told, options.kernels):
        print("Nothing was compiled: the same files are known to agree with resources.json, which has")
        print_table(json.loads(TABLE.read_text(encoding="utf-8"))["kernels"])
        return
    versions = [re.search(r"version (\d+\.\d+)|release (\d+\.\d+)", each)[0] for each in told]
    found, read = {"clang": versions[0], "ptxas": versions[1], "kernels": {}}, set()
    with tempfile.TemporaryDirectory() as folder:
        for name, kernel in CASES.items():
            gpus = {"H100": on_h100} if "SUBGROUP_PTX" in kernel.defines else {"H100": on_h100, "MI200": on_mi200}
            one = found["kernels"][name] = {gpu: take(options, kernel, Path(folder), read)
                                            for gpu, take in gpus.items()}
            print_table({name: one})
    wrong = unexpected_spills(found["kernels"])
    if options.write:
        TABLE.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
        sys.exit("FAILED: " + "\n".join(wrong) if wrong else 0)
    known = json.loads(TABLE.read_text(encoding="utf-8"))
    wrong += [f"{key}: {found[key]}, resources.json is of {known[key]}" for key in ("clang", "ptxas")
              if found[key] != known[key]]
    if list(known["kernels"]) != list(CASES):
        wrong.append("resources.json has other kernels")
    for name, one in found["kernels"].items():
        for gpu, taken in one.items():
            before = known["kernels"].get(name, {}).get(gpu, taken)
            for key in ("registers", "spilled", "local", "groups"):
                if taken[key] != before[key]:
                    is_worse = (taken[key] > before[key]) == (key != "groups")
                    wrong.append(f"{name}, {gpu}: {key} {taken[key]}, {'' if is_worse else 'better than '}{before[key]}"
                                 f" in resources.json; {'see why' if is_worse else 'write it anew with --write'}")
    if wrong:
        sys.exit("FAILED: " + "\n".join(wrong))
    passes.keep([__file__, TABLE, options.clang, options.ptxas, *read], *told, options.kernels)
    passes.trim()


main()
