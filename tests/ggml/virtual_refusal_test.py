"""What a virtual cache cannot do fails, and says why: a string that is no configuration, a cache type besides it,
attention without flash attention.
"""

import llama_cpp
from llama_cpp import expect


def complete(host, options, kv, *arguments, status=1):
    out, err, _ = host.run("llama-completion", "-m", options.model, "-p", "The keeper of the lighthouse", "-n", 4,
                           "--temp", 0, "--seed", 1, "-no-cnv", "-c", 256, "-t", 2, "--no-warmup", "-dev", "Winnow",
                           *arguments, winnow=True, status=status, environment={"WINNOW_KV": kv})
    return out + err


def refuse(host, options, kv, arguments, wanted):
    text = complete(host, options, kv, *arguments)
    line = next((line for line in text.splitlines() if all(part in line for part in wanted)), None)
    expect(line, f"WINNOW_KV={kv} {' '.join(arguments)}: no line with {wanted} in\n{text[-3000:]}")
    print(f"WINNOW_KV={kv} {' '.join(arguments)}: {line}")


def test():
    parser = llama_cpp.parser(__doc__)
    parser.add_argument("--model", required=True, help="GGUF file, weights in F32")
    options = parser.parse_args()
    host = llama_cpp.Host(options)
    refuse(host, options, "h3o:budget=1/4", ["-fa", "on"], ['no policy "h3o"', "winnow, window, h2o"])
    refuse(host, options, "h2o:budet=1/4", ["-fa", "on"], ['no key "budet"', "budget, k, v"])
    refuse(host, options, "h2o:k=q9", ["-fa", "on"], ["q9", "turbo4"])
    refuse(host, options, "winnow", ["-fa", "on", "-ctk", "q8_0"], ["cache_k_l0 is of type q8_0", "f16"])
    refuse(host, options, "winnow", ["-fa", "off"], ["cache_v_l0", "-fa on"])


llama_cpp.main(test)
