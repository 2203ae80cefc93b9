"""The structs, tables and numbers of winnow.h and winnow_cache.h, field by field, and nothing else.

hosts/python/cache_test.py compares sizes and offsets with the C headers, which have the shapes, units and rules of each
field.
"""

from __future__ import annotations

import ctypes
from ctypes import (POINTER, c_char, c_char_p, c_double, c_float, c_int32, c_int64, c_size_t, c_uint32, c_uint64,
                    c_void_p)
from typing import Any

VERSION = CACHE_VERSION = 0 << 16 | 9

# WINNOW_TYPE_*, by the names that configurations use.
TYPES = {
    "f32": 1, "f16": 2, "bf16": 3, "i32": 4, "i64": 5, "bool": 6,
    "q8_0": 16, "q5_1": 17, "q5_0": 18, "q4_1": 19, "q4_0": 20, "iq4_nl": 21,
    "affine8_g32": 24, "affine8_g64": 25, "affine8_g128": 26, "affine4_g32": 27, "affine4_g64": 28, "affine4_g128": 29,
    "turbo4": 32, "turbo3": 33, "turbo2": 34, "turbo3_5": 35, "turbo2_5": 36, "sparse16": 40, "sparse8": 41,
}
F32, F16, BF16, I32, I64, BOOL = (TYPES[name] for name in ("f32", "f16", "bf16", "i32", "i64", "bool"))
SIZES = {F32: 4, F16: 2, BF16: 2, I32: 4, I64: 8, BOOL: 1}  # bytes of an element
NORMS = {"default": 0, "plain": 1, "corrected": 2, "unit_slope": 3}  # WINNOW_NORM_*
SCORES = {"raw": 1, "softcapped": 2, "biased": 3, "probs": 4}  # WINNOW_SCORES_*
DEVICES = {1: "cpu", 2: "gpu", 3: "accelerator"}  # WINNOW_DEVICE_*
CAPABILITIES = {"unified_memory": 1, "single_launch": 2, "subgroups": 4, "fp16": 8, "fp64": 16}  # WINNOW_CAPABILITY_*
OPERATIONS = {"sdpa": 1, "kv_append": 2, "kv_requantize": 3, "kv_dequantize": 4, "hadamard": 5}  # WINNOW_OPERATION_*
LOG_LEVELS = {"error": 1, "warning": 2, "info": 3, "debug": 4}  # WINNOW_LOG_*
BUFFER_ALLOCATE = 1
CACHE_EVICTS, CACHE_KEEPS_IMPORTANCE = 1, 2
ALL = -1  # sequences

LOG = ctypes.CFUNCTYPE(None, c_void_p, c_int32, c_char_p)
PASS = ctypes.CFUNCTYPE(c_int32, c_void_p, c_void_p, c_uint64)  # winnow_write_callback and winnow_read_callback


class Struct(ctypes.Structure):
    """A struct of the C headers. A field that is not named is 0."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(struct_size=ctypes.sizeof(type(self)), **fields)


class HostInfo(Struct):
    _fields_ = [("struct_size", c_uint32), ("min_version", c_uint32), ("max_version", c_uint32), ("flags", c_uint32),
                ("host_name", c_char_p)]


class DeviceInfo(Struct):
    _fields_ = [("struct_size", c_uint32), ("type", c_uint32), ("name", c_char * 128), ("vendor", c_char * 128),
                ("platform", c_char * 128), ("driver_version", c_char * 128), ("kernel_shape", c_char * 32),
                ("memory_size", c_uint64), ("max_allocation_size", c_uint64), ("compute_units", c_uint32),
                ("capabilities", c_uint32)]


class ContextDesc(Struct):
    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32), ("next", c_void_p), ("device", c_char_p),
                ("variants", c_char_p), ("log", LOG), ("log_user_data", c_void_p), ("log_level", c_int32),
                ("max_threads", c_uint32), ("parallel_for", c_void_p), ("parallel_user_data", c_void_p),
                ("launched", c_void_p), ("launched_user_data", c_void_p)]


class Stats(Struct):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32), ("sdpa_calls", c_uint64),
                ("kv_append_calls", c_uint64), ("tokens_appended", c_uint64), ("kernel_launches", c_uint64),
                ("programs_built", c_uint64), ("programs_loaded", c_uint64), ("host_copies", c_uint64),
                ("rows_requantized", c_uint64)]


class BufferDesc(Struct):
    _fields_ = [("struct_size", c_uint32), ("kind", c_uint32), ("next", c_void_p), ("size", c_uint64),
                ("host_data", c_void_p)]


class Tensor(Struct):
    _fields_ = [("struct_size", c_uint32), ("type", c_uint32), ("buffer", c_void_p), ("data", c_void_p),
                ("offset", c_uint64), ("shape", c_int64 * 4), ("stride", c_int64 * 4)]


TENSOR = POINTER(Tensor)


class SdpaDesc(Struct):
    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32), ("next", c_void_p), ("q", TENSOR), ("k", TENSOR),
                ("v", TENSOR), ("out", TENSOR), ("attn_mask", TENSOR), ("mask_slopes", TENSOR),
                ("alibi_slopes", TENSOR), ("head_sink", TENSOR), ("scores_out", TENSOR), ("row_stats", TENSOR),
                ("scale", c_float), ("softcap", c_float), ("scores_mode", c_uint32), ("is_causal", c_uint32),
                ("q_offset", c_int64), ("window_left", c_int64), ("window_right", c_int64), ("v_threshold", c_float),
                ("reserved", c_uint32), ("v_rows_skipped", TENSOR), ("slot_positions", TENSOR), ("kv_lengths", TENSOR),
                ("q_offsets", TENSOR)]


class KvAppendDesc(Struct):
    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32), ("next", c_void_p), ("k_src", TENSOR),
                ("v_src", TENSOR), ("k_cache", TENSOR), ("v_cache", TENSOR), ("k_row_indices", TENSOR),
                ("v_row_indices", TENSOR), ("k_norm", c_uint32), ("v_norm", c_uint32)]


class KvRequantizeDesc(Struct):
    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32), ("next", c_void_p), ("src", TENSOR), ("dst", TENSOR),
                ("row_indices", TENSOR), ("norm", c_uint32), ("reserved", c_uint32)]


class KvDequantizeDesc(Struct):
    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32), ("next", c_void_p), ("src", TENSOR), ("dst", TENSOR),
                ("row_indices", TENSOR)]


class HadamardDesc(Struct):
    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32), ("next", c_void_p), ("src", TENSOR), ("dst", TENSOR),
                ("inverse", c_uint32), ("reserved", c_uint32)]


class Resource(Struct):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32), ("name", c_char_p), ("data", c_char_p),
                ("size", c_uint64)]


class LayerShape(Struct):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32), ("q_num_heads", c_int64), ("kv_num_heads", c_int64),
                ("head_size", c_int64), ("v_head_size", c_int64)]


class CacheDesc(Struct):
    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32), ("next", c_void_p), ("config", c_char_p),
                ("layers", c_int64), ("q_num_heads", c_int64), ("kv_num_heads", c_int64), ("head_size", c_int64),
                ("v_head_size", c_int64), ("layer_shapes", POINTER(LayerShape)), ("layer_shape_stride", c_uint64),
                ("context", c_int64), ("max_sequences", c_int64), ("cells", c_int64), ("resources", POINTER(Resource)),
                ("resource_count", c_uint64), ("resource_stride", c_uint64)]


class CacheEntry(Struct):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32), ("sequence", c_int64), ("batch", c_int64),
                ("first", c_int64), ("count", c_int64), ("draft_tokens", c_int64), ("attn_mask", TENSOR),
                ("scores_out", TENSOR)]


class CacheStepDesc(Struct):
    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32), ("next", c_void_p), ("layer", c_int64),
                ("entries", POINTER(CacheEntry)), ("entry_count", c_uint64), ("entry_stride", c_uint64),
                ("k", TENSOR), ("v", TENSOR), ("q", TENSOR), ("out", TENSOR), ("alibi_slopes", TENSOR),
                ("head_sink", TENSOR), ("mask_slopes", TENSOR), ("cells", TENSOR), ("scale", c_float),
                ("softcap", c_float), ("window_left", c_int64)]


class CacheRowsDesc(Struct):
    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32), ("next", c_void_p), ("layer", c_int64),
                ("sequence", c_int64), ("tokens", TENSOR), ("k", TENSOR), ("v", TENSOR), ("has_v_in_k", c_uint32),
                ("v_first", c_uint32)]


class CacheStateDesc(Struct):
    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32), ("next", c_void_p), ("sequence", c_int64),
                ("path", c_char_p), ("write", PASS), ("read", PASS), ("user_data", c_void_p), ("size", c_uint64)]


class CacheStats(Struct):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32),
                *((name, c_uint64) for name in """bytes k_bytes v_bytes dense_k_bytes dense_v_bytes slot_map_bytes
                importance_bytes state_bytes scratch_bytes peak_bytes original_bytes budget_bytes tokens resident_slots
                evictions shortfall eviction_passes steps signature_bytes cold_bytes picks misses disk_bytes bytes_read
                wait_ns codebook_bytes""".split())]


class CacheTokens(Struct):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32), ("capacity", c_uint64), ("count", c_uint64),
                ("next_position", c_int64), ("positions", POINTER(c_int64)), ("importance", POINTER(c_float)),
                ("segments", POINTER(c_int32))]


class WantedResource(Struct):
    _fields_ = [("struct_size", c_uint32), ("is_needed", c_uint32), ("name", c_char * 32), ("path", c_char_p),
                ("path_size", c_uint64)]


class CacheSegment(Struct):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32), ("k_type", c_uint32), ("v_type", c_uint32),
                ("tokens", c_int64)]


class CacheInfo(Struct):
    _fields_ = [("struct_size", c_uint32), ("properties", c_uint32), ("config", c_char_p), ("config_size", c_uint64),
                ("storage_config", c_char_p), ("storage_config_size", c_uint64),
                ("resources", POINTER(WantedResource)), ("resource_capacity", c_uint64), ("resource_stride", c_uint64),
                ("resource_count", c_uint64), ("segments", POINTER(CacheSegment)), ("segment_capacity", c_uint64),
                ("segment_stride", c_uint64), ("segment_count", c_uint64), ("policy", c_char * 32),
                ("k_type", c_uint32), ("v_type", c_uint32), ("sink", c_int64), ("residual", c_int64),
                ("cadence", c_int64), ("budget_tokens", c_int64)]


# The functions of the tables, in their order.
FUNCTIONS = """status_name get_table device_count device_info context_create context_destroy context_message
    context_info context_stats buffer_create buffer_destroy buffer_write buffer_read supports sdpa
    kv_append kv_requantize kv_dequantize hadamard flush finish event_wait event_destroy row_bytes""".split()
CACHE_FUNCTIONS = """create destroy estimate describe step reserve truncate remove copy shift reset save load saved_size
    stats tokens set_importance set_config set_pressure anchor read write export_rows import_rows""".split()


class Api(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("version", c_uint32), ("backend_name", c_char_p),
                ("backend_version", c_char_p), *((name, c_void_p) for name in FUNCTIONS)]


class CacheApi(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("version", c_uint32), *((name, c_void_p) for name in CACHE_FUNCTIONS)]


# What the functions take that the package calls; each returns a status. Pointers to structs are void here: byref() and
# addressof() are made once, for structs that are kept.
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "get_table": (c_char_p, c_uint32, c_void_p, c_char_p, c_size_t),
    "device_count": (c_void_p, c_char_p, c_size_t),
    "device_info": (c_uint32, c_void_p, c_char_p, c_size_t),
    "context_create": (c_void_p, c_void_p, c_char_p, c_size_t),
    "context_destroy": (c_void_p,),
    "context_info": (c_void_p, c_void_p),
    "context_stats": (c_void_p, c_void_p),
    "buffer_create": (c_void_p, c_void_p, c_void_p),
    "buffer_destroy": (c_void_p,),
    "buffer_write": (c_void_p, c_uint64, c_void_p, c_uint64),
    "buffer_read": (c_void_p, c_uint64, c_void_p, c_uint64),
    "supports": (c_void_p, c_uint32, c_void_p, c_char_p, c_size_t),
    "sdpa": (c_void_p, c_void_p, c_void_p),
    "kv_append": (c_void_p, c_void_p, c_void_p),
    "kv_requantize": (c_void_p, c_void_p, c_void_p),
    "kv_dequantize": (c_void_p, c_void_p, c_void_p),
    "hadamard": (c_void_p, c_void_p, c_void_p),
    "finish": (c_void_p,),
    "row_bytes": (c_uint32, c_int64, c_void_p, c_char_p, c_size_t),
}
CACHE_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "create": (c_void_p, c_void_p, c_void_p),
    "destroy": (c_void_p,),
    "estimate": (c_void_p, c_void_p, c_int64, c_void_p),
    "describe": (c_void_p, c_void_p, c_void_p),
    "step": (c_void_p, c_void_p, c_void_p),
    "reserve": (c_void_p, c_int64, c_int64),
    "truncate": (c_void_p, c_int64, c_int64),
    "remove": (c_void_p, c_int64, c_int64, c_int64),
    "copy": (c_void_p, c_int64, c_int64),
    "shift": (c_void_p, c_int64, c_int64, c_int64, c_int64),
    "reset": (c_void_p,),
    "save": (c_void_p, c_void_p),
    "load": (c_void_p, c_void_p),
    "saved_size": (c_void_p, c_int64, c_void_p),
    "stats": (c_void_p, c_int64, c_void_p),
    "tokens": (c_void_p, c_int64, c_int64, c_int64, c_void_p),
    "set_importance": (c_void_p, c_int64, c_int64, c_int64, c_void_p, c_void_p, c_uint64),
    "set_config": (c_void_p, c_char_p),
    "set_pressure": (c_void_p, c_double),
    "anchor": (c_void_p, c_int64, c_void_p, c_uint64),
    "read": (c_void_p, c_void_p),
    "write": (c_void_p, c_void_p),
    "export_rows": (c_void_p, c_void_p),
    "import_rows": (c_void_p, c_void_p),
}
