"""What rules of picking pages miss, query after query as recall picks: what it costs to keep pages longer, in every
layer or in some, to pick anew only where queries have moved, to bound how many come, and what it gains to know how
large the values are, or what pages promised before.

    pick_rules.py --llama-cpp DIR --plugin libwinnow_ggml.so --model M.gguf --text FILE

The model reads some contexts of both halves of the text with its full cache (llama-perplexity). In each fourth layer,
or in those that --layers says, 256 queries in a row pick from their third quarter on, by signs beside a center as
recall does. Nothing is packed. Of the rules this is told:

    picked    of the queries, the share that pick anew
    misses    of the picked pages, the share that the query before had not
    attention the share of a query's attention that lies in pages which it does not pick
    output    by how much the attention's output differs, of its length

Bonuses of layers are chosen on the first half, so that there are as few misses as with one bonus for all. All is told
of the second; and of the pages that recall's rule misses which share nearly was picked by the query before, lies near
one that it picked, was in the hot slots lately, and lies in a block of a file that was read lately, beside the share
that such pages are of all that are not in the hot slots.
Needs tools/calibrate/requirements.txt.
"""

import argparse
import math
from dataclasses import dataclass

import numpy
import page_scores
import recorded_rows
from page_scores import NEWEST, RESIDUAL, SINKS
from recorded_rows import attention, softmax

QUERIES, WARM = 256, 16  # in a row; so many first ones are not counted, as they fill the hot slots
PAGE = 2  # tokens
BONUSES = (0, 0.5, 1, 1.5, 2, 3)
USUAL = 1
LATELY = 16  # queries
BLOCK = 4096  # bytes of a file that are read at once
FIGURES = ("picked", "misses", "attention", "output")
SIGNS = next(score for score in page_scores.SCORES if score.name.endswith("(as it is)"))


@dataclass(frozen=True)
class Rule:
    name: str
    bonus: float = USUAL
    moved: float = math.inf  # queries whose cosine with those of the last pick is at least this do not pick
    new: float = 1  # share of the picks that may come into the hot slots, once these are full
    kept: float = 0  # of what a page in the hot slots promises: the weight of what it promised before
    value: object = None  # of values [page][token][element] and their mean: a factor of each page's score


def length(pages, _):
    return numpy.sqrt((pages ** 2).sum(axis=2)).mean(axis=1)


def distance(pages, mean):
    """From the mean value: what a page that is left out changes."""
    return length(pages - mean, mean)


RULES = (
    *(Rule(f"bonus={bonus:g}" + " (as it is)" * (bonus == USUAL), bonus) for bonus in BONUSES),
    *(Rule(f"anew below a cosine of {moved:g}", moved=moved) for moved in (0.98, 0.95, 0.9, 0.8)),
    *(Rule(f"at most {new:g} of them new, bonus={bonus:g}", bonus, new=new)
      for new, bonus in ((0.15, 1), (0.1, 1), (0.1, 0.5), (0.1, 0))),
    *(Rule(f"mean with weight {kept:g}, bonus={bonus:g}", bonus, kept=kept) for kept, bonus in ((0.5, 0.5), (0.75, 0))),
    Rule("times the values' length", value=length),
    Rule("times their distance from the mean", value=distance),
)


def one_later(of_queries, first=0):
    """What the query before has, `first` for that without one."""
    return numpy.concatenate([numpy.full_like(of_queries[:1], first), of_queries[:-1]])


class Head:
    """A KV head over the queries of a context: what promises and what has attention."""

    def __init__(self, keys, values, queries, share, scale=None):
        context, self.size = keys.shape
        size = self.size
        self.first = context * 3 // 4
        count = min(QUERIES, context - self.first)
        self.queries = queries[self.first:self.first + count]  # [query][head of the group][element]
        positions = numpy.arange(self.first, self.first + count)
        scale = scale or 1 / math.sqrt(size)
        self.weights = attention(keys, self.queries, positions, scale).transpose(1, 0, 2)
        self.values, self.output = values, self.weights @ values
        self.counts = (positions + 1 - RESIDUAL - SINKS) // PAGE  # pages that each query may pick
        self.most = page_scores.pages_picked(SIGNS, context, size, share)
        past = page_scores.pages_of(keys[:self.first], SIGNS, page_scores.rotation(size))
        pages = page_scores.pages_of(keys[:self.first + count], SIGNS, past.rotation)
        pages.center = past.center
        queries = self.queries.reshape(-1, size)
        z = queries @ past.rotation @ numpy.sign(pages.rest()).T * numpy.abs(past.rest()).mean()
        z = (z + queries @ past.center[:, None]) * scale
        z = z.reshape(count, -1, z.shape[1]).transpose(1, 0, 2)
        may = numpy.arange(z.shape[2]) < self.counts[:, None]
        self.scores = softmax(numpy.where(may, z, -math.inf)).sum(axis=0)  # [query][page]
        self.pages_of_values = values[SINKS:SINKS + z.shape[2] * PAGE].reshape(z.shape[2], PAGE, -1)
        self.mean_value = values[:self.first].mean(axis=0)

    def is_near(self, query, picked, least):
        a, b = self.queries[query], self.queries[picked]
        cosines = (a * b).sum(axis=1) / numpy.sqrt((a ** 2).sum(axis=1) * (b ** 2).sum(axis=1))
        return cosines.mean() >= least

    def pick(self, query, scores, held, promised, rule):
        count = self.counts[query]
        now, held_now = scores[query, :count], held[:count]
        promised[:count] = numpy.where(held_now, rule.kept * promised[:count] + (1 - rule.kept) * now, now)
        its = promised[:count] * numpy.where(held_now, math.exp(rule.bonus), 1)
        its[count - min(NEWEST // PAGE, self.most // 2):] = math.inf
        order = numpy.argsort(-its, kind="stable")
        if held.sum() >= self.most:
            is_new = ~held[order]
            order = order[~is_new | (is_new.cumsum() <= rule.new * self.most)]
        picked = numpy.zeros_like(held)
        picked[order[:self.most]] = True
        return picked

    def picks(self, rule):
        """(whether it picked anew, [page] whether it is in the hot slots then) of each query."""
        scores = self.scores
        if rule.value is not None:
            scores = scores * rule.value(self.pages_of_values, self.mean_value)
        held, promised, last = numpy.zeros(scores.shape[1], bool), numpy.zeros(scores.shape[1]), None
        for query in range(len(scores)):
            is_new = last is None or not self.is_near(query, last, rule.moved)
            if is_new:
                held, last = self.pick(query, scores, held, promised, rule), query
            yield is_new, held

    def ranks_of_others(self, held):
        """[query][page]: its place, by what it promised, among the pages that the query before did not pick."""
        promise = self.scores * numpy.where(one_later(held), math.exp(USUAL), 1)
        promise[held] = -1
        return one_later((-promise).argsort(axis=1, kind="stable").argsort(axis=1), len(held[0]))

    def figures(self, rule):
        """FIGURES of a rule."""
        picks, missed, attended = [], [], []
        before = numpy.zeros(self.scores.shape[1], bool)
        for query, (is_new, picked) in enumerate(self.picks(rule)):
            picks.append(is_new)
            missed.append((picked & ~before).sum() / picked.sum())
            before = picked
            tokens = numpy.ones(self.weights.shape[2], bool)
            tokens[SINKS:SINKS + self.counts[query] * PAGE] = picked[:self.counts[query]].repeat(PAGE)
            attended.append(tokens)
        weights = self.weights * numpy.array(attended)
        attention = weights.sum(axis=2)
        output = weights @ self.values / attention[:, :, None]
        error = numpy.sqrt(((output - self.output) ** 2).sum(axis=2) / (self.output ** 2).sum(axis=2))
        told = picks, missed, 1 - attention.mean(axis=0), error.mean(axis=0)
        return numpy.array([numpy.mean(of[WARM:]) for of in told])


def is_lately(pages):
    """Of [query][page]: whether it was so at one of LATELY queries before."""
    found = numpy.zeros_like(pages)
    for ago in range(1, LATELY + 1):
        found[ago:] |= pages[:-ago]
    return found


def foreseen(heads):
    """Of the heads of a layer: {what: (misses that are among such pages, those pages)} of all counted queries, and how
    many misses and how many pages there are that a query may pick and the one before did not."""
    held = numpy.array([[picked for _, picked in head.picks(Rule(""))] for head in heads])
    before = numpy.array([one_later(each) for each in held])
    missed = held & ~before
    rank = numpy.array([head.ranks_of_others(each) for head, each in zip(heads, held)])
    around = numpy.pad(before, ((0, 0), (0, 0), (2, 2)))
    near = numpy.any([around[:, :, by:by + held.shape[2]] for by in (0, 1, 3, 4)], axis=0)
    of_page = len(heads) * PAGE * sum(page_scores.row_bytes(heads[0].size))
    block = numpy.arange(held.shape[2]) * of_page // BLOCK
    read = numpy.zeros((held.shape[1], block[-1] + 1), bool)
    queries, pages = numpy.nonzero(missed.any(axis=0))
    read[queries, block[pages]] = True
    most = heads[0].most
    known = {"nearly picked, 1/8 as many as picked": rank < most // 8,
             "nearly picked, 1/2 as many": rank < most // 2,
             "within two pages of one that was picked": near,
             f"in the hot slots within {LATELY} queries": numpy.array([is_lately(each) for each in held]),
             f"in blocks that misses of {LATELY} queries read": numpy.array([is_lately(read)[:, block]] * len(heads))}
    may = numpy.arange(held.shape[2]) < heads[0].counts[:, None]
    away = (may & ~before)[:, WARM:]
    counted = missed[:, WARM:]
    return {name: numpy.array([(counted & each[:, WARM:]).sum(), (away & each[:, WARM:]).sum()])
            for name, each in known.items()}, numpy.array([counted.sum(), away.sum()])


def layers_of(given, part):
    """[heads of each context] of each layer, of a part of the text."""
    first, step = given.layers
    return [[[Head(*head, given.share, given.scale) for head in recorded_rows.heads(*context)] for context in contexts]
            for contexts in recorded_rows.record(given, part, is_whole=True)[first::step]]


def mean_figures(contexts, rule):
    return numpy.mean([head.figures(rule) for heads in contexts for head in heads], axis=0)


def bonuses(layers):
    """One of BONUSES for each layer, of which all have no more misses than the usual one, and the least loss of output
    that prices of a miss find."""
    found = numpy.array([[mean_figures(contexts, Rule("", bonus)) for bonus in BONUSES] for contexts in layers])
    misses, output = found[:, :, FIGURES.index("misses")], found[:, :, FIGURES.index("output")]
    most = misses[:, BONUSES.index(USUAL)].mean()
    best = None
    for price in numpy.geomspace(1e-3, 1e3, 400):
        chosen = (output + price * misses).argmin(axis=1)
        rows = numpy.arange(len(layers))
        if misses[rows, chosen].mean() <= most and (best is None or output[rows, chosen].mean() < best[0]):
            best = output[rows, chosen].mean(), chosen
    return [BONUSES[index] for index in best[1]]


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    recorded_rows.add_options(parser)
    parser.add_argument("--share", type=float, default=1 / 16, help="of f16's bytes (default: 1/16)")
    parser.add_argument("--layers", type=int, nargs=2, default=(0, 4), metavar=("FIRST", "STEP"),
                        help="which are looked at (default: 0 4)")
    parser.add_argument("--scale", type=float, help="of q . k, where it is not 1 / sqrt(elements): llama.cpp scales "
                                                    "the queries of some models before attention")
    return parser.parse_args()


def tell(name, figures):
    print(f"{name:36}", "  ".join(f"{figure:{len(title)}.4f}" for title, figure in zip(FIGURES, figures)), flush=True)


def main():
    given = options()
    chosen = bonuses(layers_of(given, "first"))
    layers = layers_of(given, "second")
    print(f"{'rule':36}", "  ".join(FIGURES))
    for rule in RULES:
        tell(rule.name, numpy.mean([mean_figures(contexts, rule) for contexts in layers], axis=0))
    tell("a bonus of each layer", numpy.mean([mean_figures(contexts, Rule("", bonus))
                                              for contexts, bonus in zip(layers, chosen)], axis=0))
    print("bonuses:", *chosen)
    known, of_all = zip(*(foreseen(heads) for contexts in layers for heads in contexts))
    print(f"{'such pages':48} of the misses  of the pages away")
    for name in known[0]:
        print(f"{name:48} {'{:13.2f}  {:17.2f}'.format(*sum(each[name] for each in known) / sum(of_all))}")


if __name__ == "__main__":
    main()
