"""Made-up output of llama.cpp's programs, laid out as they print it."""

import statistics


def means(values):
    """After each value the mean of all so far."""
    return [statistics.fmean(values[:count]) for count in range(1, len(values) + 1)]


def divergence(ln_ratio, kld, same_top):
    """stdout of llama-perplexity --kl-divergence over contexts with these values."""
    lines = ["", "chunk             PPL               ln(PPL(Q)/PPL(base))          KL Divergence              Δp RMS"]
    rows = zip(means(ln_ratio), means(kld), means(same_top))
    lines += [f"{number:4d}      56.6171 ±   23.0275    {ratio:10.5f} ±    0.04560    {mean:10.5f} ±    0.00739     "
              f"3.316 ±  0.763 %    {top:6.3f} ±  4.987 %" for number, (ratio, mean, top) in enumerate(rows, start=1)]
    return "\n".join([*lines, "", "====== Perplexity statistics ======",
                      "Mean PPL(Q)                   :  53.474489 ±  10.713501",
                      "Mean PPL(base)                :  51.710000 ±  10.100938",
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
