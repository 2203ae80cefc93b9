"""Made-up output of llama.cpp's programs, laid out as they print it."""

import math
import statistics

# What the base finds very unlikely is kept as likelier than it was: llama-perplexity's ln(PPL(Q)/PPL(base)) is off.
CLIPPED = (0.0004, 0.0, 0.0011, 0.0002)


def means(values):
    """After each value the mean of all so far."""
    return [statistics.fmean(values[:count]) for count in range(1, len(values) + 1)]


def running_perplexity(nll):
    """What llama-perplexity takes after each context from the negative log-likelihoods of all so far."""
    return [math.exp(mean) for mean in means(nll)]


def base(nll):
    """stdout of llama-perplexity over contexts with these negative log-likelihoods."""
    printed = [f"[{number}]{ppl:.4f}," for number, ppl in enumerate(running_perplexity(nll), start=1)]
    return f"0.03 minutes\n{''.join(printed)}\n"


def divergence(nll, ln_ratio, kld, same_top):
    """stdout of llama-perplexity --kl-divergence over contexts with these values; nll: the base's."""
    nll = [one + ratio for one, ratio in zip(nll, ln_ratio, strict=True)]
    ln_ratio = [ratio + CLIPPED[number % len(CLIPPED)] for number, ratio in enumerate(ln_ratio)]
    perplexities = running_perplexity(nll)
    lines = ["", "chunk             PPL               ln(PPL(Q)/PPL(base))          KL Divergence              Δp RMS"]
    rows = zip(perplexities, means(ln_ratio), means(kld), means(same_top))
    lines += [f"{number:4d}    {ppl:9.4f} ±   23.0275    {ratio:10.5f} ±    0.04560    {mean:10.5f} ±    0.00739     "
              f"3.316 ±  0.763 %    {top:6.3f} ±  4.987 %"
              for number, (ppl, ratio, mean, top) in enumerate(rows, start=1)]
    return "\n".join([*lines, "", "====== Perplexity statistics ======",
                      f"Mean PPL(Q)                   : {perplexities[-1]:10.6f} ±  10.713501",
                      "Mean PPL(base)                :  51.640000 ±  10.100938",
                      f"Mean ln(PPL(Q)/PPL(base))     : {statistics.fmean(ln_ratio):10.6f} ±   0.019732",
                      "Mean PPL(Q)/PPL(base)         :   1.057183 ±   0.020861", "",
                      f"Mean    KLD: {statistics.fmean(kld):10.6f} ±   0.004225", "Maximum KLD:   0.538167",
                      "99.9%   KLD:   0.536355", "99.0%   KLD:   0.399526", "Minimum KLD:   0.000226", "",
                      f"Same top p: {statistics.fmean(same_top):6.3f} ± 2.102 %", ""])


def log(cells, layers, k_type, v_type, k_bytes, v_bytes):
    """stderr of llama-perplexity: the size of the cache, and the time that the prompt took."""
    sizes = [size * cells * layers / 2**20 for size in (k_bytes, v_bytes)]
    return (f"0.01 I llama_kv_cache: size = {sum(sizes):7.2f} MiB ({cells:6d} cells, {layers:3d} layers,  1/1 seqs), "
            f"K ({k_type}): {sizes[0]:7.2f} MiB, V ({v_type}): {sizes[1]:7.2f} MiB\n"
            "0.02 I Final estimate: PPL = 51.7100 +/- 10.10094\n"
            "0.03 I llama_perf_context_print: prompt eval time =    8000.00 ms /   512 tokens ( 15 ms)\n")
