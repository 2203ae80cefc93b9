"""Configurations of the KV cache are data: a string of the command line, or a table of a TOML file."""

from dataclasses import dataclass

CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")


@dataclass(frozen=True)
class Config:
    """How llama.cpp is to hold and to compute the cache. str() gives the string that names it."""

    name: str
    backend: str  # "cpu": ggml's own; "winnow"
    k: str = "f16"
    v: str = "f16"
    rotate: bool = True  # llama.cpp's own rotation around quantized caches, which is its default
    kv: str = ""  # WINNOW_KV: a policy of Winnow's
    arguments: tuple = ()  # more arguments for llama.cpp's programs
    environment: tuple = ()  # more variables, as pairs

    def __str__(self):
        return self.name

    def settings(self):
        """All but the name: what determines a result."""
        return {"backend": self.backend, "k": self.k, "v": self.v, "rotate": self.rotate, "kv": self.kv,
                "arguments": list(self.arguments), "environment": dict(self.environment)}
