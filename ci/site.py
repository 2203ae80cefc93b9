"""Builds the site: all pages, the reference of the C headers and that of the Python package, with a search.

    ci/site            # into build/site/html
    ci/site --links    # also asks for each address outside of the project whether it answers

A warning is an error: a link to a page or heading that is not there, or a header that Doxygen cannot read. Installs
Doxygen by apt, and Sphinx into ${XDG_CACHE_HOME:-~/.cache}/winnow-dev.
"""

import argparse
import os

import parts

SITE = parts.SOURCE / "site"
BUILD = parts.SOURCE / "build" / "site"
PACKAGES = ("sphinx==9.0.4", "myst-parser==5.2.0", "furo==2025.12.19", "breathe==5.1.0", "numpy==2.4.6")


def arguments():
    introduction, details = __doc__.split("\n\n", 1)
    parser = argparse.ArgumentParser(prog="ci/site", description=introduction, epilog=details,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--links", action="store_true", help="also check addresses outside of the project")
    return parser.parse_args()


def python():
    """A Python with Sphinx, its extensions and what the Python package imports."""
    return parts.python_with(f"site-{parts.versions(PACKAGES)}", PACKAGES)


def doxygen():
    """The headers' reference as XML; returns its folder."""
    settings = (SITE / "doxygen.cfg").read_text(encoding="utf-8") + f"OUTPUT_DIRECTORY = {BUILD}\n"
    parts.run(["doxygen", "-"], input=settings, text=True, cwd=parts.SOURCE)
    return BUILD / "xml"


def sphinx(builder, xml):
    parts.run([python(), "-B", "-m", "sphinx", "-W", "--keep-going", "-q", "-b", builder, "-c", SITE, parts.SOURCE,
               BUILD / builder], env=os.environ | {"WINNOW_DOXYGEN_XML": str(xml)})


def main():
    options = arguments()
    parts.setup("site")
    BUILD.mkdir(parents=True, exist_ok=True)
    xml = doxygen()
    sphinx("html", xml)
    if options.links:
        sphinx("linkcheck", xml)
    parts.say(f"the site is in {BUILD / 'html'}")


if __name__ == "__main__":
    parts.run_main("ci/site", main)
