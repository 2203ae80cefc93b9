"""A host with a ggml that the plugin does not serve is told so, by name, and goes on without it: with another version;
with another layout than the version's; without the version's library. And so is one with a backend that is too old.

The plugin is copied, and what it was built for changed inside the copy, or the library of another layout put in the
place of the right one: that is what a host built from another tree would meet.
"""

import re
import shutil
from pathlib import Path

import llama_cpp
from llama_cpp import expect

SERVED = re.compile(rb"(?:\d+\.\d+\.\d+:\d+\.\d+\.\d+ ?)+(?=\0)")


def expect_refusal(host, options, what, pattern, environment=None):
    """The program of the host says so and goes on without the plugin."""
    program, *arguments = options.command
    out, err, report = host.run(program, *arguments, winnow=True, status=None, environment=environment)
    refusal = re.search(pattern, out + err)
    expect(refusal, f"{what}: no refusal that says {pattern}:\n{(out + err)[-3000:]}")
    expect(report is None, f"{what}: the plugin worked")
    if program == "test-backend-ops":
        expect("Winnow" not in out, f"{what}: the device was registered")
    print(f"{what}: {refusal[0]}")


def served_by(plugin):
    """The versions of ggml that a plugin serves, each with the layout that its library is named for."""
    found = SERVED.search(plugin.read_bytes())
    expect(found, f"{plugin.name} names no versions of ggml")
    return found[0], dict(entry.split(":") for entry in found[0].decode().split())


def expect_all_libraries(plugin, layouts):
    for layout in sorted(set(layouts.values())):
        expect((plugin.parent / f"libwinnow_ggml-{layout}.so").is_file(), f"no library of layout {layout}")
    print(f"{len(layouts)} versions of ggml are served by {len(set(layouts.values()))} libraries")


def copy_of(plugin, work, name, text=None, replaced=None, libraries=None):
    """A plugin in a folder of its own, with a text in it replaced, and libraries under other names."""
    folder = work / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    built = plugin.read_bytes()
    (folder / plugin.name).write_bytes(built.replace(text, replaced) if text else built)
    for target, source in (libraries or {}).items():
        shutil.copy(plugin.parent / f"libwinnow_ggml-{source}.so", folder / f"libwinnow_ggml-{target}.so")
    return folder / plugin.name


def test():
    parser = llama_cpp.parser(__doc__)
    parser.add_argument("--old-backend", type=Path, required=True, help="a backend of version 0.1 of the ABI")
    parser.add_argument("--ggml", required=True, help="the version of the host's ggml")
    parser.add_argument("--other", action="append", nargs=2, default=[], metavar=("LAYOUT", "REGEX"),
                        help="another layout, and what its library says of the host's ggml")
    options = parser.parse_args()
    host = llama_cpp.Host(options)
    options.command = ["test-backend-ops", "support", "-o", "SET_ROWS"]
    if not (options.llama_cpp / options.command[0]).exists():  # the other loads backends before the model
        options.command = ["llama-simple", "-m", "none.gguf", "a prompt"]

    expect_refusal(host, options, "an old backend", r"needs a backend of ABI version 0\.\d+.*this backend speaks 0\.1",
                   {"WINNOW_BACKEND": str(options.old_backend)})

    plugin = options.plugin.resolve()
    text, layouts = served_by(plugin)
    expect_all_libraries(plugin, layouts)
    own = layouts.get(options.ggml)
    expect(own, f"ggml {options.ggml} is not among {', '.join(layouts)}")

    version = options.ggml.encode()
    other = b"9" * len(version.split(b".")[0]) + b"." + version.split(b".", 1)[1]
    entry = re.compile(rb"(?<![\d.])" + re.escape(version) + rb":")
    host.plugin = copy_of(plugin, options.work, "version-unknown", text, entry.sub(other + b":", text))
    expect_refusal(host, options, "an unknown version",
                   rf"this process has ggml {re.escape(options.ggml)}, and libwinnow_ggml\.so was built for .*"
                   rf"{re.escape(other.decode())}.*WINNOW_LLAMA_CPP_DIR")

    host.plugin = copy_of(plugin, options.work, "version-absent")
    expect_refusal(host, options, "no library",
                   rf"cannot load the library for ggml {re.escape(options.ggml)}: .*-{re.escape(own)}\.so")

    expect(options.other, "no other layout was named")
    for layout, difference in options.other:
        host.plugin = copy_of(plugin, options.work, "version-layout", libraries={own: layout})
        expect_refusal(host, options, f"the layout of ggml {layout}",
                       rf"this process has another ggml {re.escape(options.ggml)} .*{difference}.*WINNOW_LLAMA_CPP_DIR")


llama_cpp.main(test)
