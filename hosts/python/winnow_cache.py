"""Winnow's cache for Python, over ctypes: as much of winnow.h as a host of caches needs, and no package besides.

Tensors are ctypes arrays of floats, rows one after another: numpy.ctypeslib.as_array(array) sees one without a copy,
and numpy.ctypeslib.as_ctypes(numpy array) makes one of it.
"""

import ctypes
from ctypes import POINTER, byref, c_char_p, c_double, c_float, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

VERSION = 0 << 16 | 4
F32 = 1


class Error(RuntimeError):
    """What a call was refused for."""


class Struct(ctypes.Structure):
    """A struct of winnow.h; what is not named is 0."""

    def __init__(self, **fields):
        super().__init__(struct_size=ctypes.sizeof(type(self)), **fields)


class HostInfo(Struct):
    _fields_ = [("struct_size", c_uint32), ("min_version", c_uint32), ("max_version", c_uint32), ("flags", c_uint32),
                ("host_name", c_char_p)]


class ContextDesc(Struct):
    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32), ("next", c_void_p), ("device", c_char_p),
                ("cl_context", c_void_p), ("cl_device_id", c_void_p), ("cl_command_queue", c_void_p),
                ("variants", c_char_p), ("log", c_void_p), ("log_user_data", c_void_p), ("log_level", c_int32),
                ("max_threads", c_uint32), ("parallel_for", c_void_p), ("parallel_user_data", c_void_p)]


class Tensor(Struct):
    _fields_ = [("struct_size", c_uint32), ("type", c_uint32), ("buffer", c_void_p), ("data", c_void_p),
                ("offset", c_uint64), ("shape", c_int64 * 4), ("stride", c_int64 * 4)]

    @classmethod
    def over(cls, array, heads, rows, columns):
        """[1, heads, rows, columns] of F32 in an array, which has to stay while it is used."""
        if len(array) != heads * rows * columns:
            raise Error(f"an array has {len(array)} numbers, expected {heads} x {rows} x {columns}")
        strides = (4 * heads * rows * columns, 4 * rows * columns, 4 * columns, 4)
        return cls(type=F32, data=ctypes.addressof(array), shape=(c_int64 * 4)(1, heads, rows, columns),
                   stride=(c_int64 * 4)(*strides))


class CacheDesc(Struct):
    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32), ("next", c_void_p), ("config", c_char_p),
                ("layers", c_int64), ("q_num_heads", c_int64), ("kv_num_heads", c_int64), ("head_size", c_int64),
                ("v_head_size", c_int64), ("context", c_int64), ("max_sequences", c_int64),
                ("profile", POINTER(c_double)), ("cells", c_int64), ("network", POINTER(c_double)),
                ("network_count", c_uint64), ("codebooks", c_void_p), ("codebooks_size", c_uint64)]


class CacheStepDesc(Struct):
    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32), ("next", c_void_p), ("layer", c_int64),
                ("sequence", c_int64), ("k", POINTER(Tensor)), ("v", POINTER(Tensor)), ("q", POINTER(Tensor)),
                ("out", POINTER(Tensor)), ("alibi_slopes", POINTER(Tensor)), ("head_sink", POINTER(Tensor)),
                ("scores_out", POINTER(Tensor)), ("scale", c_float), ("softcap", c_float), ("window_left", c_int64),
                ("draft_tokens", c_int64), ("cells", POINTER(Tensor)), ("attn_mask", POINTER(Tensor)),
                ("mask_slopes", POINTER(Tensor))]


# The slots of the table in their order; the first four fields are no functions.
SLOTS = """status_name device_count device_info context_create context_destroy context_message context_info
    context_stats buffer_create buffer_destroy buffer_write buffer_read supports_sdpa supports_kv_append sdpa kv_append
    flush finish event_wait event_is_complete event_destroy wait_cl_event event_get_cl row_bytes supports_kv_requantize
    supports_kv_dequantize supports_hadamard kv_requantize kv_dequantize hadamard cache_create cache_destroy
    cache_estimate cache_step cache_reserve cache_truncate cache_remove cache_copy cache_shift cache_reset cache_save
    cache_load cache_stats cache_positions cache_importance cache_set_config cache_get_config cache_set_pressure
    cache_anchor cache_read cache_write cache_restore cache_export_rows cache_import_rows cache_describe
    cache_sequence_stats cache_set_importance cache_segments cache_set_experts cache_expert_counts""".split()


class Api(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("version", c_uint32), ("backend_name", c_char_p),
                ("backend_version", c_char_p)] + [(slot, c_void_p) for slot in SLOTS]


# What those functions take that are called here; each returns a status but context_message.
LOOK = (c_void_p, c_int64, c_int64, c_int64, c_void_p, c_uint64, POINTER(c_uint64))
ARGUMENTS = {
    "context_create": (POINTER(ContextDesc), POINTER(c_void_p), c_char_p, c_size_t),
    "context_destroy": (c_void_p,),
    "finish": (c_void_p,),
    "cache_create": (c_void_p, POINTER(CacheDesc), POINTER(c_void_p)),
    "cache_destroy": (c_void_p,),
    "cache_step": (c_void_p, POINTER(CacheStepDesc), c_void_p),
    "cache_positions": LOOK,
    "cache_importance": LOOK,
    "cache_set_importance": (c_void_p, c_int64, c_int64, c_int64, POINTER(c_int32), POINTER(c_float), c_uint64),
}


class Context:
    """A backend's shared object and a context on one of its devices, for a `with`."""

    def __init__(self, path, device=None):
        self._library = ctypes.CDLL(str(path))
        text, table = ctypes.create_string_buffer(1024), POINTER(Api)()
        host = HostInfo(min_version=VERSION, max_version=VERSION, host_name=b"Python")
        if self._library.winnow_get_api(byref(host), byref(table), text, c_size_t(len(text))) != 0:
            raise Error(text.value.decode())
        self._table = table.contents
        self._functions = {name: ctypes.CFUNCTYPE(c_int32, *types)(getattr(self._table, name))
                           for name, types in ARGUMENTS.items()}
        self._message = ctypes.CFUNCTYPE(c_char_p, c_void_p)(self._table.context_message)
        self._handle = c_void_p()
        desc = ContextDesc(device=device.encode() if device else None)
        if self._functions["context_create"](byref(desc), byref(self._handle), text, len(text)) != 0:
            raise Error(text.value.decode())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._functions["context_destroy"](self._handle)

    def call(self, name, *arguments):
        """Calls a function of the table; raises what the backend says if it fails."""
        if self._functions[name](*arguments) != 0:
            raise Error(self._message(self._handle).decode())

    def cache(self, config, **shape):
        """A cache of this context: config as docs/policies.md has it, shape as the fields of winnow_cache_desc."""
        return Cache(self, self._handle, config, shape)

    def destroy_cache(self, handle):
        self._functions["cache_destroy"](handle)

    def finish(self):
        self.call("finish", self._handle)


class Cache:
    """For a `with` within its context's."""

    def __init__(self, context, context_handle, config, shape):
        self._context = context
        self._shape = {"v_head_size": shape["head_size"]} | shape
        self._handle = c_void_p()
        desc = CacheDesc(config=config.encode(), **shape)
        context.call("cache_create", context_handle, byref(desc), byref(self._handle))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._context.destroy_cache(self._handle)

    def step(self, layer, k, v, q, sequence=0, length=0):
        """Appends the tokens of k and v, and lets those of q attend: (out, scores), both [query heads][tokens][...].

        length: how many columns the scores have, for as many positions; 0: there are no scores. Scores are logits, and
        -infinity where a token is not there.
        """
        heads, kv_heads = self._shape["q_num_heads"], self._shape["kv_num_heads"]
        size, v_size = self._shape["head_size"], self._shape["v_head_size"]
        tokens = len(q) // (heads * size)
        out, scores = (c_float * (heads * tokens * v_size))(), (c_float * (heads * tokens * length))()
        tensors = {"k": Tensor.over(k, kv_heads, tokens, size), "v": Tensor.over(v, kv_heads, tokens, v_size),
                   "q": Tensor.over(q, heads, tokens, size), "out": Tensor.over(out, heads, tokens, v_size)}
        if length > 0:
            tensors["scores_out"] = Tensor.over(scores, heads, tokens, length)
        desc = CacheStepDesc(layer=layer, sequence=sequence,
                             **{name: ctypes.pointer(tensor) for name, tensor in tensors.items()})
        self._context.call("cache_step", self._handle, byref(desc), None)
        self._context.finish()
        return out, scores

    def positions(self, layer, head, sequence=0):
        """Of the tokens that a KV head still holds, in ascending order."""
        return self._look("cache_positions", c_int32, sequence, layer, head)

    def importance(self, layer, head, sequence=0):
        """Of the same tokens."""
        return self._look("cache_importance", c_float, sequence, layer, head)

    def set_importance(self, layer, head, importance, sequence=0):
        """importance: {position: number}; what is smallest is evicted first."""
        count = len(importance)
        self._context.call("cache_set_importance", self._handle, sequence, layer, head,
                           (c_int32 * count)(*importance), (c_float * count)(*importance.values()), count)

    def _look(self, name, kind, sequence, layer, head):
        count = c_uint64()
        self._context.call(name, self._handle, sequence, layer, head, None, 0, byref(count))
        values = (kind * count.value)()
        self._context.call(name, self._handle, sequence, layer, head, values, count.value, byref(count))
        return list(values)
