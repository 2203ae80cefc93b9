"""Weights elsewhere: llama.cpp's RPC server has a model's weights, or some of its layers, Winnow the attention here.

With every layer's weights on the server (-ot) all attention is Winnow's. With the layers divided between Winnow and the
server (-ts) it is that of Winnow's layers. The text is that of llama.cpp alone with the weights on the server. Weights
on a device that -dev does not name end llama.cpp, with Winnow and without.
"""

import re
import socket
import time

import llama_cpp
import random_models
from llama_cpp import expect
from llama_server import free_port

SERVERS = ("ggml-rpc-server", "rpc-server")  # its names, the newest first
PROMPT = 200  # characters
TOKENS = 48
CONTEXT = 512
START = 30  # seconds until it has to listen
EXACT = "none:k=f16,v=f16"
KINDS = (None, EXACT, "winnow")


class RpcServer:
    """The server while a `with` lasts."""

    def __init__(self, host):
        self.host = host
        self.name = next((name for name in SERVERS if (host.programs / name).exists()), None)
        expect(self.name, f"{host.programs} has none of {', '.join(SERVERS)}")
        self.address = f"127.0.0.1:{free_port()}"

    def __enter__(self):
        ip, port = self.address.split(":")
        self.process = self.host.start(self.name, "-H", ip, "-p", port, winnow=False)
        end = time.monotonic() + START
        while time.monotonic() < end:
            try:
                socket.create_connection((ip, int(port)), timeout=1).close()
                return self
            except ConnectionRefusedError:
                time.sleep(.05)
        self.__exit__()
        raise llama_cpp.Failure(f"{self.name} does not listen on {self.address}")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def arguments_of(options, server, devices, *more):
    return [*llama_cpp.completion(options.model, TOKENS, CONTEXT, "-f", options.prompt), "--no-warmup", "--rpc",
            server.address, "-dev", devices, *more]


def weights_on(server):
    return ["-ot", rf"blk\.\d+\.=RPC0[{server.address}]"]


def generate(host, arguments, winnow, kv=None):
    """(text, report)"""
    out, _, report = host.run("llama-completion", *arguments, winnow=winnow, environment=llama_cpp.kv_environment(kv))
    return out.strip(), report


def attended_layers(report):
    return [name for name, counts in report["tensors"].items()
            if name.startswith(llama_cpp.LAYER_PREFIX) and counts["attention_calls"] >= TOKENS]


def expect_layers(what, report, kv, count):
    """So many layers had their attention in Winnow, for each token, and their cache was virtual where it was to be."""
    expect(report is not None, f"{what}: the plugin was not called: it wrote no report")
    attended = attended_layers(report)
    print(f"{what}: {report['attention_calls']} attention calls, of {', '.join(attended)}")
    expect(len(attended) == count, f"{what}: attention of {len(attended)} layers, expected {count}: {report}")
    virtual = sum(cache["layers"] for cache in report["caches"])
    expect(virtual == (count if kv else 0) and not report["in_place"], f"{what}: {virtual} virtual layers: {report}")


def expect_end(host, options, server, devices, winnow):
    """Weights where no device of the context's is: llama.cpp stops, and says of which tensor."""
    out, err, _ = host.run("llama-completion", *arguments_of(options, server, devices, *weights_on(server)),
                           winnow=winnow, status=None)
    found = re.search(r"pre-allocated tensor \(\S+\) in a buffer \(RPC\S*\) that cannot run the operation", out + err)
    expect(found, f"-dev {devices} with weights on the server goes on, or ends otherwise:\n{(out + err)[-3000:]}")
    print(f"-dev {devices}: {found[0]}")


def test():
    options = llama_cpp.parser(__doc__, "text").parse_args()
    options.prompt = llama_cpp.prompt_file(options, options.text.read_text(encoding="utf-8")[:PROMPT])
    options.model = random_models.make("plain", options.work)
    layers = random_models.LAYERS
    host = llama_cpp.Host(options)
    with RpcServer(host) as server:
        expected, _ = generate(host, arguments_of(options, server, "RPC0"), winnow=False)
        print(f"llama.cpp, all on the server: {expected}")
        divisions = {"weights on the server": (["-ts", "1,0", *weights_on(server)], layers),
                     "half of the layers on the server": (["-ts", "1,3"], layers // 2)}
        for name, (division, count) in divisions.items():
            for kv in KINDS:
                what = f"{name}, {kv or 'in place'}"
                text, report = generate(host, arguments_of(options, server, "Winnow,RPC0", *division), True, kv)
                expect_layers(what, report, kv, count)
                if kv == "winnow":
                    expect(len(text) >= TOKENS, f"{what}: the text is too short: {text}")
                else:
                    llama_cpp.expect_same_text(text, expected, what)
        expect_end(host, options, server, "Winnow", winnow=True)
        expect_end(host, options, server, "none", winnow=False)


llama_cpp.main(test)
