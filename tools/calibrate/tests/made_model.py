"""GGUF files with next to nothing in them."""

import gguf
import numpy


def close(writer):
    """Writes what a gguf.GGUFWriter was given."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write(path, architecture, tokens):
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_token_list(list(tokens))
    writer.add_tensor("token_embd.weight", numpy.zeros((len(tokens), 32), numpy.float16))
    close(writer)
