"""A Python program over llama-cpp-python, with two models at once: prints a line of JSON with what they write and what
their caches hold.

    python_host.py <library of the backend> <text> (<model> <string for WINNOW_KV, or "">)...

The strings are set one by one through the backend's own function, so that each context has its own. To be run with -P:
llama_cpp is the package, not the file beside this one. LLAMA_CPP_LIB_PATH says where its libraries are.
"""

import ctypes
import json
import os
import sys
from pathlib import Path

import llama_cpp

CONTEXT = 512
PROMPT = 200  # characters
MORE = 60
TOKENS = 32

ggml = ctypes.CDLL(str(Path(os.environ["LLAMA_CPP_LIB_PATH"]) / "libggml.so"))
ggml.ggml_backend_load.restype = ctypes.c_void_p
ggml.ggml_backend_load.argtypes = [ctypes.c_char_p]
ggml.ggml_backend_reg_get_proc_address.restype = ctypes.c_void_p
ggml.ggml_backend_reg_get_proc_address.argtypes = [ctypes.c_void_p, ctypes.c_char_p]


def set_kv(backend, kv):
    address = ggml.ggml_backend_reg_get_proc_address(backend, b"winnow_ggml_set_kv")
    function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t)(address)
    message = ctypes.create_string_buffer(512)
    if function(kv.encode(), message, len(message)) != 0:
        sys.exit(f"{kv}: {message.value.decode()}")


def live_caches(backend):
    """What the virtual caches hold that there are now."""
    address = ggml.ggml_backend_reg_get_proc_address(backend, b"winnow_ggml_caches")
    function = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t)(address)
    text = ctypes.create_string_buffer(function(None, 0) + 1)
    function(text, len(text))
    return json.loads(text.value)


def main(library, text, *pairs):
    backend = ggml.ggml_backend_load(library.encode())
    if not backend:
        sys.exit(f"{library} was not loaded")
    prose = Path(text).read_text(encoding="utf-8")
    models = []
    for path, kv in zip(pairs[::2], pairs[1::2]):
        set_kv(backend, kv)
        models.append(llama_cpp.Llama(path, n_ctx=CONTEXT, n_ubatch=64, n_gpu_layers=-1, flash_attn=True, n_threads=1,
                                      n_threads_batch=1, verbose=False))
    prompt, answers = prose[:PROMPT], []
    for turn in range(2):  # the second goes on from what is cached
        for model in models:
            answer = model(prompt, max_tokens=TOKENS, temperature=0.0)
            answers.append(answer["choices"][0]["text"])
        prompt += prose[PROMPT + turn * MORE:PROMPT + (turn + 1) * MORE]
    live = live_caches(backend)
    for model in models:
        model.close()
    if live_caches(backend):
        sys.exit(f"caches without a context: {live_caches(backend)}")
    print(json.dumps({"answers": answers, "live": live}))


main(*sys.argv[1:])
