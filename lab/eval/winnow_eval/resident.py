"""Which tokens of a fact a policy's cache still holds, layer by layer and head by head.

What a head evicted, nothing brings back; what it holds may still not be found. This tells one failure from the other.
"""

from winnow_eval import Failure

ENVIRONMENT = ("WINNOW_REPORT_WITH", "resident")


def counts(report, tokens):
    """{"tokens": how many there are, "layers": for each layer how many of them each head holds}"""
    wanted, layers = set(tokens), []
    for cache in report["caches"]:
        if "resident" not in cache:
            raise Failure("the plugin does not report what is resident; it is older than WINNOW_REPORT_WITH")
        (stream,) = cache["resident"]
        layers += [[len(wanted.intersection(head)) for head in layer] for layer in stream]
    return {"tokens": len(wanted), "layers": layers}


def total(seen):
    """The sum of counts over answers; None where nobody looked."""
    if not seen:
        return None
    return {"tokens": sum(counts["tokens"] for counts in seen),
            "layers": [[sum(counted) for counted in zip(*heads)] for heads in zip(*(each["layers"] for each in seen))]}


def shares(counts):
    """For each layer the share of the facts' tokens that is resident in each head; None where nobody looked."""
    return counts and [[resident / counts["tokens"] for resident in layer] for layer in counts["layers"]]


def of_answer(counts):
    """What is kept of each answer: the tokens, and the share that is resident over all layers and heads."""
    heads = [share for layer in shares(counts) for share in layer]
    return {"tokens": counts["tokens"], "share": sum(heads) / len(heads)}


def mean(answers):
    """The share over all layers and heads, of all tokens that were to be found; None where nobody looked."""
    seen = [answer["resident"] for answer in answers if answer.get("resident")]
    tokens = sum(each["tokens"] for each in seen)
    return sum(each["tokens"] * each["share"] for each in seen) / tokens if tokens else None
