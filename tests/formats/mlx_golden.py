"""Golden vectors of mx.quantize for the affine formats: rows of float16 numbers and the bytes they become.

`mlx_golden.py write` makes mlx_golden.txt beside this script. `mlx_golden.py check` makes the text again with the MLX
at hand and compares; without MLX it says so and exits with status 77, which ctest shows as skipped.
"""

import pathlib
import random
import struct
import sys

GOLDEN = pathlib.Path(__file__).with_name("mlx_golden.txt")
ELEMENTS = 128
SKIPPED = 77


def half(value):
    """The nearest float16, as a float."""
    return struct.unpack("<e", struct.pack("<e", max(-65504.0, min(65504.0, value))))[0]


def inputs():
    """Rows by name. Only random() is used, whose numbers Python promises to keep."""
    generator = random.Random(4)

    def bell():
        return sum(generator.random() for _ in range(12)) - 6

    every = range(ELEMENTS)
    yield "normal", [bell() for _ in every]
    yield "normal_again", [bell() for _ in every]
    yield "wide", [30000 * bell() for _ in every]
    yield "narrow", [1e-6 * bell() for _ in every]
    yield "far_above_zero", [300 + bell() for _ in every]
    yield "far_below_zero", [-300 - bell() for _ in every]
    yield "just_above_zero", [abs(bell()) for _ in every]
    yield "zeros", [0.0 for _ in every]
    yield "negative_zeros", [-0.0 for _ in every]
    yield "constant", [3.3 for _ in every]
    yield "negative_constant", [-7.1 for _ in every]
    yield "smallest_number", [6e-8 for _ in every]
    yield "largest_numbers", [65504.0 if i % 2 else -65504.0 for i in every]
    yield "one_huge", [65504.0 if i == 77 else bell() for i in every]
    yield "one_huge_negative", [-65504.0 if i == 5 else bell() for i in every]
    yield "mostly_zero", [bell() if generator.random() < .1 else 0.0 for _ in every]
    yield "integers", [float(generator.randrange(-8, 9)) for _ in every]  # ties
    yield "two_values", [1.0 if generator.random() < .5 else -1.0 for _ in every]
    yield "denormals", [6e-8 * generator.randrange(-20, 21) for _ in every]
    yield "ramp", [i / 8 for i in every]


def packed(array, letter):
    return struct.pack(f"<{array.size}{letter}", *array.flatten().tolist())


def golden(mx):
    """The text of the file."""
    lines = ["# Made by mlx_golden.py. input: a name and float16 numbers; row: a type and what mx.quantize makes of",
             "# the input in it: codes, then scales, then biases. Hexadecimal bytes in the order of memory."]
    for name, row in inputs():
        row = [half(value) for value in row]
        lines.append(f"input {name} {struct.pack(f'<{ELEMENTS}e', *row).hex()}")
        for bits in (8, 4):
            for group in (32, 64, 128):
                array = mx.array([row], dtype=mx.float16)
                codes, scales, biases = mx.quantize(array, group_size=group, bits=bits, mode="affine")
                parts = packed(codes, "I") + packed(scales.view(mx.uint16), "H") + packed(biases.view(mx.uint16), "H")
                lines.append(f"row AFFINE{bits}_G{group} {parts.hex()}")
    return "\n".join(lines) + "\n"


def main():
    if sys.argv[1:] not in (["write"], ["check"]):
        sys.exit(__doc__)
    try:
        import mlx.core as mx
    except ImportError as error:
        print(f"skipped: no MLX in {sys.executable} ({error})")
        sys.exit(SKIPPED)
    mx.set_default_device(mx.cpu)
    text = golden(mx)
    if sys.argv[1] == "write":
        GOLDEN.write_text(text)
        return
    stored = GOLDEN.read_text().splitlines()
    made = text.splitlines()
    differing = [number for number, (a, b) in enumerate(zip(stored, made), 1) if a != b]
    if len(stored) != len(made) or differing:
        sys.exit(f"mlx {mx.__version__} makes other vectors than {GOLDEN.name}: lines {differing or 'missing'}")
    print(f"mlx {mx.__version__} makes the {sum(line.startswith('row') for line in made)} rows of {GOLDEN.name}")


if __name__ == "__main__":
    main()
