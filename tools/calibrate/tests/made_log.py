"""What llama.cpp prints, made up."""


def of_cache(cells, layers, k_type, v_type, k_bytes, v_bytes):
    """What llama.cpp says of the size of a cache."""
    sizes = [size * cells * layers / 2**20 for size in (k_bytes, v_bytes)]
    return (f"0.01 I llama_kv_cache: size = {sum(sizes):7.2f} MiB ({cells:6d} cells, {layers:3d} layers,  1/1 seqs), "
            f"K ({k_type}): {sizes[0]:7.2f} MiB, V ({v_type}): {sizes[1]:7.2f} MiB\n")
