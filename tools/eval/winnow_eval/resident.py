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
