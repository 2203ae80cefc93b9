"""The same model with its weights in F32.

ggml multiplies quantized weights with activations rounded to 8 bits, which turns the last bit of an attention output
into visible differences: noise that would hide what a cache costs.
"""

import os
from pathlib import Path

import gguf
import numpy

from winnow_calibrate import Failure

F32_FILE_TYPE = 0  # general.file_type of llama.cpp: ALL_F32
NO_WEIGHTS = ("I8", "I16", "I32", "I64", "F64")  # tensors that hold numbers of another kind


def check_kind(path):
    """Fails where a file is none of GGUF's."""
    try:
        with open(path, "rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise Failure(f"--model: cannot read {path}: {error.strerror}") from error
    if magic != b"GGUF":
        raise Failure(f"--model: {path} is not a GGUF file; it begins with {magic!r}")


def read(path):
    """The opened GGUF file; a Failure says what is wrong with it."""
    check_kind(path)
    try:
        return gguf.GGUFReader(path)
    except (ValueError, IndexError, KeyError, OverflowError, UnicodeDecodeError) as error:
        raise Failure(f"--model: {path} is damaged, or a GGUF file of an unknown version: {error}") from error


def _kept(tensor):
    return tensor.tensor_type.name in NO_WEIGHTS


def f32_bytes(source):
    """About the size of what write_f32 writes: that of its tensors."""
    return sum(tensor.data.nbytes if _kept(tensor) else 4 * int(tensor.n_elements) for tensor in read(source).tensors)


def write_f32(source, target):
    """Writes the model of one GGUF file to another one, with all of its weights in F32."""
    reader = read(source)
    if reader.get_field("split.count") is not None:
        raise Failure(f"{source} is one of several files; join them (llama-gguf-split --merge) or use --weights as-is")
    architecture = reader.get_field("general.architecture")
    if architecture is None:
        raise Failure(f"{source} has no general.architecture: not a model")
    temporary = Path(target).with_suffix(f".{os.getpid()}.part")
    writer = gguf.GGUFWriter(temporary, architecture.contents(), endianess=reader.endianess)
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.alignment"):
            continue
        kind = field.types[0]
        sub_type = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        value = F32_FILE_TYPE if field.name == "general.file_type" else field.contents()
        writer.add_key_value(field.name, value, kind, sub_type=sub_type)
    for tensor in reader.tensors:
        kept = _kept(tensor)
        shape = [int(size) for size in reversed(tensor.shape)]
        writer.add_tensor_info(tensor.name, shape, tensor.data.dtype if kept else numpy.dtype(numpy.float32),
                               tensor.data.nbytes if kept else 4 * int(numpy.prod(shape)))
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for tensor in reader.tensors:
            writer.write_tensor_data(tensor.data if _kept(tensor) else gguf.dequantize(tensor.data, tensor.tensor_type))
        writer.close()
        temporary.rename(target)
    except NotImplementedError as error:
        raise Failure(f"{source}: cannot turn these weights into F32: {error}; use --weights as-is") from error
    except OSError as error:
        raise Failure(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)
