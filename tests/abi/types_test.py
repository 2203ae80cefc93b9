"""types_test.py ABIDIFF CC LIBRARY TYPES_C FOLDER: its headers against the descriptions of every version so far.

Against the newest description nothing may differ. Against an older one fields and slots may have been appended: abidiff
reports those as well, so what it prints is read line by line, and whatever is not known to be an addition counts as a
change. That this reader convicts and acquits is shown first, on copies of the header: damaged ones, and one of a
made-up newer version, to which things were appended.
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
    r"\[C\] 'function (int32_t winnow_get_api|void winnow_more_types)\(.*\)' has some indirect sub-type changes:",
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
    ("a field renamed", r"uint64_t tokens_appended;", "uint64_t tokens_apended;"),
    ("two fields exchanged", r"(uint64_t kernel_launches;)\s*(uint64_t programs_built;)", r"\2 \1"),
    ("a slot removed", r"int32_t\(WINNOW_CALL \*flush\)\(winnow_context \*context\);", ""),
    ("a parameter added", r"\*flush\)\(winnow_context \*context\)", "*flush)(winnow_context *context, int more)"),
    ("a slot of a further table removed", r"int32_t\(WINNOW_CALL \*reset\)\(winnow_cache \*cache\);", ""),
    ("a record's field exchanged", r"void \*device; ", "uint64_t device; "),
    ("a longer array", r"int64_t shape\[4\];", "int64_t shape[5];"),
    ("another pointee", r"const winnow_tensor \*v_row_indices;", "const void *v_row_indices;"),
    ("the entry point changed", r"size_t message_size\);\n\n#ifdef", "uint32_t message_size);\n\n#ifdef"),
]


# What a newer version may do.
ADDITIONS = [(r"(\} winnow_sdpa_desc;)", r"    const winnow_tensor *appended;\n\1"),
             (r"(\} winnow_stats;)", r"    uint64_t appended;\n\1"),
             (r"(\} winnow_(?:cache_|opencl_)?api;)", r"    int32_t (*appended)(winnow_context *context);\n\1")]


def edited(headers, edits):
    """headers: {name: text}"""
    for pattern, replacement in edits:
        if not any(re.search(pattern, text) for text in headers.values()):
            sys.exit(f"{pattern} is not in the headers")
        headers = {name: re.sub(pattern, replacement, text) for name, text in headers.items()}
    return headers


def report_of(abidiff, compiler, headers, source, newest):
    """What abidiff says of headers against the newest description."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name, text in headers.items():
            (folder / name).write_text(text)
        (folder / "types.c").write_text(source)
        library = folder / "edited.so"
        subprocess.run([compiler, "-shared", "-fPIC", "-g", "-gdwarf-4", "-O0", f"-I{folder}",
                        "-Wl,-soname,libwinnow_abi_types.so", folder / "types.c", "-o", library], check=True)
        return compare(abidiff, newest, library)[0]


def judges_copies(abidiff, compiler, types_c, folder, newest):
    headers = {path.name: path.read_text() for path in pathlib.Path(folder).glob("winnow*.h")}
    source = pathlib.Path(types_c).read_text()
    for name, pattern, replacement in DAMAGE:
        fitting = source.replace("size_t message_size)", "uint32_t message_size)") if "entry" in name else source
        report = report_of(abidiff, compiler, edited(headers, [(pattern, replacement)]), fitting, newest)
        if not list(complaints(report)):
            sys.exit(f"{name}: not noticed:\n{report}")
    report = report_of(abidiff, compiler, edited(headers, ADDITIONS), source, newest)
    found = list(complaints(report))
    if "insertion" not in report or found:
        sys.exit("what a newer version may append is taken for a change:\n  " + "\n  ".join(found) + report)


def main():
    abidiff, compiler, library, types_c, folder = sys.argv[1:]
    descriptions = HERE.glob("winnow_*_*.abi")
    *older, newest = sorted(descriptions, key=lambda path: [int(n) for n in re.findall(r"\d+", path.stem)])
    judges_copies(abidiff, compiler, types_c, folder, newest)
    for description in older:
        found = list(complaints(compare(abidiff, description, library)[0]))
        if found:
            sys.exit(f"{description.name}: not only additions:\n  " + "\n  ".join(found))
    report, status = compare(abidiff, newest, library)
    if status != 0:
        sys.exit(f"{newest.name}: the headers differ; if that is meant, renew it (README.md):\n{report}")
    print(f"{len(DAMAGE)} damaged headers convicted, additions acquitted; older: {[each.stem for each in older]}")


if __name__ == "__main__":
    main()
