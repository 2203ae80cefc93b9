"""Context shift with WINNOW_KV: half of a full context is dropped, and what comes after it moves up. Without a budget
the text is the cache's in place, for families whose keys are rotated whole and in part (latent); within one there is a
text, and the budget is kept, or pages are picked. With a layer one family is shifted on a GPU with memory of its own.
"""

import llama_cpp
import random_models
from llama_cpp import expect
from llama_server import Server

CONTEXT = 256
PROMPT = 200  # characters, of which most are a token
KEEP = 16
START = 1000  # of the prompt, in the text: after it no two tokens are likely alike
TOKENS = 140  # with the prompt more than the context
BUDGET = 64
UNLIMITED = "none:k=f16,v=f16"
LIMITED = (f"window:budget={BUDGET},k=f16,v=f16", f"winnow:budget={BUDGET}")
FAMILIES = ("plain", "latent", "hybrid", "uneven")


def uses_of(options):
    """{name: (model, a function that shifts its context)}"""
    programs = [("llama-completion", complete)] + ([] if options.layer else [("llama-server", serve)])
    families = FAMILIES[:1] if options.layer else FAMILIES
    return {f"{family}, {name}": (random_models.make(family, options.work), use)
            for name, use in programs for family in families}


def complete(host, options, model, kv):
    prompt = llama_cpp.prompt_file(options, options.prose[:PROMPT])
    return llama_cpp.complete(host, kv, model, TOKENS, CONTEXT, "-f", prompt, "-ub", 64, "--no-warmup",
                              "--context-shift", "--keep", KEEP)


def serve(host, options, model, kv):
    """The same by llama-server, with a slot beside it that is not shifted."""
    with Server(host, kv, "-m", model, "-c", 2 * CONTEXT, "-np", 2, "-ub", 64, "--cache-ram", 0, "--ctx-checkpoints", 0,
                "--context-shift", "--keep", KEEP) as server:
        other = server.complete(1, options.prose[PROMPT:PROMPT + PROMPT // 2], TOKENS // 4)["content"]
        first = server.complete(0, options.prose[:PROMPT], TOKENS)["content"]
        more = server.complete(1, options.prose[PROMPT:PROMPT + PROMPT // 2] + other, TOKENS // 8)["content"]
    return first + "\n" + more, server.report


def test():
    options = llama_cpp.parser(__doc__, "text").parse_args()
    options.prose = options.text.read_text(encoding="utf-8")[START:]
    host = llama_cpp.Host(options)
    for name, (model, use) in uses_of(options).items():
        expected, report = use(host, options, model, None)
        llama_cpp.expect_in_place(report, name)
        for kv in (UNLIMITED, *([] if options.layer else [llama_cpp.recall_of_all(options)])):
            found, report = use(host, options, model, kv)
            llama_cpp.expect_device(options, report)
            for cache in llama_cpp.virtual_caches(report):
                expect(cache["tokens_seen"] > cache["cells"], f"{name}: the cells were enough without a shift: {cache}")
            print(f"{name}, {kv}: {found}")
            llama_cpp.expect_same_text(found, expected, name)
        for kv in LIMITED:
            found, report = use(host, options, model, kv)
            print(f"{name}, {kv}: {found}")
            expect(len(found) >= TOKENS, f"{name}, {kv}: the text is too short: {found}")
            for cache in llama_cpp.virtual_caches(report):
                llama_cpp.expect_budget(cache, BUDGET)
            llama_cpp.expect_device(options, report)
        if options.layer:
            continue
        found, report = use(host, options, model, llama_cpp.recall_of_few(options))
        print(f"{name}, few pages: {found}")
        expect(len(found) >= TOKENS, f"{name}, few pages: the text is too short: {found}")
        llama_cpp.expect_picks(llama_cpp.virtual_caches(report))


llama_cpp.main(test)
