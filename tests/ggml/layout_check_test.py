"""The layout check in a process with another ggml than the one that it was compiled for finds what differs, and the
process goes on: fields more in structures of ggml's, functions more in interfaces, other numbers.

The trees have the headers of the process's ggml, with one thing changed in each. The check is compiled for each tree
and called in a process of its own. A sample of the changes, or all.
"""

import argparse
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import synthetic_trees
from synthetic_trees import INTERFACE, inside

HERE = Path(__file__).resolve().parent
HOST = HERE.parents[1] / "hosts" / "ggml"
CALL = """
import ctypes, sys
ggml = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)  # functions of its headers that are not used call it
check = ctypes.CDLL(sys.argv[2])
check.check_layout.restype = ctypes.c_char_p
print(check.check_layout(ctypes.cast(ggml.ggml_backend_load, ctypes.c_void_p)).decode())
"""
FUNCTION = "void (*newer)(void);"


def first(header, structure):
    """A field more at a structure's beginning."""
    return header, rf"struct {structure} \{{", rf"\g<0> {FUNCTION}"


def before(structure, member):
    """A function more in an interface, before this one."""
    return INTERFACE, *inside(structure, rf"(\n[^\n]*\(\*{member}\))", rf"\n        {FUNCTION}\g<2>")


# What the check says of a change; "" if it does not matter.
SAMPLE = (
    ((), ""),
    (before("ggml_backend_buffer_type_i", "is_host"), "the device of a type of buffers"),
    (first("ggml-impl.h", "ggml_hash_set"), "the hash table of ggml_cgraph"),
    (first("ggml.h", "ggml_init_params"), "what is in ggml_init_params"),
    (("ggml.h", "GGML_TYPE_Q8_0 *= 8", "GGML_TYPE_Q8_0 = 28"), "type 28 is f64, expected q8_0"),
)
ALL = (
    *SAMPLE,
    (("ggml.h", "GGML_OP_FLASH_ATTN_EXT,", "GGML_OP_NEWER, GGML_OP_FLASH_ATTN_EXT,"), "expected FLASH_ATTN_EXT"),
    (first("ggml.h", "ggml_tensor"), "the size of ggml_tensor"),
    (first("ggml-impl.h", "ggml_cgraph"), "ggml_cgraph"),
    (("ggml-impl.h", r"(struct ggml_cgraph \{(?s:.*?))(struct ggml_tensor \*\* nodes)", rf"\g<1>{FUNCTION} \g<2>"),
     "the nodes of ggml_cgraph"),
    (first("ggml-backend.h", "ggml_backend_dev_props"), "the size of a device's properties"),
    (before("ggml_backend_buffer_i", "clear"), "what is behind the interface of ggml_backend_buffer"),
    (before("ggml_backend_i", "graph_compute"), "the device of ggml_backend"),
    (before("ggml_backend_device_i", "supports_op"), "the reg of ggml_backend_device"),
    (before("ggml_backend_reg_i", "get_device_count"), "ggml_backend_reg_i::get_device_count is at 16, expected at 24"),
    *((first(INTERFACE, structure), says) for structure, says in (
        ("ggml_backend_buffer", "what is behind the interface"), ("ggml_backend_buffer_type", "a type of buffers"),
        ("ggml_backend", "the device of ggml_backend"), ("ggml_backend_device", "the reg of ggml_backend_device"),
        ("ggml_backend_reg", "ggml_backend_reg_i::get_name"))),
)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True, help="source tree of the process's llama.cpp")
    parser.add_argument("--ggml", required=True, help="libggml.so")
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--work", type=Path, required=True, help="folder for what the test writes")
    parser.add_argument("--all", action="store_true", help="all changes instead of a sample")
    options = parser.parse_args()
    shutil.rmtree(options.work, ignore_errors=True)

    def check(numbered):
        """The change, what the check has to say, and the status and the words with which a process ended."""
        number, (change, expected) = numbered
        tree = synthetic_trees.make(options.source, options.work / str(number), [change] if change else [])
        library = tree / "check.so"
        subprocess.run([options.compiler, "-std=c++20", "-O0", "-shared", "-fPIC", f"-I{HOST}",
                        f"-I{HOST.parents[1] / 'plugin_api'}", "-isystem", tree / "ggml" / "include", "-isystem",
                        tree / "ggml" / "src", HERE / "check_layout.cpp", "-ldl", "-o", library], check=True)
        process = subprocess.run([sys.executable, "-c", CALL, options.ggml, library], capture_output=True, text=True)
        return change, expected, process.returncode, process.stdout.strip() or process.stderr[-500:]

    with ThreadPoolExecutor(2) as pool:
        for change, expected, status, said in pool.map(check, enumerate(ALL if options.all else SAMPLE)):
            print(f"{' '.join(change) if change else 'no change'}: {said or 'it fits'}")
            assert status == 0, f"the process ended with {status}"
            assert expected in said and bool(expected) == bool(said), f"expected \"{expected}\""


main()
