"""Rows of codes by their names: k=turbo3,v=turbo3,center=turned (README.md has the keys), or a code of another project.
"""

import dataclasses

import numpy as np

import codes
import peer_codes
from codes import RESIDUAL, SINK
from winnow_eval import Failure

METHOD = 2  # how a result follows from a row's identity and the statistics; results of another one are not found again
CONTROL = "k=f32,v=f32"
DENSE_BYTES = 2  # of an element
MOST = 1 << 24  # tokens

WINNOW, THREE = "k=turbo4,v=turbo3", "k=turbo3,v=turbo3"
TURNED = f"{THREE},center=turned"
SAME, TURNED_SAME = (f"k=spectral_as_turbo3,v=turbo3,center={center}" for center in ("model", "turned"))
AXES = f"{TURNED_SAME},basis=axes"
PRESETS = {
    # The question: are calibrated keys worth building? SAME has the bytes of centred turbo3, constants included.
    "rule": [WINNOW, f"{WINNOW},center=turned", THREE, f"{THREE},center=context", f"{THREE},center=model", TURNED,
             f"{THREE},center=turned_context", SAME, f"{SAME},basis=slow", f"{SAME},basis=int8", f"{SAME},basis=axes",
             f"{SAME},basis=rotated", TURNED_SAME, f"{TURNED_SAME},basis=slow", f"{TURNED_SAME},basis=rotated", AXES,
             f"{AXES},pairs=8"],
    # Where the gain comes from: the search of a row's scale, how it is chosen, and the mean.
    "scales": ["k=scalar3,v=turbo3,center=model", "k=scalar3,v=turbo3,center=turned",
               *(f"{row},scale={scale}" for row in ("k=scalar3,v=turbo3,center=turned", f"{SAME},basis=axes", AXES)
                 for scale in ("length", "slope")), "k=turbo3,v=scalar3,center=turned"],
    "means": [f"{TURNED},pairs={pairs}" for pairs in (1, 2, 4, 8, 16)] + [f"{TURNED},rounded=1"] + [
        f"{THREE},center=turned_context,mean_rows={rows}" for rows in (256, 1024)],
    "trellis": ["k=turbo3,v=trellis3,center=turned", "k=spectral_as_turbo3,v=trellis3,center=turned,basis=axes",
                "k=turbo2,v=turbo2,center=model", "k=turbo2,v=turbo2,center=turned",
                "k=spectral2,v=turbo2,center=turned,basis=axes", "k=spectral2,v=trellis2,center=turned,basis=axes",
                "k=spectral2,v=turbo3,center=turned,basis=axes", "k=spectral2.5,v=turbo3,center=turned,basis=axes",
                "k=spectral3.5,v=turbo3,center=turned,basis=axes"],
    "settings": [f"k=spectral3,v=turbo3,center=model,basis={basis}" for basis in ("dense", "slow", "axes")] + [
        f"{row}{setting}" for row in (SAME, AXES) for setting in (
            ",weight=one", ",shrink=0.1", ",shrink=0.5", ",floor=0.001", ",over=0", ",over=2048", ",over=8192",
            ",over=32768")] + [f"{THREE},center=model,over={tokens}" for tokens in (2048, 8192, 32768)],
    "shifts": [f"{row},shifts={count}" for row in (f"{THREE},center=model", TURNED, SAME, AXES)
               for count in (1, 4, 16)],
    "peers": ["kivi:k=2,v=2", "kivi:k=4,v=4", "kvarn:k=2,v=2", "kvarn:k=4,v=2", "kvarn:k=4,v=4", "tcq:k=2,v=2,group=64",
              "tcq:k=3,v=3,group=64", "tcq:k=3,v=3,group=64,residual=48", "oscar:k=2,v=2", "openvino:k=u8,v=u4",
              "openvino:k=u4,v=u4", "openvino:k=u4,v=u4,residual=48", "kivi:k=2,v=2,residual=48",
              "kvarn:k=4,v=2,group=64,residual=64", "k=q4_0,v=q4_0", "k=q8_0,v=q8_0", "k=turbo2,v=turbo2"],
    "window": [f"{WINNOW},residual={tokens}" for tokens in (16, 32, 64, 80, 128, 256, 320, 512)],
}
CENTERS = ("off", "context", "model", "turned", "turned_context")
BASES = ("dense", "slow", "int8", "axes", "rotated")
SCALES = ("least", "length", "slope")
TYPES = ("turbo2", "turbo3", "turbo4", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "affine4", "affine8")


class Given:
    """The keys of a row as they were given, each of which has to be asked for. words: those of the name with keys."""

    def __init__(self, name, words):
        self._name, self._words, self._asked = name, {}, set()
        for word in words:
            key, equals, value = word.partition("=")
            if not equals or key in self._words:
                raise Failure(f"ROW: \"{word}\" in \"{name}\", expected each key at most once, as "
                              "k=turbo3,v=turbo3,residual=64")
            self._words[key] = value

    def word(self, key, usual, accepted=None):
        self._asked.add(key)
        value = self._words.get(key, usual)
        if value is None:
            raise Failure(f"ROW: \"{self._name}\" has no {key}=, as k=turbo3,v=turbo3")
        if accepted and value not in accepted:
            raise Failure(f"ROW: \"{self._name}\": {key}={value}, expected {', '.join(accepted)}")
        return value

    def number(self, key, usual, least, most, kind=int):
        return self.parsed(key, self.word(key, str(usual)), least, most, kind)

    def parsed(self, key, value, least, most, kind):
        try:
            number = kind(value)
        except ValueError:
            number = None
        if number is None or not least <= number <= most:
            raise Failure(f"ROW: \"{self._name}\": {key}={value}, expected a number from {least} to {most}")
        return number

    def check_all_asked(self):
        unknown = sorted(set(self._words) - self._asked)
        if unknown:
            raise Failure(f"ROW: \"{self._name}\": {', '.join(unknown)} says nothing of this row; it may have "
                          f"{', '.join(sorted(self._asked))}")


@dataclasses.dataclass(frozen=True)
class Window:
    """Which rows a query reads as they are: the first, and the newest. Rows are packed `cadence` at once, so that
    between residual - cadence and residual of the newest are dense."""

    sink: int
    residual: int
    cadence: int

    def packed_below(self, position):
        """The position below which a query reads rows packed, but for sinks. Later rows are dense."""
        packed = position + 1 - self.sink - (self.residual - self.cadence)
        return self.sink + max(0, packed) // self.cadence * self.cadence


@dataclasses.dataclass(frozen=True)
class Row:
    """Codes of keys and values, with the dense rows around them. codes: of "k" and "v"; None for rows as they are."""

    name: str
    codes: dict = dataclasses.field(compare=False)
    windows: dict = dataclasses.field(compare=False)
    shifts: int
    all_that_counts: dict = dataclasses.field(compare=False)  # beside codes and windows
    mode = "decode"
    shift_tokens = 512

    @property
    def is_control(self):
        return self.name == CONTROL

    @property
    def identity(self):
        made = self.all_that_counts | {"codes_method": METHOD, "shifts": self.shifts}
        for side, code in self.codes.items():
            made[side] = None if code is None else code.identity() | dataclasses.asdict(self.windows[side])
        return made

    def why_not(self, prompt):
        dense = max(window.sink + window.residual for window in self.windows.values())
        return None if prompt > dense else f"{prompt} tokens of a prompt are within the dense window of {dense}"

    def bytes(self, n, tokens):
        """Of one KV head, in a context of so many tokens: as Winnow stores a cache, all rows packed, and beside them
        sinks and window; and the model's constants, for one sequence."""
        total = 0
        for side, code in self.codes.items():
            if code is None:
                total += tokens * n * DENSE_BYTES
            else:
                window = self.windows[side]
                dense = window.sink + (window.residual if window.residual > 1 else 0)  # of 1: the token itself
                total += dense * n * DENSE_BYTES + code.bytes(side, n, tokens) + code.constants(side, n)
        return total


class Maker:
    """Makes rows from their names. library: gives codes.Library; context: of winnowkv; n: elements of a head; longest:
    tokens of the model's longest context; all_that_counts: for the identity of every row."""

    def __init__(self, library, context, n, longest, all_that_counts):
        self._library, self._context, self._n, self._longest = library, context, n, longest
        self._all_that_counts = all_that_counts

    def row(self, name, tokens):
        """tokens: of the context, over which constants are shared out."""
        if self._n & (self._n - 1) or self._n < codes.CHUNK:
            raise Failure(f"--model: heads of {self._n} elements, expected a power of 2 from {codes.CHUNK} on")
        if ":" in name:
            return self._peer(name)
        given = Given(name, name.split(","))
        made = {side: self._code(name, side, given, tokens) for side in ("k", "v")}
        residual = given.number("residual", RESIDUAL, 1, MOST)
        cadence = given.number("cadence", min(32, residual), 1, residual)
        shifts = given.number("shifts", 0, 0, 100)
        given.check_all_asked()
        return Row(name, made, dict.fromkeys(("k", "v"), Window(SINK, residual, cadence)), shifts,
                   self._all_that_counts)

    def _peer(self, name):
        """A code of another project, with the dense rows that it has, or with Winnow's sinks and a window of so many
        tokens."""
        def trellis(rows, bits, states):
            n = rows.shape[1]
            return self._library().trellis(rows, np.full(n, bits), np.ones(n), states, has_scale=False)

        found = peer_codes.peers(trellis)
        peer, has_window, window = name.partition(",residual=")
        if peer not in found:
            raise Failure(f"ROW: \"{name}\", expected one of {', '.join(found)}")
        code, windows = found[peer], {}
        for side in ("k", "v"):
            group = code.group_tokens(side)
            if has_window:
                tokens = Given(name, []).parsed("residual", window, group, MOST, int)
                windows[side] = Window(SINK, tokens, max(group, min(32, tokens)))
            else:
                windows[side] = Window(code.sink, max(code.residual, group), code.chunk_tokens(side))
        return Row(name, dict.fromkeys(("k", "v"), codes.Peers(code, peer)), windows, 0, self._all_that_counts)

    def _code(self, name, side, given, tokens):
        value = given.word(side, None)
        if value == "f32":
            return None
        if side == "k" and value.startswith("spectral"):
            return self._spectral(name, value, given, tokens)
        library = None if value in TYPES else self._library()
        if value in TYPES:
            code = codes.Winnows(self._context, value)
        elif value in ("scalar2", "scalar3", "scalar4"):
            code = codes.Mixed(library, int(value[-1]), 0, given.word("scale", "least", SCALES))
        elif value in ("trellis2", "trellis3", "trellis4"):
            code = codes.Mixed(library, int(value[-1]), 8)
        else:
            raise Failure(f"ROW: \"{name}\": {side}={value}, expected f32, scalar2 to scalar4, trellis2 to trellis4, "
                          f"{', '.join(TYPES)}, or for keys spectral and the bits of an element")
        center = given.word("center", "off", CENTERS)
        if center == "off":
            return code
        rows = given.number("mean_rows", RESIDUAL - SINK, 1, MOST) if "context" in center else 0
        over = given.number("over", self._longest, 0, MOST) if center in ("model", "turned") else 0
        pairs = given.number("pairs", self._n // 2, 1, self._n // 2) if "turned" in center else 0
        rounded = bool(given.number("rounded", 0, 0, 1)) if center == "turned" else False
        return codes.Centred(code, center, over, rows, pairs, rounded)

    def _spectral(self, name, value, given, tokens):
        basis, bits = given.word("basis", "dense", BASES), value.removeprefix("spectral")
        if bits == "_as_turbo3":  # what centred turbo3 has, less the constants' share
            others = 3 * self._n / 8 + codes.HALF * self._n / tokens
            code_bytes = others - codes.constants_of(basis, self._n) / tokens
        else:
            code_bytes = given.parsed("k", bits, 0.5, codes.MOST_BITS, float) * self._n / 8
        if code_bytes < 1:
            raise Failure(f"ROW: \"{name}\": {code_bytes:.1f} bytes of codes for a row of {self._n} elements in a "
                          f"context of {tokens} tokens, expected at least 1")
        turned = given.word("center", "model", ("model", "turned")) == "turned"
        return codes.Spectral(
            self._library(), code_bytes, given.number("over", self._longest, 0, MOST), basis,
            given.word("weight", "out", ("out", "one")), given.number("shrink", 0.0, 0, 1, float),
            given.number("floor", codes.LEAST_VARIANCE, 0, 1, float),
            given.number("pairs", self._n // 2, 1, self._n // 2) if turned else 0,
            given.word("scale", "least", SCALES))
