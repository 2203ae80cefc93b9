"""Training of the networks by which the policy learned ranks tokens: from what its cache keeps of a token, the decayed
sum of its probabilities and its age, to the attention that the token gets in the next 256 tokens.

All heads share what the hidden units take of the inputs and what the prediction takes of them; layer and head come in
by biases of their own. The samples are those of WINNOW_REPORT_WITH=samples (hosts/ggml/attention_samples.hpp).
"""

import numpy

from winnow_calibrate import Failure
from winnow_calibrate.storage import write_json

FORMAT, HIDDEN = 1, 8
LEAST, MOST = 2.0**-24, 2.0**24  # of an importance, as kernels take it
FLOOR = 1e-4  # of an attention, before its logarithm
STEPS, BATCH, RATE = 4000, 4096, 3e-3
FEWEST = 2000  # samples
CONTEXT = 512  # tokens: the first sample is taken at query 256, and looks 256 further
HELD_OUT = 5  # of so many samples of a head the last one is not trained on


class Samples:
    """The samples of all heads, one below the other: inputs, the logarithm of the attention, the number of the head."""

    def __init__(self, heads):
        rows = numpy.concatenate([numpy.asarray(head, dtype=float).reshape(-1, 3) for head in heads])
        self.inputs = numpy.stack([numpy.log(numpy.clip(rows[:, 0], LEAST, MOST)),
                                   numpy.log(numpy.maximum(rows[:, 1], 1))], axis=1)
        self.target = numpy.log(rows[:, 2] + FLOOR)
        self.head = numpy.repeat(numpy.arange(len(heads)), [len(head) for head in heads])


def heads_of(layers):
    return [head for layer in layers for head in layer["samples"]]


def divided(heads):
    """What is trained on, and what is held out: the last ones of each head."""
    cuts = [len(head) - len(head) // HELD_OUT for head in heads]
    return (Samples([head[:cut] for head, cut in zip(heads, cuts)]),
            Samples([head[cut:] for head, cut in zip(heads, cuts)]))


class Networks:
    """weights: [input, hidden]; bias: [head, hidden]; out: [hidden]."""

    def __init__(self, weights, bias, out):
        self.weights, self.bias, self.out = weights, bias, out

    def predict(self, samples):
        hidden = samples.inputs @ self.weights + self.bias[samples.head]
        return numpy.maximum(hidden, 0) @ self.out


def train(samples, heads, advance=None):
    """Networks that predict the logarithm of the attention but for a constant; Adam on the squared error."""
    mean, deviation = samples.inputs.mean(axis=0), samples.inputs.std(axis=0) + 1e-6
    inputs = (samples.inputs - mean) / deviation
    scale = samples.target.std() + 1e-6
    target = (samples.target - samples.target.mean()) / scale
    random = numpy.random.default_rng(0)
    parts = [random.normal(0, 0.7, (inputs.shape[1], HIDDEN)), random.normal(0, 0.3, (heads, HIDDEN)),
             random.normal(0, 0.35, HIDDEN), numpy.zeros(1)]
    first, second = [numpy.zeros_like(part) for part in parts], [numpy.zeros_like(part) for part in parts]
    for step in range(1, STEPS + 1):
        chosen = random.integers(0, len(target), BATCH)
        x, head = inputs[chosen], samples.head[chosen]
        hidden = numpy.maximum(x @ parts[0] + parts[1][head], 0)
        error = (hidden @ parts[2] + parts[3] - target[chosen]) / BATCH
        of_hidden = numpy.outer(error, parts[2]) * (hidden > 0)
        of_bias = numpy.zeros_like(parts[1])
        numpy.add.at(of_bias, head, of_hidden)
        rate = RATE * min(1, 2 * (1 - step / STEPS))
        for at, gradient in enumerate((x.T @ of_hidden, of_bias, hidden.T @ error, error.sum(keepdims=True))):
            first[at] += 0.1 * (gradient - first[at])
            second[at] += 0.001 * (gradient**2 - second[at])
            slope = numpy.sqrt(second[at] / (1 - 0.999**step)) + 1e-9
            parts[at] -= rate * first[at] / (1 - 0.9**step) / slope
        if advance:
            advance(step / STEPS)
    weights = parts[0] / deviation[:, None]
    return Networks(weights, parts[1] - mean @ weights, parts[2] * scale)


def ranks(values):
    order = numpy.empty(len(values))
    order[numpy.argsort(values, kind="stable")] = numpy.arange(len(values))
    return order


def rank_correlation(values, samples):
    """Spearman's, with the attention: the mean over heads."""
    found = []
    for head in numpy.unique(samples.head):
        own = samples.head == head
        if own.sum() > 2:
            found.append(numpy.corrcoef(ranks(values[own]), ranks(samples.target[own]))[0, 1])
    return float(numpy.mean(found))


def calibrate(layers, advance=None):
    """What the file holds: hidden units, biases by layer and head, and how well they order samples held out."""
    for layer in layers:
        if "samples" not in layer:
            raise Failure(f"{layer['name']}: no samples; the plugin is older than WINNOW_REPORT_WITH=samples")
    heads = heads_of(layers)
    if sum(map(len, heads)) < FEWEST:
        raise Failure(f"{sum(map(len, heads))} samples, expected at least {FEWEST}: longer contexts, or more of them")
    kept, held_out = divided(heads)
    networks = train(kept, len(heads), advance)
    judged = {"prediction": rank_correlation(networks.predict(held_out), held_out),
              "importance": rank_correlation(held_out.inputs[:, 0], held_out),
              "age": rank_correlation(-held_out.inputs[:, 1], held_out)}
    units = [[*map(float, weights), float(out)] for weights, out in zip(networks.weights.T, networks.out)]
    biases = iter(networks.bias.tolist())
    return {"winnow_network": FORMAT, "inputs": ["ln importance", "ln age"], "rank_correlation": judged,
            "hidden": units, "layers": {layer["name"]: [next(biases) for _ in layer["samples"]] for layer in layers}}


def write(found, setting, folder):
    """network.json, which network_file=... of the policy learned names; gives its path."""
    path = folder / "network.json"
    write_json(path, {"winnow_network": FORMAT, "setting": setting, **found})
    return path
