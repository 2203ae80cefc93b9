"""What llama.cpp's programs print, read into numbers."""

import re

import gguf

from winnow_calibrate import Failure
from winnow_calibrate.host import essence

MIB = 2**20
CACHE = re.compile(r"size = +[\d.]+ MiB \( *(\d+) cells, +(\d+) layers, +\d+/(\d+) seqs\), "
                   r"K \((\w+)\): +([\d.]+) MiB, V \((\w+)\): +([\d.]+) MiB")


def _bytes(mib, cells, layers, cache_type):
    """The size that was printed with two decimals: a whole number of blocks in each cell of each layer."""
    block = cells * layers * gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[cache_type.upper()]][1]
    exact = round(float(mib) * MIB / block) * block
    # Small caches have several such numbers within the rounding; layers may differ in size.
    unambiguous = block > 0.01 * MIB and abs(exact - float(mib) * MIB) <= 0.0051 * MIB
    return exact if unambiguous else round(float(mib) * MIB)


def cache(log):
    """{"bytes", "cells", "layers"} of the KV cache that llama.cpp made; several caches are added up."""
    found = CACHE.findall(log)
    if not found:
        raise Failure(f"llama.cpp's log says no size of a KV cache:\n{essence(log)}")
    size, layers = 0, 0
    for cells, of_layers, sequences, k_type, k_mib, v_type, v_mib in found:
        rows = int(cells) * int(sequences)
        size += _bytes(k_mib, rows, int(of_layers), k_type) + _bytes(v_mib, rows, int(of_layers), v_type)
        layers += int(of_layers)
    return {"bytes": size, "cells": max(int(cells) * int(sequences) for cells, _, sequences, *_ in found),
            "layers": layers}
