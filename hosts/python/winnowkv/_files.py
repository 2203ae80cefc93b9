"""Where Winnow's files are: in the package's own folder, which a wheel lays out as an installation.

Folders that WINNOW_PATH names (separated by ':') come first, as in Winnow's own loader: there a build tree is tried.
"""

from __future__ import annotations

import os

from winnowkv import _driver

PACKAGE = os.path.dirname(os.path.abspath(__file__))


def _find(kind: str, name: str, folder: str) -> str:
    named = [path for path in os.environ.get("WINNOW_PATH", "").split(":") if path]
    for path in (*named, os.path.join(PACKAGE, folder)):
        if os.path.exists(os.path.join(path, name)):
            return os.path.abspath(os.path.join(path, name))
    raise FileNotFoundError(f"no {kind} {name} in {os.path.join(PACKAGE, folder)} or in a folder of WINNOW_PATH")


def get_library_path(backend: str = "opencl") -> str:
    """The shared object of a backend, "opencl" or "reference", for a host that opens it by path.

    Raises FileNotFoundError, which says where it was looked for."""
    return _find("backend", f"libwinnow_{backend}.so", "lib/winnow")


def plugin_path() -> str:
    """libwinnow_ggml.so, for GGML_BACKEND_PATH and ggml_backend_load.

    Raises FileNotFoundError where this installation has none: a wheel has it if it was built with the source trees of
    llama.cpp, as ci/wheel does."""
    try:
        return _find("plugin", "libwinnow_ggml.so", "lib")
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error}: built without ggml plugins; ci/wheel builds a wheel with them") from None


def get_include() -> str:
    """The folder of winnow.h and the headers beside it, for a compiler's -I. Raises FileNotFoundError."""
    folder = os.path.join(PACKAGE, "include", "winnow")
    if not os.path.exists(os.path.join(folder, "winnow.h")):
        raise FileNotFoundError(f"no winnow.h in {folder}; a source tree has it in plugin_api")
    return folder


def program() -> str:
    """The command `winnow` that the package brings. Raises FileNotFoundError."""
    path = os.path.join(PACKAGE, "bin", "winnow")
    if not os.path.exists(path):
        raise FileNotFoundError(f"no program {path}: this package was not built as a wheel")
    return path


def set_driver() -> None:
    """Sets what names the driver of an installed package, unless it is set; before OpenCL is first used."""
    for name, value in _driver.environment().items():
        os.environ.setdefault(name, value)
