"""A host with another version of ggml is refused by name, and goes on without the plugin; and so is a backend that is
too old for the plugin.

The plugin is copied and the version inside the copy changed, which is what a host built from another tree would meet.
"""

import re
from pathlib import Path

import llama_cpp
from llama_cpp import expect


def test():
    parser = llama_cpp.parser(__doc__)
    parser.add_argument("--old-backend", type=Path, required=True, help="a backend of version 0.1 of the ABI")
    options = parser.parse_args()
    host = llama_cpp.Host(options)

    out, err, report = host.run("test-backend-ops", "support", "-o", "SET_ROWS", winnow=True,
                                environment={"WINNOW_BACKEND": str(options.old_backend)})
    refusal = re.search(r"needs a backend of ABI version 0\.\d+.*this backend speaks 0\.1", out + err)
    expect(refusal, f"no refusal of an old backend that names both versions:\n{err[-2000:]}")
    expect("Winnow" not in out and report is None, "the device was registered although its backend is too old")
    print(f"an old backend: {refusal[0]}")

    built = host.plugin.read_bytes()
    marker = b"was built against ggml "
    start = built.find(marker)
    expect(start >= 0, "the plugin does not name the version it was built against")
    version = built[start + len(marker):].split(b" ", 1)[0]
    other = b"9" + version[1:]
    copy = options.work / "libwinnow_ggml_other.so"
    copy.write_bytes(built.replace(version + b"\0", other + b"\0").replace(marker + version, marker + other))
    host.plugin = copy
    out, err, report = host.run("test-backend-ops", "support", "-o", "SET_ROWS", winnow=True)
    expect(f"ggml {other.decode()} and the host is ggml {version.decode()}" in out + err,
           f"no refusal that names both versions:\n{err[-2000:]}")
    expect("Winnow" not in out, "the device was registered although the versions differ")
    expect(report is None, "the plugin worked although the versions differ")
    print(f"a plugin built against ggml {other.decode()} is refused by ggml {version.decode()}")


llama_cpp.main(test)
