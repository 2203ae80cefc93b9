"""`winnow eval`: what a configuration of the KV cache costs in quality, measured through llama.cpp's own programs."""


class Failure(Exception):
    """Something that the user has to know; shown without a traceback."""
