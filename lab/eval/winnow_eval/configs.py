"""Configurations of the KV cache are data: a string of the command line, or a table of a TOML file."""

import re
import tomllib
from dataclasses import replace
from pathlib import Path

from winnow_calibrate.config import Config
from winnow_eval import Failure

CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
BACKENDS = {"cpu": "cpu", "inplace": "winnow"}
SWITCH = {"on": True, "off": False}
VARIABLES = ("WINNOW_KV_SWA", "WINNOW_PRESSURE")
TOML_KEYS = {"name": str, "backend": str, "k": str, "v": str, "rotate": bool, "kv": str, "environment": dict}
FOLDER = Path(__file__).parent.parent / "configs"
DEFAULTS_FILE = FOLDER / "baselines.toml"
GRAMMAR = f"""\
A configuration is one string:

  cpu[:key=value,...]      llama.cpp's own cache and attention, on its CPU backend
  inplace[:key=value,...]  the same cache, with Winnow's attention over it, in place
  POLICY[:...]             a policy of Winnow's, handed to the plugin as WINNOW_KV; it has to be able to carry it out

  keys: k, v    types of keys and of values: {", ".join(CACHE_TYPES)} (default f16)
        rotate  on or off: llama.cpp's own rotation around quantized caches (default on, as in llama.cpp)

or a part of a TOML file given with --configs, which is a path or one of {", ".join(sorted(
    path.stem for path in FOLDER.glob("*.toml")))}:

  contexts = [512, 2048]      # optional: context lengths, where --contexts is not given
  configs = ["...", "..."]    # strings as above

  [[config]]                  # or, for what has no string
  name = "..."                # optional
  backend = "cpu"             # or "winnow"
  k = "q8_0"                  # optional, as above; v and rotate (true, false) as well
  kv = "..."                  # optional: WINNOW_KV, a policy
  environment = {{ WINNOW_PRESSURE = "0.5" }}   # optional: {" and ".join(VARIABLES)}
"""


def named(config):
    """The configuration called by its string, where it has no name of its own."""
    if config.name:
        return config
    if config.kv:
        return replace(config, name=config.kv)
    backend = next(word for word, value in BACKENDS.items() if value == config.backend)
    more = "" if config.rotate else ",rotate=off"
    return replace(config, name=f"{backend}:k={config.k},v={config.v}{more}")


def _one_of(what, value, known):
    if value not in known:
        raise Failure(f"{what}: unknown \"{value}\"; there are {', '.join(known)}")
    return value


def parse(text):
    """The Config that a string of the command line stands for."""
    head, colon, rest = text.partition(":")
    if head not in BACKENDS:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", head):
            raise Failure(f"configuration \"{text}\": begins with \"{head}\", expected "
                          f"{', '.join(BACKENDS)} or the name of a policy")
        return named(Config("", "winnow", kv=text))
    if colon and not rest:
        raise Failure(f"configuration \"{text}\": nothing after \":\", expected key=value,...")
    found = {}
    for part in rest.split(",") if rest else []:
        key, equals, value = part.partition("=")
        what = f"configuration \"{text}\", {key or 'nothing'}"
        if not equals:
            raise Failure(f"configuration \"{text}\": \"{part}\", expected key=value")
        _one_of(f"configuration \"{text}\", key", key, ("k", "v", "rotate"))
        if key in found:
            raise Failure(f"{what}: given twice")
        found[key] = SWITCH[_one_of(what, value, SWITCH)] if key == "rotate" else _one_of(what, value, CACHE_TYPES)
    return named(Config("", BACKENDS[head], **found))


def _from_table(table, where):
    for key, value in table.items():
        _one_of(f"{where}, key", key, TOML_KEYS)
        if not isinstance(value, TOML_KEYS[key]):
            raise Failure(f"{where}, {key}: {value!r}, expected a {TOML_KEYS[key].__name__}")
    if "backend" not in table:
        raise Failure(f"{where}: no backend, expected cpu or winnow")
    _one_of(f"{where}, backend", table["backend"], BACKENDS.values())
    for key in ("k", "v"):
        _one_of(f"{where}, {key}", table.get(key, "f16"), CACHE_TYPES)
    if table.get("kv") and table["backend"] != "winnow":
        raise Failure(f"{where}, kv: a policy needs backend = \"winnow\"")
    environment = table.get("environment", {})
    if not all(isinstance(value, str) for value in environment.values()):
        raise Failure(f"{where}: the values of environment have to be strings")
    for name in environment:  # others are read once in a process, which has many configurations
        _one_of(f"{where}, environment", name, VARIABLES)
    plain = {key: value for key, value in table.items() if key not in ("environment", "name")}
    return named(Config(table.get("name", ""), environment=tuple(sorted(environment.items())), **plain))


def located(path):
    """The TOML file of that path, or of that name among those that come with Winnow."""
    kept = FOLDER / f"{path}.toml"
    return kept if not Path(path).exists() and kept.parent == FOLDER and kept.is_file() else Path(path)


def contexts_of(paths):
    """The context lengths that TOML files ask for; None where none does."""
    found = {}
    for path in paths:
        contexts = _read(located(path)).get("contexts")
        if contexts is None:
            continue
        if not isinstance(contexts, list) or not contexts or not all(
                isinstance(length, int) and length > 0 for length in contexts) or len(set(contexts)) < len(contexts):
            raise Failure(f"{path}, contexts: {contexts!r}, expected token counts like [512, 2048], none twice")
        found[tuple(contexts)] = path
    if len(found) > 1:
        raise Failure(f"--configs: {' and '.join(map(str, found.values()))} ask for different contexts; say which with "
                      "--contexts")
    return list(next(iter(found))) if found else None


def _read(path):
    try:
        with open(path, "rb") as file:
            content = tomllib.load(file)
    except OSError as error:
        raise Failure(f"--configs: cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Failure(f"--configs: {path}: {error}") from error
    for key in content:
        _one_of(f"{path}, table", key, ("config", "configs", "contexts"))
    return content


def load(path):
    """The configurations of a TOML file."""
    path = located(path)
    content = _read(path)
    strings, tables = content.get("configs", []), content.get("config", [])
    if not isinstance(strings, list) or not all(isinstance(string, str) for string in strings):
        raise Failure(f"{path}, configs: {strings!r}, expected a list of strings")
    if not isinstance(tables, list) or not [*strings, *tables]:
        raise Failure(f"{path}: no [[config]] and no configs")
    return [parse(string) for string in strings] + [
        _from_table(table, f"{path}, [[config]] {number}") for number, table in enumerate(tables, start=1)]


BASE = parse("inplace:k=f16,v=f16")  # what all others are compared with
CONTROL = parse("cpu:k=f16,v=f16")  # as exact as the base, computed otherwise: how far apart two exact caches are


def gather(strings, files):
    """All that was asked for, without the control run, which is always measured; the baselines if nothing was."""
    found = [config for path in files for config in load(path)] + [parse(text) for text in strings]
    if not found:
        found = load(DEFAULTS_FILE)
    found = [config for config in found if config.settings() != CONTROL.settings()]
    seen = {("name", CONTROL.name): CONTROL.name}
    for config in found:
        for what, key in (("settings", repr(config.settings())), ("name", config.name)):
            if (what, key) in seen:
                raise Failure(f"two configurations have the same {what}: {seen[what, key]} and {config}")
            seen[what, key] = config.name
    return found
