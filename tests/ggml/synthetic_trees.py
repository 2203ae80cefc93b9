"""Trees with the headers of a release of llama.cpp, a few lines of which are changed as later releases may do.

    synthetic_trees.py <source tree> <folder>      makes the tree `later` there, for the build
"""

import re
import sys
from pathlib import Path

INTERFACE = "ggml-backend-impl.h"


def inside(structure, before, after):
    """A change within a structure: of the text that matches."""
    return rf"(?s)(struct {structure} \{{(?:(?!\n    \}};).)*?){before}", rf"\g<1>{after}"


# Header, pattern, replacement. What a host need not know: it leaves out what is new, and takes other numbers.
LATER = (
    (INTERFACE, r"GGML_BACKEND_API_VERSION \d+", "GGML_BACKEND_API_VERSION 6"),
    (INTERFACE, *inside("ggml_backend_buffer_type_i", r"(\n[^\n]*\(\*is_host\))",
                        r"\n        void (*newer_first)(ggml_backend_buffer_type_t buft);\g<2>")),
    (INTERFACE, *inside("ggml_backend_buffer_type_i", r"(\(\*is_host\)[^;]*;)",
                        r"\g<2>\n        const void * (*newer_last)(ggml_backend_buffer_type_t buft);")),
    (INTERFACE, *inside("ggml_backend_buffer", r"(enum ggml_backend_buffer_usage usage;)",
                        r"\g<2>\n        const void * newer;")),
    (INTERFACE, r"(\(\*graph_optimize\)[^;]*)\);", r"\g<1>, int newer);"),
    ("ggml-backend.h", r"struct ggml_backend_dev_caps \{", r"\g<0>\n        bool newer;"),
    ("ggml.h", r"GGML_OP_FLASH_ATTN_EXT,", r"GGML_OP_NEWER,\n        \g<0>"),
)
LATER_VERSION = "7.8.9"


def write(path, text):
    """Leaves a file alone that has this text, so that nothing is compiled for it again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def make(source, folder, changes=(), version=None):
    """A tree with these changes, and with another version of ggml."""
    headers = [*(source / "ggml" / "include").glob("*.h"), *(source / "ggml" / "src").glob("ggml*.h")]
    texts = {header.name: header.read_text() for header in headers}
    for name, pattern, replacement in changes:
        texts[name], count = re.subn(pattern, replacement, texts[name], count=1)
        assert count == 1, f"{name} of {source} has no {pattern}"
    for header in headers:
        write(folder / header.relative_to(source), texts[header.name])
    text = (source / "ggml" / "CMakeLists.txt").read_text()
    for part, number in zip(("MAJOR", "MINOR", "PATCH"), version.split(".") if version else ()):
        text = re.sub(rf"GGML_VERSION_{part} \d+", f"GGML_VERSION_{part} {number}", text)
    write(folder / "ggml" / "CMakeLists.txt", text)
    return folder


if __name__ == "__main__":
    make(Path(sys.argv[1]), Path(sys.argv[2]), LATER, LATER_VERSION)
