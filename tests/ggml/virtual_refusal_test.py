"""What a virtual cache cannot do: a string that is no configuration and a cache type besides it fail and say why;
without flash attention the cache stays in place, says why, and the text is the host's own. Of keys with a bias in few
bits it warns.
"""

import copy

import llama_cpp
import random_models
from llama_cpp import expect


def complete(host, options, kv, *arguments, status=1, environment=None):
    """(stdout, stderr, report)"""
    return host.run("llama-completion", "-m", options.model, "-p", "The keeper of the lighthouse", "-n", 4, "--temp", 0,
                    "--seed", 1, "-no-cnv", "-c", 256, "-t", 1, "--no-warmup", "--no-display-prompt", "-dev", "Winnow",
                    *arguments, winnow=True, status=status, environment={"WINNOW_KV": kv} | (environment or {}))


def refuse(host, options, kv, arguments, wanted, environment=None):
    text = "".join(complete(host, options, kv, *arguments, environment=environment)[:2])
    line = next((line for line in text.splitlines() if all(part in line for part in wanted)), None)
    expect(line, f"WINNOW_KV={kv} {' '.join(arguments)}: no line with {wanted} in\n{text[-3000:]}")
    print(f"WINNOW_KV={kv} {' '.join(arguments)}: {line}")


def stay_in_place(host, options, arguments):
    expected, _, report = complete(host, options, "", *arguments, status=0)
    expect(report["in_place"] == [], f"in place without WINNOW_KV: {report['in_place']}")
    found, err, report = complete(host, options, "winnow:budget=1/4", *arguments, status=0)
    expect(report["kv"] == "" and report["caches"] == [], f"a virtual cache: {report['caches']}")
    (cache,) = report["in_place"]
    print(cache)
    expect((cache["name"], cache["asked"], cache["operation"]) == ("cache_k_l0", "winnow:budget=1/4", "SET_ROWS"),
           f"another cache or operation: {cache}")
    expect("cache_v_l0" in cache["reason"] and "-fa on" in cache["reason"], f"another reason: {cache['reason']}")
    expect(err.count("stays in place") == 1 and cache["reason"] in err, f"not one warning:\n{err[-3000:]}")
    expect(found == expected and len(found) > 8, f"other text\nwithout WINNOW_KV: {expected}\nwith it: {found}")


def warn_of_biased_keys(host, options):
    """Once for each cache whose keys have a bias and are stored in few bits, however the file has the bias."""
    few, fused, separate = (copy.copy(options) for _ in range(3))
    few.model = random_models.make("sinks", options.work)
    fused.model = random_models.llama(3, 1, 64, bias="qkv").write(options.work / "random-qkv-bias.gguf")
    separate.model = random_models.llama(3, 1, 64, bias="k").write(options.work / "random-k-bias.gguf")
    for model, kv, count in ((few, "winnow", random_models.caches("sinks")),
                             (few, "none:k=q8_0,fine=0,k_fine=turbo4", 1), (few, "none", 0),
                             (few, "winnow:k=q8_0", 0), (fused, "winnow", 1), (separate, "winnow", 1),
                             (options, "winnow", 0)):
        _, err, report = complete(host, model, kv, "-fa", "on", status=0)
        llama_cpp.virtual_caches(report)
        lines = [line for line in err.splitlines() if "the model adds a bias to its keys, and " in line]
        expect(len(lines) == count, f"WINNOW_KV={kv}: not {count} warnings of a bias:\n{err[-3000:]}")
        expect(all("expected 8 bits for all keys, for example winnow:k=q8_0" in line for line in lines), lines)
        print(f"WINNOW_KV={kv}, {model.model}: {lines or 'no warning of a bias'}")


def test():
    options = llama_cpp.parser(__doc__, "model").parse_args()
    host = llama_cpp.Host(options)
    refuse(host, options, "h3o:budget=1/4", ["-fa", "on"], ['no policy "h3o"', "winnow, window, h2o"])
    refuse(host, options, "h2o:budet=1/4", ["-fa", "on"], ['no key "budet"', "budget, k, v"])
    refuse(host, options, "h2o:k=q9", ["-fa", "on"], ["q9", "turbo4"])
    refuse(host, options, "winnow", ["-fa", "on", "-ctk", "q8_0"], ["cache_k_l0 is of type q8_0", "f16"])
    refuse(host, options, "[layer=2]none;winnow", ["-fa", "on"], ['"layer=2"', "layers=, kv_heads="])
    refuse(host, options, "[layers=2]none;winow", ["-fa", "on"], ['no policy "winow"'])
    for pressure in ("1.5", "often", "nan", "0x1p-1", "+.5", ".5 "):
        refuse(host, options, "winnow", ["-fa", "on"], [f"WINNOW_PRESSURE={pressure}: expected auto"],
               {"WINNOW_PRESSURE": pressure})
    for position in ("-1", "half", "1.5"):
        refuse(host, options, "winnow", ["-fa", "on"], [f"WINNOW_DECODE_FROM={position}: expected a position"],
               {"WINNOW_DECODE_FROM": position})
    refuse(host, options, "", ["-fa", "on"], ["WINNOW_KV_SWA=none: expected with WINNOW_KV"], {"WINNOW_KV_SWA": "none"})
    for words, complaint in (("profiles", '"profiles" is none of'), ("profile, samples", '" samples" is none of'),
                             ("samples", "expected with profile"),
                             ("whole_rows", "expected with WINNOW_REPORT_ROWS")):
        refuse(host, options, "winnow", ["-fa", "on"], [f"WINNOW_REPORT_WITH={words}: ", complaint],
               {"WINNOW_REPORT_WITH": words})
    stay_in_place(host, options, ["-fa", "off"])
    warn_of_biased_keys(host, options)


llama_cpp.main(test)
