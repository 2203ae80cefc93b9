"""What a model's attention looks like in each layer and head, on a text: recorded by the plugin while llama.cpp reads.

The numbers are those by which the policy adaptive_budget divides a budget among layers: entropy of a query's
probabilities, concentration (what the largest tenth of them hold), variance of what a token gets over time. Beside
them stands what the newest 50 and the newest 100 tokens hold.
"""

import csv
import io
import re
from dataclasses import replace

from winnow_calibrate import Failure, logs
from winnow_calibrate.config import Config
from winnow_calibrate.host import calls_per_layer, micro_batches
from winnow_calibrate.storage import write_atomically, write_json

FORMAT = 1
NUMBERS = ("entropy", "concentration", "variance")
SHARES = ("newest_50", "newest_100")
RECORDED = (*NUMBERS, *SHARES)
# All tokens in f16: the attention of the model itself.
CONFIG = Config("none", "winnow", kv="none", environment=(("WINNOW_REPORT_WITH", "profile"),))


def with_samples(rows):
    """The same, with what networks are trained on, and in the file `rows` what codebooks are."""
    return replace(CONFIG, environment=(("WINNOW_REPORT_WITH", "profile,samples"), ("WINNOW_REPORT_ROWS", str(rows))))


PROGRAM = "llama-perplexity"
TOO_SHORT = "you need at least"  # what it says of a text of less than two contexts
READ = re.compile(r"over (\d+) chunks")  # contexts, of which a text may have fewer than it is asked for
COMMON = ["--no-warmup", "-lv", "4"]  # 4: with the sizes of caches
FEWEST = 64  # tokens of a context: the plugin counts queries that see 32


def check_length(log, context, count):
    """Fails if the program found the text too short for so many contexts."""
    if TOO_SHORT in log:
        raise Failure(f"--context: the text has less than {2 * context} tokens, and {PROGRAM} reads no text of less "
                      "than 2 contexts; give a longer text or a shorter context")
    found = READ.search(log)
    if found and int(found[1]) < count:
        raise Failure(f"--count: the text has {found[1]} contexts of {context} tokens, {count} were asked for; give a "
                      "longer text, or fewer or shorter contexts")


def record(host, path, context, count, advance=None, config=CONFIG):
    """[{"name", "queries", and for each of RECORDED a list over query heads}] of each layer; with_samples also
    "samples", [[importance, age, attention]] of each KV head."""
    arguments = ["-f", path, "-c", context, "--chunks", count, *COMMON]
    run = host.run_program(PROGRAM, arguments, config,
                           advance and (lambda printed: advance(printed.count(",") / count)),
                           batch=min(host.batch, context))
    check_length(run.stdout + run.stderr, context, count)
    expected = count * micro_batches(host, context)
    calls = calls_per_layer(run, config, logs.cache(run.stderr)["layers"])
    if calls != expected:
        raise Failure(f"{calls} attention calls of each layer for {expected} micro-batches: not all was recorded")
    caches = run.report["caches"]
    if not all("profile" in cache for cache in caches):
        raise Failure("the plugin recorded no profile; it is older than WINNOW_REPORT_WITH")
    layers = [layer for cache in caches for layer in cache["profile"]]
    for layer in layers:
        if layer["queries"] == 0:
            raise Failure(f"{layer['name']}: no query that counts; expected longer contexts")
    return sorted(layers, key=lambda layer: (len(layer["name"]), layer["name"]))


def means(layer):
    """The layer's numbers over all its heads."""
    return {key: sum(layer[key]) / len(layer[key]) for key in RECORDED}


def newest(profile):
    """What the newest 50 and the newest 100 tokens hold, over all layers and heads."""
    layers = [means(layer) for layer in profile["layers"]]
    return tuple(sum(layer[key] for layer in layers) / len(layers) for key in SHARES)


def policy_text(profile):
    """The file that profile_file=... of adaptive_budget names."""
    setting = profile["setting"]
    lines = [f"# {setting['model']}, {setting['contexts']} contexts of {setting['context']} tokens of "
             f"{setting['text']}; by winnow profile", f"# layer {' '.join(NUMBERS)}"]
    for layer in profile["layers"]:
        numbers = means(layer)
        lines.append(" ".join([layer["name"], *(f"{numbers[key]:.6g}" for key in NUMBERS)]))
    return "\n".join(lines) + "\n"


def csv_text(profile):
    """A line for each layer and query head."""
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow(["layer", "head", *RECORDED])
    for layer in profile["layers"]:
        for head, numbers in enumerate(zip(*(layer[key] for key in RECORDED))):
            writer.writerow([layer["name"], head, *numbers])
    return output.getvalue()


def write(profile, folder):
    """profile.json, profile.csv and profile.txt for the policy; gives their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "profile.json", profile)
    write_atomically(folder / "profile.csv", csv_text(profile))
    write_atomically(folder / "profile.txt", policy_text(profile))
    return [folder / f"profile.{kind}" for kind in ("json", "csv", "txt")]
