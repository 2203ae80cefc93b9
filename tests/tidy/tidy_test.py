"""Holds the source tree to its own rules (rules.py), after proving that each rule can fail.

    tidy_test.py ROOT
"""

import subprocess
import sys
from pathlib import Path

import rules


def prove():
    """Each rule complains about each of its bad samples and accepts its good one."""
    for rule, (bad, good) in rules.SAMPLES.items():
        for sample in bad:
            assert list(rule(sample)), f"{rule.__name__} accepts {sample}"
        complaints = list(rule(good))
        assert not complaints, f"{rule.__name__} refuses a good sample: {complaints}"
        print(f"{rule.__name__}: finds all of its {len(bad)} bad samples")


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
        if (root / path).is_file():
            tree[path] = (root / path).read_text(errors="replace")
    return tree


def main():
    root = Path(sys.argv[1])
    prove()
    tree = source_tree(root)
    assert "plugin_api/winnow.h" in tree, f"{root} is not the source tree"
    complaints = [f"{path}: {complaint} [{rule.__name__}]" for rule in rules.SAMPLES for path, complaint in rule(tree)]
    print(f"{len(tree)} files, {len(rules.SAMPLES)} rules, {len(complaints)} complaints")
    for complaint in complaints:
        print(complaint)
    for name in sorted({complaint.rsplit("[", 1)[1].rstrip("]") for complaint in complaints}):
        print(f"{name}: {getattr(rules, name).__doc__}")
    sys.exit(1 if complaints else 0)


main()
