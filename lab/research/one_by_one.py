"""How exact the measure of `winnow eval` is on a real model, token by token: of llama.cpp's own f16 cache, and of one
that Winnow keeps, in batches and decoded; and what a policy's cache gives that is decoded inside of batches, beside
what it gives where llama.cpp hands over one token at a time (-b 1 -ub 1).

    one_by_one.py --measure winnow-measure --llama-cpp DIR --plugin libwinnow_ggml.so --model M.gguf --text FILE

Of one context, the second half of which is scored; the weights are dequantized first. In nats: of the exact caches
KL divergences from the base, of a policy's what the logarithm of a token's probability is off from that of the token by
itself.
"""

import argparse
import os
import statistics
import tempfile
from pathlib import Path

import recorded_rows  # which has lab/eval in the path
from winnow_eval import configs, measure
from winnow_calibrate import text, weights
from winnow_calibrate.host import Host, find_plugin, find_programs

POLICIES = ("winnow:budget=1/4", "h2o:budget=1/4", "winnow:budget=1/16,recall=host")
BATCH = 512


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", type=Path, required=True, help="winnow-measure")
    recorded_rows.add_files(parser)
    recorded_rows.add_part(parser)
    parser.add_argument("--context", type=int, default=2048, help="tokens (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="of llama.cpp (default: %(default)s)")
    parser.add_argument("config", nargs="*", default=POLICIES, help="policies (default: %(default)s)")
    return parser.parse_args()


def told(values):
    return f"{statistics.fmean(values):.2g} in the mean, {max(values):.2g} at most"


class Modes:
    """The first context of the text in a measure.Measure: its second half in batches and decoded, and, from now on,
    token by token."""

    def __init__(self, process, given, source):
        self.process, self.given, self.source = process, given, source
        self.middle = given.context // 2
        self.read(None)

    def read(self, alone_from):
        self.process.read(self.source, self.given.context, self.middle, alone_from)
        self.process.run(configs.BASE, 0, base=True)

    def run(self, config, is_decoded=False):
        decode_from = self.middle if is_decoded else None
        one = self.process.run(config, 0, decode_from=decode_from)
        if config.kv:
            decoded = self.given.context - self.middle if is_decoded else 0
            for cache in one.run.report["caches"]:
                if cache["decoded"] != decoded:
                    raise SystemExit(f"{config}: {cache['decoded']} tokens were decoded, expected {decoded}")
        return one


def compare(modes, policies):
    """Prints what the exact caches are off, and what each way of a policy is off from tokens by themselves."""
    dense = configs.parse("none:k=f16,v=f16")
    for name, one in ((configs.CONTROL, modes.run(configs.CONTROL)), (f"{dense}, in batches", modes.run(dense)),
                      (f"{dense}, decoded", modes.run(dense, is_decoded=True))):
        print(f"{name}: {told(one.kld)}", flush=True)
    ways = {config: {"decoded": modes.run(config, is_decoded=True), "in batches": modes.run(config)}
            for config in policies}
    modes.read(modes.middle)
    for config, its in ways.items():
        alone = modes.run(config)
        for name, one in its.items():
            away = [abs(a - b) for a, b in zip(one.nll, alone.nll)]
            print(f"{config}, {name}: {told(away)}; divergence {statistics.fmean(one.kld):.5f}, by itself "
                  f"{statistics.fmean(alone.kld):.5f}", flush=True)


def main():
    given = options()
    os.environ["WINNOW_EVAL_MEASURE"] = str(given.measure)
    with tempfile.TemporaryDirectory(prefix="winnow-one-by-one-") as folder:
        source, _ = text.prepare(given.text, given.part, Path(folder))
        model = Path(folder) / "f32.gguf"
        weights.write_f32(given.model, model)
        host = Host(find_programs(given.llama_cpp), find_plugin(given.plugin), model, BATCH, BATCH, given.threads)
        with measure.Measure(host, model) as process:
            compare(Modes(process, given, source), [configs.parse(config) for config in given.config])


if __name__ == "__main__":
    main()
