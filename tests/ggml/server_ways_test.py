"""llama-server as people run it, each way with all else by default: no settings at all (slots that share their cells,
prompts kept in memory, idle slots saved and cleared, checkpoints, a warm-up), `--parallel`, `--cache-reuse`,
`--context-shift`, several choices of one request, and embeddings beside generation.

The answers of the cache in place, of `none:k=f16,v=f16` and of the server without Winnow are the same, token for token,
up to one at which the two likeliest are as good as equally likely: sums come in another order there. `winnow` gives
answers. No line of Winnow's tells of an error, and all attention of the latter two is over virtual caches.
"""

import math
import re

import llama_cpp
import random_models
from llama_cpp import expect
from llama_server import Server

SLOTS = 4  # of a server that is told nothing
PROMPT = 300  # characters, some 70 tokens
TURN = 60
TOKENS = 24
CELLS = 512
EXACT = "none:k=f16,v=f16"
PACKED = "winnow"
# How much likelier the chosen token may be where answers part, as a difference of logarithms. ggml's CPU backend adds
# up values in f16.
TIE, PLAIN_TIE = 1e-4, .03
CLOSE = 1e-3  # of embeddings: the distance, as a share of the length
PACKED_CLOSE = .3
# The names of a driver's quirks, which older servers show, too, tell of no fault.
FAULT = re.compile(r" E .*winnow:|winnow: (?!quirks of this driver).*(?:error|failed|cannot|refused)", re.I)


def text(options, number):
    """A prompt; no two have a beginning in common."""
    return options.prose[PROMPT * number:PROMPT * (number + 1)]


def ask(server, prompt, **more):
    """An answer from whichever slot the server takes."""
    return server.ask("/completion", {"prompt": prompt, "n_predict": TOKENS, "temperature": 0, "ignore_eos": True,
                                      "n_probs": 2, **more})


def tokens_of(answer):
    """[(token, how much likelier it was than the next one)]"""
    chosen = [token["top_logprobs"] for token in answer["completion_probabilities"]]
    return [(first["id"], first["logprob"] - second["logprob"]) for first, second in chosen]


def expect_same(what, found, expected, tie):
    """Answers part at most where the token was hardly likelier than another."""
    for number, (its, other) in enumerate(zip(found, expected, strict=True)):
        for place, ((token, _), (wanted, gap)) in enumerate(zip(its, other, strict=True)):
            if token != wanted:
                print(f"{what}: answer {number} parts at token {place}, which was likelier by {gap:.1e}")
                expect(gap <= tie, f"{what}: answer {number} differs at token {place}:\n{its}\n{other}")
                break


def expect_reuse(answer, least):
    kept = answer["timings"]["cache_n"]
    expect(kept >= least, f"only {kept} tokens came from the cache, expected {least}: {answer['timings']}")


def talk_in_turns(server, options):
    """More talks than there are slots, each of two turns: those that lost their slot come back from memory."""
    openings = [text(options, number) for number in range(SLOTS + 2)]
    first = [ask(server, opening) for opening in openings]
    second = []
    for opening, answer in zip(openings, first):
        second.append(ask(server, opening + answer["content"] + text(options, SLOTS + 2)[:TURN]))
        expect_reuse(second[-1], PROMPT // 8)
    return [*first, *second]


def talk_together(server, options):
    """Three talks at a time, of two turns."""
    openings = [text(options, number) for number in range(3)]
    first = server.complete_together(openings, TOKENS, n_probs=2)
    turns = [opening + answer["content"] + opening[:TURN] for opening, answer in zip(openings, first)]
    return [*first, *server.complete_together(turns, TOKENS, n_probs=2)]


def reuse_chunks(server, options):
    """A prompt whose middle is left out the second time: what follows moves up in the cache."""
    begin, middle, end = (server.ask("/tokenize", {"content": text(options, number)})["tokens"] for number in range(3))
    first = ask(server, begin + middle + end)
    second = ask(server, begin + end)
    expect_reuse(second, len(begin) + len(end) // 2)
    return [first, second]


def shift(server, options):
    """A text that is longer than the context."""
    answer = ask(server, text(options, 0), n_predict=CELLS)
    expect(answer["tokens_predicted"] == CELLS, f"it ended after {answer['tokens_predicted']} tokens")
    return [answer]


def choose(server, options):
    """Three choices of one request, which have the prompt in common."""
    answers = ask(server, text(options, 0), n_cmpl=3)
    texts = [answer["content"] for answer in answers]
    expect(len(texts) == 3 and len(set(texts)) == 1, f"the likeliest choices differ: {texts}")
    return answers


def embed(server, options):
    """Embeddings between the turns of a talk, in other slots of the same server."""
    opening = text(options, 0)
    first = ask(server, opening)
    options.embeddings.append([server.ask("/embedding", {"content": text(options, number)})[0]["embedding"][0]
                               for number in (1, 2)])
    return [first, ask(server, opening + first["content"] + opening[:TURN])]


WAYS = {
    "defaults": ([], talk_in_turns),
    "parallel": (["--parallel", 3, "-c", 3 * 2 * CELLS], talk_together),
    "cache reuse": (["--cache-reuse", 16], reuse_chunks),
    "context shift": (["--context-shift", "-c", CELLS], shift),
    "choices": ([], choose),
    "embeddings": (["--embeddings", "--pooling", "mean"], embed),
}


def serve(host, options, way, kv, winnow=True):
    """(what answers are, token by token, report)"""
    arguments, use = WAYS[way]
    with Server(host, kv, "-m", options.model, *arguments, settings=(), winnow=winnow) as server:
        answers = use(server, options)
    faults = [line for line in server.log if FAULT.search(line)]
    expect(not faults, f"{way}, {kv}: Winnow tells of errors: {''.join(faults)}")
    return [tokens_of(answer) for answer in answers], server.report


def distance(found, expected):
    """Of two embeddings, as a share of the second's length."""
    return math.dist(found, expected) / math.hypot(*expected)


def compare_embeddings(options, way):
    """Those of each run against the server's without Winnow: nearly the same, or near, where keys are packed."""
    *others, plain = options.embeddings
    for name, embeddings in zip(("in place", EXACT, PACKED), others):
        farthest = max(map(distance, embeddings, plain))
        print(f"{way}, {name}: embeddings are {farthest:.1e} from the plain server's")
        expect(farthest <= (PACKED_CLOSE if name == PACKED else CLOSE), f"{way}, {name}: embeddings differ: {farthest}")


def check(host, options, way):
    options.embeddings = []
    expected, report = serve(host, options, way, None)
    llama_cpp.expect_in_place(report, way)
    expect(report["attention_calls"] > 0, f"{way}: no attention in Winnow: {report}")
    calls = report["attention_calls"]
    for kv in (EXACT, PACKED):
        found, report = serve(host, options, way, kv)
        for cache in llama_cpp.virtual_caches(report):
            print(f"{way}, {kv}: {cache['streams']} streams of {cache['cells']} cells, {cache['tokens_seen']} tokens "
                  f"seen, {report['attention_calls']} attention calls")
        if kv == EXACT:
            expect_same(f"{way}, {kv}", found, expected, TIE)
        if WAYS[way][1] != talk_together:  # whose batches depend on time
            expect(report["attention_calls"] == calls, f"{way}, {kv}: {report['attention_calls']} attention calls, in "
                                                       f"place {calls}")
        expect(all(map(len, found)), f"{way}, {kv}: an answer is empty: {found}")
    found, report = serve(host, options, way, None, winnow=False)
    expect(report is None, f"{way}: the plugin was called without being asked for")
    expect_same(f"{way}, without Winnow", found, expected, PLAIN_TIE)
    print(f"{way}: {len(expected)} answers of {sum(map(len, expected))} tokens")
    if options.embeddings:
        compare_embeddings(options, way)


def test():
    parser = llama_cpp.parser(__doc__, "text")
    parser.add_argument("--way", choices=WAYS, nargs="*", default=list(WAYS), help="by default all")
    options = parser.parse_args()
    options.prose = options.text.read_text(encoding="utf-8")
    options.model = random_models.make("plain", options.work)
    host = llama_cpp.Host(options)
    for way in options.way:
        check(host, options, way)


llama_cpp.main(test)
