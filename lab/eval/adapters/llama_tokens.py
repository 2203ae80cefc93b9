"""The tokens of texts as llama.cpp makes them, by llama.cpp's own library.

A process of its own opens libllama.so, so that its threads and the other tool's do not meet. Of its interface only
functions are used that take and give what no version has changed; the one structure, llama_model_params, is handed on
unopened, with llama.cpp's defaults in it.

    llama_tokens.py FOLDER MODEL.gguf      # requests on standard input, a line of JSON each; see _serve
"""

import ctypes
import json
import sys
from pathlib import Path

from python_process import MOST_WORDS, PythonProcess
from winnow_eval import Failure

PLACES = (".", "../lib", "../lib64")  # of libraries, from the folder of programs
PARAMS_BYTES = 4096  # more than llama_model_params has: of a larger structure the callee reads its beginning


def find_library(folder):
    """libllama.so of a folder of llama.cpp's programs."""
    for place in PLACES:
        path = Path(folder) / place / "libllama.so"
        if path.is_file():
            return path.resolve()
    raise Failure(f"--llama-cpp: no libllama.so in {folder}, nor in the lib beside it; expected the folder of "
                  "llama.cpp's programs, bin/ of its build tree, built with shared libraries")


class Tokens(PythonProcess):
    """The process; use as a context manager. `bos` is the token that texts begin with, or None, `vocabulary` the
    number of tokens that there are."""

    def __init__(self, folder, model):
        super().__init__(__file__, find_library(folder), model)

    def __enter__(self):
        super().__enter__()
        self.bos, self.vocabulary = self.first["bos"], self.first["vocabulary"]
        return self

    def failure(self, said, status):
        words = said.strip()[-MOST_WORDS:]
        return Failure(f"llama.cpp cannot tell the tokens: {words or 'its library ended silently'}")

    def of(self, text):
        """The tokens of a text with those that the model wants around it, as winnow-measure takes it."""
        return self.ask({"text": text})["tokens"]

    def text_of(self, tokens):
        """What some tokens say."""
        return self.ask({"tokens": tokens})["text"]

    def eog(self, tokens):
        """Of each token whether it ends a generation."""
        return self.ask({"eog": tokens})["eog"]


class _Params(ctypes.Structure):
    _fields_ = [("opaque", ctypes.c_byte * PARAMS_BYTES)]


_LOG = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
_SIGNATURES = {  # result, arguments
    "llama_backend_init": (None,),
    "llama_log_set": (None, _LOG, ctypes.c_void_p),
    "llama_model_default_params": (_Params,),
    "llama_model_load_from_file": (ctypes.c_void_p, ctypes.c_char_p, _Params),
    "llama_model_get_vocab": (ctypes.c_void_p, ctypes.c_void_p),
    "llama_vocab_n_tokens": (ctypes.c_int32, ctypes.c_void_p),
    "llama_vocab_bos": (ctypes.c_int32, ctypes.c_void_p),
    "llama_vocab_get_add_bos": (ctypes.c_bool, ctypes.c_void_p),
    "llama_vocab_is_eog": (ctypes.c_bool, ctypes.c_void_p, ctypes.c_int32),
    "llama_tokenize": (ctypes.c_int32, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32,
                       ctypes.POINTER(ctypes.c_int32), ctypes.c_int32, ctypes.c_bool, ctypes.c_bool),
    "llama_token_to_piece": (ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32, ctypes.c_char_p, ctypes.c_int32,
                             ctypes.c_int32, ctypes.c_bool)}


def _open(library):
    """The library with the types of what is called."""
    api = ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    for name, (result, *arguments) in _SIGNATURES.items():
        function = getattr(api, name)
        function.restype, function.argtypes = result, arguments
    return api


def _tokenize(api, vocab, text):
    """As lab/measure does: with the tokens that the model wants around it; names of special tokens are text."""
    content = text.encode()
    tokens = (ctypes.c_int32 * (len(content) + 2))()  # a token has at least a byte, but for those around the text
    count = api.llama_tokenize(vocab, content, len(content), tokens, len(tokens), True, False)
    if count < 0:
        sys.exit("llama_tokenize refused the text")
    return tokens[:count]


def _piece(api, vocab, token):
    size = 64
    while True:
        piece = ctypes.create_string_buffer(size)
        length = api.llama_token_to_piece(vocab, token, piece, size, 0, True)
        if length >= 0:
            return piece.raw[:length]
        size = -length


def _serve(library, model):
    """Answers {"text"} with {"tokens"}, {"tokens"} with {"text"} and {"eog": tokens} with {"eog": booleans}."""
    api = _open(library)
    log = []
    keep = _LOG(lambda _level, text, _data: log.append(text.decode(errors="replace")))
    api.llama_log_set(keep, None)
    load_all = getattr(api, "ggml_backend_load_all_from_path", None)  # builds whose backends are plugins
    if load_all is not None:
        load_all.argtypes = [ctypes.c_char_p]
        load_all(str(Path(library).parent).encode())
    api.llama_backend_init()
    loaded = api.llama_model_load_from_file(model.encode(), api.llama_model_default_params())
    if not loaded:
        sys.exit("".join(log).strip()[-MOST_WORDS:] or f"it cannot load {model}")
    vocab = api.llama_model_get_vocab(loaded)
    bos = api.llama_vocab_bos(vocab) if api.llama_vocab_get_add_bos(vocab) else None
    print(json.dumps({"bos": bos, "vocabulary": api.llama_vocab_n_tokens(vocab)}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if "text" in request:
            answer = {"tokens": _tokenize(api, vocab, request["text"])}
        elif "tokens" in request:
            pieces = b"".join(_piece(api, vocab, token) for token in request["tokens"])
            answer = {"text": pieces.decode(errors="replace")}
        else:
            answer = {"eog": [api.llama_vocab_is_eog(vocab, token) for token in request["eog"]]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
