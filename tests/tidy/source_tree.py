"""The files of the project, for the tests that read them."""

import subprocess

OTHERS = ("hosts/onnxruntime/headers/",)  # files of other projects, as they came


def source_tree(root):
    """{path: text} of all files that belong to the project."""
    listing = subprocess.run(["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                             capture_output=True, text=True)
    if listing.returncode == 0:
        paths = [path for path in listing.stdout.split("\0") if path]
    else:  # an unpacked release
        paths = [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]
        paths = [path for path in paths if not path.startswith(("build/", ".git/")) and "__pycache__" not in path]
    tree = {}
    for path in sorted(paths):
        if (root / path).is_file() and not path.startswith(OTHERS):
            tree[path] = (root / path).read_text(errors="replace")
    return tree
