"""A configuration of the KV cache."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Config:
    """How llama.cpp is to hold and to compute the cache. str() gives what it is called."""

    name: str
    backend: str  # "cpu": ggml's own; "winnow"
    k: str = "f16"
    v: str = "f16"
    rotate: bool = True  # llama.cpp's own rotation around quantized caches, which is its default
    kv: str = ""  # WINNOW_KV: a policy of Winnow's
    environment: tuple = ()  # more variables, as pairs

    def __str__(self):
        return self.name

    def settings(self):
        """All but the name: what determines a result."""
        return {"backend": self.backend, "k": self.k, "v": self.v, "rotate": self.rotate, "kv": self.kv,
                "environment": dict(self.environment)}
