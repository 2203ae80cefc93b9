"""Which library the plugin takes in a process: that of its version of ggml; one that is not known to be right with one
warning, unless WINNOW_GGML_STRICT forbids; none where none fits, and the host is told why, by name, and goes on without
the plugin. And so is one with a backend that is too old.

The plugin is copied with some of its libraries, what it knows of them is changed inside the copy, and a library for
another ggml is put in the place of the right one: that is what a host of another version would meet.
"""

import re
import shutil
from pathlib import Path

import llama_cpp
from llama_cpp import expect

TABLE = re.compile(rb"(?:[\w.-]+:\d+:[\d.]+-[\d.]+:[\d.,]+ ?)+(?=\0)")
TESTED = re.compile(rb"(?<![:\d.,])(?:\d+\.\d+\.\d+,)+\d+\.\d+\.\d+(?=\0)")
# Programs that look for the plugin before they have a model: the status with which they end, and what they print with
# the device alone.
PROGRAMS = ((["test-backend-ops", "support", "-o", "SET_ROWS"], 0, "winnow: .* backend .* kernels"),
            (["llama-completion", "-m", "none.gguf", *llama_cpp.DEVICE], 1, "failed to load model"),
            (["llama-simple", "-m", "none.gguf", "a prompt"], 1, "winnow: .* backend .* kernels"))
STRICT = {"WINNOW_GGML_STRICT": "1"}


def expect_refusal(host, options, what, *patterns, environment=None):
    """The program of the host says so and goes on without the plugin. A version may be one without tests besides."""
    program, *arguments = options.command
    out, err, report = host.run(program, *arguments, winnow=True, status=options.status, environment=environment)
    lines = [line for line in (out + err).splitlines() if "winnow: " in line and "not tested with it" not in line]
    expect(len(lines) == 1, f"{what}: not one line, but {lines}:\n{(out + err)[-3000:]}")
    for pattern in patterns:
        expect(re.search(pattern, lines[0]), f"{what}: no refusal that says {pattern}: {lines[0]}")
    expect(report is None, f"{what}: the plugin worked")
    expect(not re.search(options.taken, out + err), f"{what}: the device was registered")
    print(f"{what}: {lines[0]}")


def expect_taken(host, options, what, warning=None, environment=None):
    """The program has the device; of the plugin's warnings there is this one."""
    program, *arguments = options.command
    out, err, _ = host.run(program, *arguments, winnow=True, status=options.status, environment=environment)
    text = out + err
    expect(re.search(options.taken, text), f"{what}: the plugin was not taken:\n{text[-3000:]}")
    lines = re.findall(r"winnow: (?:no library|Winnow was built).*", text)
    expect(len(lines) == (1 if warning else 0), f"{what}: {len(lines)} warnings: {lines}")
    if warning:
        expect(re.search(warning, lines[0]), f"{what}: no warning that says {warning}: {lines[0]}")
    print(f"{what}: {lines[0] if warning else 'taken without a warning'}")


class Plugin:
    """The plugin that is copied."""

    def __init__(self, path, version):
        self.path = path
        self.built = path.read_bytes()
        self.version = version
        self.table, self.tested = (self.only(pattern) for pattern in (TABLE, TESTED))
        entries = [entry.split(":") for entry in self.table.decode().split()]
        self.names = [name for name, *_ in entries]
        self.name, self.api, self.known, self.versions = next(
            (entry for entry in entries if version in entry[3].split(",")), (None,) * 4)
        expect(self.name, f"ggml {version} is not among {self.table}")

    def only(self, pattern):
        found = pattern.findall(self.built)
        expect(len(found) == 1, f"{self.path.name} has {found}, expected one text like {pattern.pattern}")
        return found[0]

    def file(self, name):
        return self.path.parent / f"libwinnow_ggml-{name}.so"

    def copy(self, folder, libraries, replaced=b"", by=b""):
        """A plugin in a folder of its own with libraries, each under a name; a text in it is replaced."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        expect(len(replaced) == len(by) and replaced in self.built, f"{replaced} cannot become {by}")
        (folder / self.path.name).write_bytes(self.built.replace(replaced, by) if replaced else self.built)
        for name, source in libraries.items():
            shutil.copy(source, folder / f"libwinnow_ggml-{name}.so")
        return folder / self.path.name


def test():
    parser = llama_cpp.parser(__doc__)
    parser.add_argument("--old-backend", type=Path, required=True, help="a backend of version 0.1 of the ABI")
    parser.add_argument("--ggml", required=True, help="the version of the host's ggml")
    parser.add_argument("--other", action="append", nargs=2, default=[], metavar=("LIBRARY", "REGEX"),
                        help="a library for another ggml, and what it says of the host's")
    options = parser.parse_args()
    host = llama_cpp.Host(options)
    options.command, options.status, options.taken = next(
        program for program in PROGRAMS if (options.llama_cpp / program[0][0]).exists())
    plugin = Plugin(options.plugin.resolve(), options.ggml)
    host.environment["WINNOW_PATH"] = str(plugin.path.parent)  # of the backends, which are not copied
    own = {plugin.name: plugin.file(plugin.name)}
    all_libraries = {name: plugin.file(name) for name in plugin.names}
    version = re.escape(options.ggml)
    folder = options.work / "copy"

    expect_refusal(host, options, "an old backend", r"needs a backend of ABI version 0\.\d+.*this backend speaks 0\.1",
                   environment={"WINNOW_BACKEND": str(options.old_backend)})
    untested = rf"Winnow was built for ggml {version}, .*not tested with it"
    known = options.ggml in plugin.tested.decode().split(",")
    expect_taken(host, options, "its own library", None if known else untested, environment=STRICT)

    # Libraries of another API version are not asked, and under API version 2 none that is for older or newer versions.
    others = {name: path for name, path in all_libraries.items() if name != plugin.name}
    host.plugin = plugin.copy(folder, others)
    there = rf"; the libraries there are for ggml {re.escape(', '.join(others))}" if others else ""
    expect_refusal(host, options, "its library is absent",
                   rf"this process has ggml {version} \(API version {plugin.api}\), and no library in .* fits{there}; "
                   r"build Winnow with .*_LLAMA_CPP_DIR$")
    host.plugin = plugin.copy(folder, {})
    expect_refusal(host, options, "no library at all", rf"ggml {version} .*, and no library in \S+ fits; build Winnow")

    # The version is between those of a library that was neither compiled for it nor tested with it.
    exact = f":{plugin.known}:{plugin.versions}".encode()
    other = re.sub(rf"(?<![\d.]){version}(?![\d.])", "9" + options.ggml[1:], plugin.versions)
    host.plugin = plugin.copy(folder, own, exact, f":{plugin.known}:{other}".encode())
    expect_taken(host, options, "a version between two", rf"no library was built for ggml {version}, .*"
                 rf"libwinnow_ggml-{re.escape(plugin.name)}\.so is taken, .*WINNOW_GGML_STRICT=1 refuses")
    expect_refusal(host, options, "the same, strictly",
                   rf"libwinnow_ggml-{re.escape(plugin.name)}\.so is not taken: it is "
                   "not for this version, and WINNOW_GGML_STRICT=1; build Winnow", environment=STRICT)
    expect_refusal(host, options, "neither strict nor not", "WINNOW_GGML_STRICT=yes: expected 0 or 1",
                   environment={"WINNOW_GGML_STRICT": "yes"})

    # The version is older than those of the library, which is the nearest.
    later = exact.replace(b"0.", b"9.")
    host.plugin = plugin.copy(folder, own, exact, later)
    if int(plugin.api) > 2:
        expect_taken(host, options, "a version before all", rf"no library was built for ggml {version}, .* is taken")
    else:
        expect_refusal(host, options, "a version before all",
                       rf"ggml {version} .* fits; the libraries there .*; build Winnow")

    tested = re.sub(rf"(?<![\d.]){version}(?![\d.])", "9" + options.ggml[1:], plugin.tested.decode()).encode()
    host.plugin = plugin.copy(folder, own, plugin.tested, tested)
    expect_taken(host, options, "a version without tests", untested, environment=STRICT)

    expect(options.other, "no library for another ggml was named")
    for library, difference in options.other:
        host.plugin = plugin.copy(folder, {plugin.name: library})
        expect_refusal(host, options, f"{Path(library).name} in its place",
                       rf"libwinnow_ggml-{re.escape(plugin.name)}\.so is not taken: {difference}; build Winnow")


llama_cpp.main(test)
