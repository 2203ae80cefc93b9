"""types_test.py ABIDIFF CC LIBRARY TYPES_C HEADER: the header against the descriptions of every version so far.

Against the newest description nothing may differ. Against an older one fields and slots may have been appended: abidiff
reports those as well, so what it prints is read line by line, and whatever is not known to be an addition counts as a
change. That this reader convicts is shown first, on copies of the header that somebody damaged.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent

# How abidiff describes that something was appended at the end, and how it leads there from the exported function.
HARMLESS = [
    r"Functions changes summary: 0 Removed, \d+ Changed( \(\d+ filtered out\))?, 0 Added functions?",
    r"Variables changes summary: 0 Removed, 0 Changed, 0 Added variable",
    r"\d+ functions? with some indirect sub-type change:",
    r"\[C\] 'function int32_t winnow_get_api\(.*\)' has some indirect sub-type changes:",
    r"parameter \d+ of type '.*' has sub-type changes:",
    r"in pointed to type '.*':",
    r"in unqualified underlying type 'typedef \w+':",
    r"(unqualified )?underlying type '.*' changed(, as reported earlier)?:?",
    r"\d+ data member insertions?:",
    r"\d+ data member changes?( \(\d+ filtered\))?:",
    r"type of 'typedef int32_t \(.*\)\* \w+' changed:",
    r"pointed to type '.*' changed, as reported earlier",
]
SIZE = r"type size changed from (\d+) to (\d+) \(in bits\)"
INSERTION = r"'.*', at offset (\d+) \(in bits\)"


def complaints(report):
    """The lines that describe more than an addition. An addition lies behind the size that its struct had."""
    old_size = None
    for line in filter(None, map(str.strip, report.splitlines())):
        size, insertion = re.fullmatch(SIZE, line), re.fullmatch(INSERTION, line)
        if size:
            old_size = int(size[1])
            good = int(size[2]) > old_size
        elif insertion:
            good = old_size is not None and int(insertion[1]) >= old_size
        else:
            good = any(re.fullmatch(pattern, line) for pattern in HARMLESS)
        if not good:
            yield line


def compare(abidiff, description, library):
    result = subprocess.run([abidiff, "--no-show-locs", "--harmless", "--redundant", description, library],
                            capture_output=True, text=True)
    if result.returncode & 1:
        sys.exit(f"abidiff failed: {result.stderr}")
    return result.stdout, result.returncode


# (what somebody did, pattern, replacement)
DAMAGE = [
    ("another type of the same size", r"float softcap;", "int32_t softcap;"),
    ("another sign", r"uint32_t is_causal;", "int32_t is_causal;"),
    ("a field removed", r"float softcap; .*", ""),
    ("a field in the middle", r"int64_t window_left;", "int64_t inserted; int64_t window_left;"),
    ("a field renamed", r"uint64_t rows_appended;", "uint64_t rows_apended;"),
    ("two fields exchanged", r"(uint64_t kernel_launches;)\s*(uint64_t programs_built;)", r"\2 \1"),
    ("a slot removed", r"int32_t \(\*flush\)\(winnow_context \*context\);", ""),
    ("a parameter added", r"\(\*flush\)\(winnow_context \*context\)", "(*flush)(winnow_context *context, int more)"),
    ("a longer array", r"int64_t shape\[4\];", "int64_t shape[5];"),
    ("another pointee", r"const winnow_tensor \*v_row_indices;", "const void *v_row_indices;"),
    ("the entry point changed", r"size_t message_size\);\n\n#ifdef", "uint32_t message_size);\n\n#ifdef"),
]


def convicts_damage(abidiff, compiler, types_c, header):
    text = pathlib.Path(header).read_text()
    source = pathlib.Path(types_c).read_text()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name, pattern, replacement in DAMAGE:
            damaged, count = re.subn(pattern, replacement, text)
            if count == 0:
                sys.exit(f"{name}: {pattern} is not in the header")
            (folder / "winnow.h").write_text(damaged)
            fitting = source.replace("size_t message_size)", "uint32_t message_size)") if "entry" in name else source
            (folder / "types.c").write_text(fitting)
            library = folder / "damaged.so"
            subprocess.run([compiler, "-shared", "-fPIC", "-g", "-gdwarf-4", "-O0", f"-I{folder}",
                            "-Wl,-soname,libwinnow_abi_types.so", folder / "types.c", "-o", library], check=True)
            report, _ = compare(abidiff, HERE / "winnow_0_1.abi", library)
            if not list(complaints(report)):
                sys.exit(f"{name}: not noticed:\n{report}")


def main():
    abidiff, compiler, library, types_c, header = sys.argv[1:]
    convicts_damage(abidiff, compiler, types_c, header)
    descriptions = HERE.glob("winnow_*_*.abi")
    *older, newest = sorted(descriptions, key=lambda path: [int(n) for n in re.findall(r"\d+", path.stem)])
    for description in older:
        found = list(complaints(compare(abidiff, description, library)[0]))
        if found:
            sys.exit(f"{description.name}: not only additions:\n  " + "\n  ".join(found))
    report, status = compare(abidiff, newest, library)
    if status != 0:
        sys.exit(f"{newest.name}: the header differs; if that is meant, renew it (README.md):\n{report}")
    print(f"{len(DAMAGE)} damaged headers convicted; only additions since {[each.stem for each in older]}")


if __name__ == "__main__":
    main()
