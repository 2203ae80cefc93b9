"""Which tokens of a needle a policy's cache still holds, layer by layer and head by head.

What a head evicted, nothing brings back; what it holds may still not be found. This tells one failure from the other.
"""

import re
from dataclasses import replace

from winnow_eval import Failure

PROMPT = re.compile(r"number of tokens in prompt = (\d+)")  # comes before each prompt; the first is the file's
PIECE = re.compile(r"(\d+) -> '(.*)'$", re.M)  # what --verbose-prompt prints of a token
ARGUMENTS = ("--verbose-prompt",)


def watched(config):
    """The configuration, with a report that says what is resident."""
    return replace(config, environment=(*config.environment, ("WINNOW_REPORT_WITH", "resident")))


def tokens_of(fact, log):
    """The numbers of the prompt's tokens that hold a part of the fact, from what llama.cpp prints of a prompt."""
    head = PROMPT.search(log)
    pieces = [piece for _, piece in PIECE.findall(log, head.end())][:int(head[1])] if head else []
    begin = "".join(pieces).find(fact)
    if begin < 0:
        raise Failure(f"llama-completion printed {len(pieces)} tokens of the prompt, and \"{fact}\" is not in them")
    found, at = [], 0
    for number, piece in enumerate(pieces):
        if at < begin + len(fact) and at + len(piece) > begin:
            found.append(number)
        at += len(piece)
    return found


def counts(report, tokens):
    """{"tokens": how many there are, "layers": for each layer how many of them each head holds}"""
    layers = []
    for cache in report["caches"]:
        if "resident" not in cache:
            raise Failure("the plugin does not report what is resident; it is older than WINNOW_REPORT_WITH")
        (stream,) = cache["resident"]
        layers += [[len(set(tokens).intersection(head)) for head in layer] for layer in stream]
    return {"tokens": len(tokens), "layers": layers}


def shares(answers):
    """For each layer the share of the facts' tokens that each head held, over all answers, or None."""
    seen = [answer["resident"] for answer in answers if answer.get("resident")]
    if not seen:
        return None
    total = sum(resident["tokens"] for resident in seen)
    return [[sum(counted) / total for counted in zip(*heads)] for heads in zip(*(each["layers"] for each in seen))]


def mean(answers):
    """The share over all layers and heads; None where nobody looked."""
    layers = shares(answers)
    if layers is None:
        return None
    heads = [share for layer in layers for share in layer]
    return sum(heads) / len(heads)
