"""Measures caches of Winnow's provider beside ORT's own, on one model in ONNX, each run in a process of its own.

    measure.py FOLDER memory  --winnow LIBRARY --text FILE    # memory and time of one long sequence
    measure.py FOLDER quality --winnow LIBRARY --text FILE    # BLEU against the full cache, and perplexity
    measure.py FOLDER limit   --winnow LIBRARY --text FILE    # how far each gets where the full cache just fits

FOLDER is what models.py wrote, with --last-logits: logits of a whole prompt would take more memory than the cache.
"ort" is ORT's own kernel with a present for each call, "shared" the same with one buffer as past and present; every
other cache is a configuration of Winnow's, which runs the model without past and present. The prompt comes in calls of
--chunk tokens; for `quality`, where --rows sequences are a batch, in one call. Tables are in Markdown.

Memory is resident memory: its peak while decoding less what it was after the model was loaded and had computed one
short prompt, and the peak of the whole process. `limit` lets "shared", which takes less than "ort", decode --tokens,
and gives each cache as much memory for as many tokens and for half as many again: it kills a process whose resident
memory grows beyond that.
"""

import argparse
import contextlib
import ctypes
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import decode

HERE = Path(__file__).resolve().parent
OWN = ("ort", "shared")  # ORT's own caches
CACHES = (*OWN, "none:k=f32,v=f32", "none:k=f16,v=f16", "winnow",
          *(f"hierarchical:budget={budget}{more}" for budget, more in (
              ("1/2", ""), ("1/2", ",thresholds=conservative"), ("1/2", ",profile=code"),
              ("1/2", ",profile=summarize"), ("1/2", ",profile=long_form"), ("1/4", ""), ("1/8", ""))),
          "winnow:budget=1/2", "winnow:budget=1/4", "winnow:budget=1/8", "winnow:budget=1/8,recall=host")
MARGIN = 1.05  # by which the most of some processes may be passed by another one


def status(name, process="self"):
    """MiB of a line of a process's status; 0 after its end."""
    with open(f"/proc/{process}/status") as lines:
        return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:")), 0)


class Run:
    """What one process does with one cache."""

    def __init__(self, options):
        self.options, self.text = options, json.loads(options.ids.read_text())
        self.open(options.tokens, options.rows if options.what == "quality" else 1)

    def open(self, most, rows=1):
        """Makes a session for batches of sequences of so many tokens, of which a budget is a share."""
        options, self.most = self.options, most
        own = options.cache in OWN
        settings = {"kv": options.cache, "max_tokens": str(most), "max_batch": str(rows)}
        settings |= dict(each.split("=", 1) for each in options.set)
        self.session = decode.session(str(options.folder / "model.onnx" if own else options.stripped),
                                      None if own else options.winnow, settings, options.threads)

    def sequence(self, rows=1):
        return decode.Sequence(self.session, self.most if self.options.cache == "shared" else 0, rows)

    def batches(self, excerpts):
        """Excerpts by --rows, and a sequence for each batch."""
        for begin in range(0, len(excerpts), self.options.rows):
            rows = excerpts[begin:begin + self.options.rows]
            yield self.sequence(len(rows)), np.array(rows)

    def excerpts(self, count, length):
        """Parts of the text, evenly spaced."""
        if len(self.text) < length:
            sys.exit(f"measure: the text has {len(self.text)} tokens, expected at least {length}")
        starts = np.linspace(0, len(self.text) - length, count).astype(int)
        return [self.text[start:start + length] for start in starts]

    def warm_up(self):
        """Has kernels made, and their compiler's memory given back, which would hide what follows."""
        decode.Sequence(self.session).step(self.text[:8])
        ctypes.CDLL(None).malloc_trim(0)

    def memory(self):
        self.warm_up()
        loaded, before = status("VmRSS"), status("VmHWM")
        print(loaded, flush=True)
        Path("/proc/self/clear_refs").write_text("5")  # the peak is that of what follows
        options = self.options
        [prompt] = self.excerpts(1, options.tokens - options.new)
        _, first, later = decode.greedy(self.sequence(), prompt, options.new, options.chunk)
        peak = status("VmHWM")
        return {"added": peak - loaded, "peak": max(before, peak), "first": first, "later": float(np.median(later))}

    def quality(self):
        options = self.options
        texts = [text for sequence, prompts in self.batches(self.excerpts(options.prompts, options.prompt))
                 for text in decode.greedy(sequence, prompts, options.new)[0]]
        self.open(options.context, options.rows)
        losses = [loss for sequence, tokens in self.batches(self.excerpts(options.contexts, options.context))
                  for loss in self.losses(sequence, tokens)]
        return {"texts": texts, "losses": losses}

    def losses(self, sequence, tokens):
        """Mean negative log-likelihood of each row's second half, decoded token by token after the first."""
        half = tokens.shape[1] // 2
        logits, total = sequence.prompt(tokens[:, :half]), np.zeros(len(tokens))
        for token in tokens[:, half:].T:
            logits = logits.astype(np.float64)
            total += np.logaddexp.reduce(logits, axis=-1) - logits[np.arange(len(token)), token]
            logits = sequence.step(token)[:, -1]
        return (total / (tokens.shape[1] - half)).tolist()

    limit = memory


def child(options, cache, most=math.inf, **changes):
    """What a process of its own found out. None if it was killed, as it took more than `most` MiB for a sequence."""
    arguments = vars(options) | changes | {"cache": cache}
    with subprocess.Popen([sys.executable, "-B", __file__, str(options.folder), options.what, "--child",
                           json.dumps(arguments, default=str)], stdout=subprocess.PIPE, text=True) as process:
        first = process.stdout.readline()
        while most < math.inf and first and process.poll() is None:
            if status("VmRSS", process.pid) - float(first) > most:
                process.kill()
                return None
            time.sleep(.002)
        rest = process.stdout.read()
    if process.returncode != 0:
        sys.exit(f"measure: {cache} ended with status {process.returncode}")
    found = json.loads((rest or first).splitlines()[-1])
    return None if found.get("added", 0) > most else found


def print_row(*cells):
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def print_head(*cells):
    print_row(*cells)
    print_row(*["---"] * len(cells))


def memory(options):
    print(f"{options.tokens} tokens, the last {options.new} decoded; medians of {options.rounds} processes.\n")
    print_head("cache", "for the sequence, MiB", "peak of the process, MiB", "first token, s", "each later one, ms",
               "ratio to the first row")
    usual = None
    runs = {cache: [] for cache in options.caches}
    for number in range(options.rounds + 1):
        for cache in options.caches:
            if number > 0:
                runs[cache].append(child(options, cache))
            elif cache not in OWN:
                child(options, cache)  # compiles kernels
    for cache, found in runs.items():
        of = {name: statistics.median(each[name] for each in found) for name in found[0]}
        usual = usual or of["later"]
        print_row(f"`{cache}`", f"{of['added']:.1f}", f"{of['peak']:.0f}", f"{of['first']:.2f}",
                  f"{1e3 * of['later']:.2f}", f"{of['later'] / usual:.2f}")


def quality(options):
    import sacrebleu
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(options.folder / "tokenizer.json"))
    print(f"{options.prompts} continuations of {options.new} tokens after {options.prompt}, greedily; perplexity of "
          f"the second half of {options.contexts} contexts of {options.context} tokens. BLEU is against the first "
          "row.\n")
    print_head("cache", "BLEU", "same texts", "perplexity", "against the first row")
    expected = None
    for cache in options.caches:
        found = child(options, cache)
        texts = [tokenizer.decode(tokens) for tokens in found["texts"]]
        perplexity = math.exp(statistics.mean(found["losses"]))
        expected = expected or (texts, perplexity)
        same = sum(text == other for text, other in zip(texts, expected[0]))
        print_row(f"`{cache}`", f"{sacrebleu.corpus_bleu(texts, [expected[0]]).score:.1f}", f"{same} of {len(texts)}",
                  f"{perplexity:.3f}", f"{100 * (perplexity / expected[1] - 1):+.2f}%")


def limit(options):
    usual, longer = [child(options, "shared")["added"] for _ in range(options.rounds)], options.tokens * 3 // 2
    most = max(usual) * MARGIN
    print(f"`shared` takes {min(usual):.0f} to {max(usual):.0f} MiB for {options.tokens} tokens ({options.rounds} "
          f"processes). What takes more than {most:.0f} MiB is killed.\n")
    print_head("cache", f"{options.tokens} tokens", f"{longer} tokens")
    for cache in options.caches:
        found = [child(options, cache, most, tokens=tokens) for tokens in (options.tokens, longer)]
        print_row(f"`{cache}`", *(f"goes on, with {each['added']:.0f} MiB" if each else "killed" for each in found))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("what", choices=("memory", "quality", "limit"))
    parser.add_argument("--winnow", metavar="LIBRARY", type=Path, help="Winnow's provider")
    parser.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], help="an option of the provider")
    parser.add_argument("--text", type=Path, help="what prompts and contexts are taken from")
    parser.add_argument("--cache", action="append", dest="caches", metavar="CACHE",
                        help="instead of the usual ones; ort, shared, or a configuration")
    parser.add_argument("--threads", type=int, default=0, help="of ORT; 0: as many as there are cores")
    parser.add_argument("--chunk", type=int, default=256, help="memory, limit: the most tokens of a call of a prompt")
    parser.add_argument("--rounds", type=int, default=3, help="processes for each cache, in turns; limit: for shared")
    parser.add_argument("--tokens", type=int, default=2048, help="memory, limit: of the sequence")
    parser.add_argument("--new", type=int, default=64, help="of these, or after each prompt, decoded greedily")
    parser.add_argument("--prompts", type=int, default=200, help="quality: how many")
    parser.add_argument("--prompt", type=int, default=448, help="quality: tokens of a prompt")
    parser.add_argument("--rows", type=int, default=8, help="quality: sequences of a batch")
    parser.add_argument("--contexts", type=int, default=4, help="quality: for the perplexity")
    parser.add_argument("--context", type=int, default=2048, help="quality: tokens of one")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    return parser.parse_args()


@contextlib.contextmanager
def stripped_beside(model):
    """The model without past and present, in its folder, where its weights need no copy; removed at the end."""
    sys.path.insert(0, str(HERE.parent / "python"))
    from winnowkv.onnx import strip_cache_files

    path = model.with_name(f"stripped-{os.getpid()}.onnx")
    try:
        strip_cache_files(model, path)
        yield path
    finally:
        path.unlink(missing_ok=True)


def main():
    options = arguments()
    if options.child:
        made = argparse.Namespace(**json.loads(options.child))
        made.folder, made.stripped, made.ids = Path(made.folder), Path(made.stripped), Path(made.ids)
        print(json.dumps(getattr(Run(made), made.what)()))
        return
    options.caches = options.caches or list(CACHES)
    if options.text is None:
        sys.exit("measure: --text FILE is missing")
    if options.winnow is None and set(options.caches) - set(OWN):
        sys.exit("measure: --winnow LIBRARY is missing, for caches other than ort and shared")
    if options.what == "quality":
        options.tokens = options.prompt + options.new
    from tokenizers import Tokenizer

    with tempfile.TemporaryDirectory() as folder, stripped_beside(options.folder / "model.onnx") as options.stripped:
        options.ids = Path(folder) / "ids.json"
        text = Tokenizer.from_file(str(options.folder / "tokenizer.json")).encode(options.text.read_text("utf-8"))
        options.ids.write_text(json.dumps(text.ids))
        {"memory": memory, "quality": quality, "limit": limit}[options.what](options)


if __name__ == "__main__":
    main()
