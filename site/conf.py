"""The site, which ci/site builds: all pages of the project and the reference of its C and Python interfaces.

The folder of the sources is the project's root, so that links between pages are those that the repository shows.
"""

import os
import posixpath
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "hosts" / "python"))

project = "Winnow"
author = "the authors of Winnow"
version = release = re.search(r"^ +VERSION (\d+\.\d+)\.\d+$", (ROOT / "CMakeLists.txt").read_text(), re.M)[1]

extensions = ["breathe", "myst_parser", "sphinx.ext.autodoc"]
root_doc = "README"
include_patterns = ["*.md", "docs/**.md", "hosts/*/*.md", "lab/**.md", "site/*.md"]
exclude_patterns = ["build", "**/.*", "**/__pycache__"]
html_extra_path = ["index.html"]
html_theme = "furo"
html_title = f"Winnow {version}"

myst_heading_anchors = 4
breathe_projects = {"winnow": os.environ["WINNOW_DOXYGEN_XML"]}
breathe_default_project = "winnow"
breathe_domain_by_extension = {"h": "c"}
autodoc_member_order = "bysource"
autodoc_mock_imports = ["torch", "transformers", "pandas", "matplotlib", "tqdm", "onnx", "onnxruntime", "google"]
suppress_warnings = ["duplicate_declaration.c"]  # `typedef struct name {...} name;`


# The table of contents: README has none of its own, so it is put below README's text.
CONTENTS = {
    "Begin": ["docs/install", "docs/choosing", "docs/limits", "docs/troubleshooting"],
    "Hosts": ["hosts/ggml/README", "hosts/ggml/variables", "hosts/python/README", "hosts/python/transformers",
              "hosts/onnxruntime/README", "hosts/onnxruntime/strip_cache", "hosts/c/README"],
    "The cache": ["docs/policies", "docs/cache", "docs/recall", "docs/formats", "docs/quality", "docs/performance",
                  "docs/plan", "docs/models", "docs/gpu", "docs/top"],
    "Interfaces": ["docs/abi", "site/c", "site/python"],
    "The project": ["ARCHITECTURE", "CONTRIBUTING", "docs/contributing/*", "CODE_OF_CONDUCT", "SECURITY", "CHANGELOG",
                    "docs/building", "docs/variants", "hosts/ggml/INTERNALS", "docs/glossary"],
    "Laboratory": ["lab/**"],
}


def contents():
    return "".join(f"\n```{{toctree}}\n:hidden:\n:glob:\n:caption: {caption}\n\n" + "\n".join(pages) + "\n```\n"
                   for caption, pages in CONTENTS.items())


def prepared(app, document, source):
    """Links to files that are no pages, and to folders, become their text: the site has pages alone."""
    def text(link):
        target = link[2].split("#")[0]
        page = posixpath.normpath(posixpath.join(posixpath.dirname(document), target.removesuffix(".md")))
        stays = not target or "://" in target or page in app.env.found_docs
        return link[0] if stays else link[1]

    source[0] = re.sub(r"(?<!!)\[((?:[^][]|\[[^]]*\])*)\]\(([^)\s]+)\)", text, source[0])
    if document == app.config.root_doc:
        source[0] += contents()


def with_code(_app, _what, _name, _object, _options, lines):
    """Indented lines of a comment are code, and so are names in backticks."""
    for number in range(len(lines) - 1, -1, -1):
        lines[number] = re.sub(r"(?<!`)`([^`]+)`(?!`)", r"``\1``", lines[number])
        if lines[number].startswith("    ") and (number == 0 or not lines[number - 1].strip()):
            lines[number:number] = ["::", ""]


def setup(app):
    app.connect("source-read", prepared)
    app.connect("autodoc-process-docstring", with_code)
