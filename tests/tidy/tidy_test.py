"""Holds the source tree to its own rules (rules.py), after proving that each rule can fail.

    tidy_test.py ROOT
"""

import sys
from pathlib import Path

import rules
from source_tree import source_tree


def prove():
    """Each rule complains about each of its bad samples and accepts its good one."""
    for rule, (bad, good) in rules.SAMPLES.items():
        for sample in bad:
            assert list(rule(sample)), f"{rule.__name__} accepts {sample}"
        complaints = list(rule(good))
        assert not complaints, f"{rule.__name__} refuses a good sample: {complaints}"
        print(f"{rule.__name__}: finds all of its {len(bad)} bad samples")


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
