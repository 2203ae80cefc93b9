"""What command lines that run llama.cpp share: options, and how a program of one command ends."""

import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from winnow_calibrate import Failure

WIDE = 200  # columns of tables that do not go to a terminal
KINDS_OF_WEIGHTS = ("f32", "as-is")

BATCH = Annotated[int, typer.Option(min=1, metavar="N", help="tokens of a batch, llama.cpp's -b")]
THREADS = Annotated[int | None, typer.Option(min=1, metavar="N", help="llama.cpp's -t; by default all processors")]
LLAMA_CPP = Annotated[Path | None, typer.Option(metavar="DIR", help="folder of llama.cpp's programs; otherwise "
                                                "$WINNOW_LLAMA_CPP_BIN, PATH")]
PLUGIN = Annotated[Path | None, typer.Option(metavar="FILE.so", help="libwinnow_ggml.so; otherwise $GGML_BACKEND_PATH, "
                                             "this installation")]
DEVICE = Annotated[str | None, typer.Option(metavar="D", help="the OpenCL device, as WINNOW_DEVICE")]
WEIGHTS = Annotated[str, typer.Option(metavar="|".join(KINDS_OF_WEIGHTS), help="f32: dequantized, so that the rounding "
                                      "of activations does not hide what a cache costs")]
MODEL = Annotated[Path, typer.Option(metavar="FILE.gguf", exists=True, dir_okay=False, help="the model")]
TEXT = Annotated[Path, typer.Option("--text", metavar="FILE", exists=True, dir_okay=False,
                                    help="the text to read, UTF-8")]
CONTEXT = Annotated[int, typer.Option(metavar="N", help="context length in tokens")]
PART = Annotated[str, typer.Option(metavar="all|first|second", help="all of the text or a half, so that profiling and "
                                   "judging use different contexts")]


def plugin_folders():
    """Where the plugin is looked for if nothing names it: the program `winnow` says it."""
    return [path for path in os.environ.get("WINNOW_PLUGIN_FOLDERS", "").split(":") if path]


def or_all(threads):
    """So many threads, or one for each processor that there is."""
    return threads or len(os.sched_getaffinity(0))


def one_of(option, given, known):
    if given not in known:
        raise Failure(f"{option}: \"{given}\", expected {', '.join(known)}")
    return given


def console_for_output():
    return Console() if sys.stdout.isatty() else Console(width=WIDE)


def interrupt(*_):
    raise KeyboardInterrupt


def run_app(name, description, command):
    """A program of one command; what the user has to know becomes a line."""
    signal.signal(signal.SIGTERM, interrupt)
    signal.signal(signal.SIGINT, interrupt)  # also where a shell started this in the background
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(help=description)(command)
    try:
        app(prog_name=name)
    except Failure as failure:
        sys.exit(f"{name}: {failure}")
    except OSError as error:
        sys.exit(f"{name}: {error.filename or 'cannot read or write'}: {error.strerror or error}")
