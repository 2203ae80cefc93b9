"""Options that the adapters' command lines have in common."""

import os
from pathlib import Path
from typing import Annotated

import typer

from winnow_eval import Failure

# Of adapters that compare logits.
MODEL = Annotated[Path | None, typer.Option(metavar="FILE.gguf", help="the model")]
TEXT = Annotated[Path | None, typer.Option("--text", metavar="FILE", help="the text to measure on, UTF-8")]
CONTEXTS = Annotated[str, typer.Option(metavar="N,...", help="context lengths in tokens")]
COUNT = Annotated[int, typer.Option(metavar="N", help="contexts of each length")]
PART = Annotated[str, typer.Option(metavar="all|first|second", help="all of the text or a half, as winnow eval takes "
                                   "it")]
OUT = Annotated[Path, typer.Option(metavar="DIR", help="folder of results; finished contexts in it are kept")]
FRESH = Annotated[bool, typer.Option("--fresh", help="forget the contexts that --out keeps")]

# Of adapters that compute with Winnow.
BACKEND = Annotated[Path | None, typer.Option(metavar="FILE.so", help="libwinnow_opencl.so, or another backend; "
                                              "otherwise what winnowkv finds")]

LLAMA_CPP = Annotated[Path | None, typer.Option(metavar="DIR", help="folder of llama.cpp's programs, whose library "
                                                "tells the tokens; otherwise $WINNOW_LLAMA_CPP_BIN")]


def llama_cpp_folder(given):
    """The folder of llama.cpp's programs: --llama-cpp, or else what the environment names."""
    return given or os.environ.get("WINNOW_LLAMA_CPP_BIN")


def check_given(llama_cpp, **files):
    """Raises Failure where an option is missing, or names a file that is not there. files: by the option's name."""
    for name, given in (*files.items(), ("llama-cpp", llama_cpp)):
        if given is None:
            raise Failure(f"--{name}: missing (see --help)")
    for name, given in files.items():
        if not Path(given).is_file():
            raise Failure(f"--{name}: no file {given}")


def shape_of(model):
    """Reads from a GGUF file the elements of a KV head and the longest context in tokens."""
    from gguf import GGUFReader

    try:
        fields = GGUFReader(model).fields
        family = fields["general.architecture"].contents()

        def read(name):
            return fields[f"{family}.{name}"].contents()

        has_size = f"{family}.attention.key_length" in fields
        size = read("attention.key_length") if has_size else read("embedding_length") // read("attention.head_count")
        return size, read("context_length")
    except (ValueError, KeyError) as error:
        raise Failure(f"--model: cannot read {model.name}: {error}; expected a GGUF file") from error
