"""States with WINNOW_KV: what was saved of a cache goes into another, and attention goes on over it. Without a budget
everything that llama.cpp's programs do with states gives the text of the cache in place; within one it gives a text,
and the budget is kept. A damaged slot file of llama-server's fails that slot, until the server clears it. With a layer
llama-completion's states come from a GPU with memory of its own, and go there.
"""

import llama_cpp
import random_models
from llama_cpp import expect
from llama_server import Server

CONTEXT = 512
PROMPT = 200  # characters, of which most are a token
TURN = 60
TOKENS = 32
BUDGET = 64
DEPTH = 256
UNLIMITED = "none:k=f16,v=f16"
PACKED = "none:k=q8_0,v=q8_0"
LIMITED = (f"window:budget={BUDGET},k=f16,v=f16", f"winnow:budget={BUDGET}")
RECALL = "winnow:budget=1/4,recall=host"
COMMON = ["-ub", 64]
SAME_SIZE = .01  # of two files for a token, as a share: they have a head, too


def complete(host, options, kv, state):
    """llama-completion, which keeps what it has read in a file."""
    prompt = llama_cpp.prompt_file(options, options.prose[:PROMPT])
    return llama_cpp.complete(host, kv, options.model, TOKENS, CONTEXT, "-f", prompt, "--no-warmup", "--prompt-cache",
                              state, *COMMON)


def prompt_cache(host, options, kv):
    """A first run that saves, and a second that restores."""
    state = options.work / "state.bin"
    state.unlink(missing_ok=True)
    texts, reports = [], []
    for _ in range(2):
        text, report = complete(host, options, kv, state)
        texts.append(text)
        reports.append(report)
    expect(state.exists(), "nothing was saved")
    state.unlink()
    return texts, reports


def serve(host, options, kv, talk, *arguments):
    with Server(host, kv, "-m", options.model, "-c", CONTEXT, "-np", 1, *COMMON, *arguments) as server:
        texts = talk(server, options)
    return texts, [server.report]


def ask(server, prompt, reused, slot=0):
    answer = server.complete(slot, prompt, TOKENS)
    timings = answer["timings"]
    expect(timings["cache_n"] >= reused, f"only {timings['cache_n']} tokens came from the cache: {timings}")
    return answer["content"]


def slot_files(host, options, kv):
    """llama-server saves a slot, has another talk in it, and restores it."""
    def talk(server, options):
        opening, other, more = (options.prose[i * PROMPT:(i + 1) * PROMPT] for i in range(3))
        first = ask(server, opening, 0)
        saved = server.ask("/slots/0?action=save", {"filename": "slot.bin"})
        second = ask(server, other, 0)
        restored = server.ask("/slots/0?action=restore", {"filename": "slot.bin"})
        expect(saved["n_saved"] == restored["n_restored"] > PROMPT // 2, f"saved {saved}, restored {restored}")
        options.slot_files[kv] = saved["n_saved"], (options.work / "slot.bin").stat().st_size
        return [first, second, ask(server, opening + first + more[:TURN], PROMPT // 2)]

    return serve(host, options, kv, talk, "--cache-ram", 0, "--slot-save-path", str(options.work) + "/")


def cache_ram(host, options, kv):
    """llama-server puts a talk aside for another, and takes it up again."""
    def talk(server, options):
        opening, other, more = (options.prose[i * PROMPT:(i + 1) * PROMPT] for i in range(3))
        first = ask(server, opening, 0, slot=None)
        second = ask(server, other, 0, slot=None)
        return [first, second, ask(server, opening + first + more[:TURN], PROMPT // 2, slot=None),
                ask(server, other + second + more[TURN:2 * TURN], PROMPT // 2, slot=None)]

    return serve(host, options, kv, talk, "--cache-ram", 64)


def bench(host, options, kv):
    """llama-bench restores what is in front of a test before each repetition."""
    tests, report = llama_cpp.bench(host, kv, "-m", options.model, "-p", 64, "-n", 16, "-d", DEPTH, "-r", 2, "-t", 1,
                                    *COMMON)
    rates = [each["avg_ts"] for each in tests]
    expect(len(rates) == 2 and min(rates) > 0, f"the rates are {rates}")
    return [], [report]


def survive_damage(host, options, kv):
    """A slot file with other bytes fails the slot's next request, and no other: the server then clears the slot."""
    path = options.work / "damaged.bin"
    with Server(host, kv, "-m", options.model, "-c", 2 * CONTEXT, "-np", 2, "--no-kv-unified", "--cache-ram", 0,
                "--slot-save-path", str(options.work) + "/", *COMMON) as server:
        opening, other = (options.prose[i * PROMPT:(i + 1) * PROMPT] for i in range(2))
        first = server.complete(0, opening, TOKENS)["content"]
        second = server.complete(1, other, TOKENS)["content"]
        server.ask("/slots/0?action=save", {"filename": path.name})
        state = bytearray(path.read_bytes())
        part = len(state) // 16  # within the keys of one of two layers
        state[5 * part:7 * part] = bytes(byte ^ 4 for byte in state[5 * part:7 * part])
        path.write_bytes(state)
        server.ask("/slots/0?action=restore", {"filename": path.name})
        try:
            used = server.complete(0, opening + first, TOKENS)["content"]
        except llama_cpp.Failure:
            used = None
        expect(used is None, f"{kv}: a damaged state is used: {used}")
        reused = server.complete(1, other + second + opening[:TURN], TOKENS)["timings"]["cache_n"]
        expect(reused > PROMPT // 2, f"{kv}: the other slot has lost its talk: {reused} tokens came from the cache")
        again = server.complete(0, opening, TOKENS)["content"]
        # Within a budget tokens that were removed may have a part of it until their cells are used again.
        expect(again == first or (kv in LIMITED and len(again) >= TOKENS),
               f"{kv}: the slot fails after it was cleared: {again}, before {first}")
    expect("a sequence needs cell" in "".join(server.log), server.failure("does not say which cells are damaged"))
    path.unlink()
    print(f"damaged slot file, {kv}: the slot goes on once it is cleared")


USES = {"prompt cache": prompt_cache, "slot files": slot_files, "cache in memory": cache_ram, "depth": bench}


def expect_one_size(slot_files):
    """A budget makes no file of a slot smaller: each token takes what it takes in place (hosts/ggml/README.md)."""
    tokens, size = slot_files[None]
    for kv, (its_tokens, its_size) in slot_files.items():
        print(f"slot.bin, {kv or 'in place'}: {its_size} bytes for {its_tokens} tokens")
        expect(abs(its_size / its_tokens * tokens / size - 1) < SAME_SIZE, f"{kv}: {its_size} bytes, in place {size}")


def expect_restored(name, reports):
    caches = [cache for report in reports for cache in report["caches"]]
    in_place = sum(report["sdpa_calls"] for report in reports)
    expect(caches and in_place == 0, f"{name}: {in_place} calls were in place: {reports}")
    restored = sum(cache["restored"] for cache in caches)
    print(f"{name}: {restored} tokens restored")
    expect(restored > 0, f"{name}: nothing was restored: {caches}")


def expect_recalled(name, reports):
    caches = [cache for report in reports for cache in report["caches"]]
    expect(sum(cache["evictions"] for cache in caches) == 0, f"{name}: something was evicted: {caches}")
    expect(sum(cache["misses"] for cache in caches) > 0, f"{name}: no page came from the cold tier: {caches}")


def expect_evictions(what, reports):
    evictions = sum(cache["evictions"] for report in reports for cache in report["caches"])
    expect(evictions > 0, f"{what}: nothing was evicted: {reports}")


def test_on_layer(host, options):
    expected, _ = prompt_cache(host, options, None)
    for kv in (UNLIMITED, LIMITED[1]):
        found, reports = prompt_cache(host, options, kv)
        print(f"prompt cache, {kv}: {found}")
        expect_restored(kv, reports)
        for report in reports:
            llama_cpp.expect_device(options, report)
        if kv == UNLIMITED:
            llama_cpp.expect_same_text(found, expected, kv)
        else:
            expect_evictions(kv, reports)


def test():
    options = llama_cpp.parser(__doc__, "text").parse_args()
    options.prose = options.text.read_text(encoding="utf-8")
    options.model = random_models.make("plain", options.work)
    options.slot_files = {}  # of a configuration: tokens, bytes
    host = llama_cpp.Host(options)
    if options.layer:
        test_on_layer(host, options)
        return
    for name, use in USES.items():
        expected, reports = use(host, options, None)
        for report in reports:
            llama_cpp.expect_in_place(report, name)
        for kv in (UNLIMITED, llama_cpp.recall_of_all(options)):
            found, reports = use(host, options, kv)
            print(f"{name}, {kv}: {found}")
            llama_cpp.expect_same_text(found, expected, name)
            expect_restored(name, reports)
        found, reports = use(host, options, RECALL)
        print(f"{name}, {RECALL}: {found}")
        expect(all(len(text) >= TOKENS for text in found), f"{name}, {RECALL}: a text is too short: {found}")
        expect_restored(name, reports)
        expect_recalled(name, reports)
        for kv in LIMITED:
            found, reports = use(host, options, kv)
            print(f"{name}, {kv}: {found}")
            expect(all(len(text) >= TOKENS for text in found), f"{name}, {kv}: a text is too short: {found}")
            expect_restored(name, reports)
            for report in reports:
                for cache in report["caches"]:
                    expect(max(cache["resident_of_layers"]) <= BUDGET * cache["kv_heads"], f"{name}, {kv}: {cache}")
            expect_evictions(f"{name}, {kv}", reports)
    expect_one_size(options.slot_files)
    for kv in (PACKED, LIMITED[1]):
        survive_damage(host, options, kv)


llama_cpp.main(test)
