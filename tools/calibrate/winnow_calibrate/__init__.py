"""`winnow profile` and `winnow calibrate`: what a model's attention looks like, and what policies learn from it.

Both run llama.cpp's own programs.
"""


class Failure(Exception):
    """Something that the user has to know; shown without a traceback."""
