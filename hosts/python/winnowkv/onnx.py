"""Removes past and present, the tensors of the KV cache, from decoders in ONNX.

    python -m winnowkv.onnx strip-cache model.onnx stripped.onnx
    python -m winnowkv.onnx strip-cache FOLDER STRIPPED_FOLDER    # with a genai_config.json, for onnxruntime-genai

A host allocates past and present in full, whichever execution provider computes. Without them Winnow's provider has the
only cache, and its budget is the memory that the cache takes. Such a model needs Winnow's provider: ONNX Runtime's own
kernels have no cache to go on with.

Files of external data are copied where the target is in another folder: onnx refuses files with several hard links, and
symbolic links. Importing this module imports onnx.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import onnx  # type: ignore[import-not-found, import-untyped, unused-ignore]
from google.protobuf.message import DecodeError  # type: ignore[import-not-found, import-untyped, unused-ignore]

from winnowkv.errors import Error, InvalidArgument, Unsupported
from winnowkv.onnxruntime import PROVIDER

CONFIG = "genai_config.json"
_SERVED = ("com.microsoft", "GroupQueryAttention")
_PASTS, _PRESENTS, _SCALES = slice(3, 5), slice(1, 3), slice(12, 14)  # of the operator's inputs and outputs
_COS, _BIAS, _INPUTS, _OUTPUTS = 7, 10, 12, 3  # of its inputs; how many inputs and outputs are served
_ATTRIBUTES = {"num_heads", "kv_num_heads", "scale", "softcap", "do_rotary", "rotary_interleaved", "smooth_softmax",
               "qk_norm_epsilon"}  # with any value
_GENAI_NAMES = {"inputs": ("past_key_names", "past_value_names", "past_names"),
                "outputs": ("present_key_names", "present_value_names", "present_names")}


def strip_cache(model: Any) -> int:
    """Removes the inputs past_key and past_value of all GroupQueryAttention nodes, the inputs of the model behind them,
    and the outputs of the model that are present_key and present_value. The nodes still name the latter, because ONNX
    Runtime up to 1.26 requires it; nobody reads them.

    model: an onnx.ModelProto, which is changed; external data may be absent. Returns the number of nodes that were
    changed, 0 for a model that was stripped before. Raises Unsupported where the model has no such node, or computes
    with past and present elsewhere; the model is unchanged then."""
    graph = model.graph
    nodes = [node for node in graph.node if _is_served(node)]
    _check_nodes(model, nodes)
    outputs = {value.name for value in graph.output}
    nodes = [node for node in nodes if any(node.input[_PASTS]) or outputs.intersection(node.output[_PRESENTS])]
    pasts = {name for node in nodes for name in node.input[_PASTS]} - {""}
    presents = {name for node in nodes for name in node.output[_PRESENTS]} - {""}
    _check_uses(graph, {node.output[0] for node in nodes}, pasts, presents)
    for node in nodes:
        for place in range(*_PASTS.indices(len(node.input))):
            node.input[place] = ""
    for values, removed in ((graph.input, pasts), (graph.output, presents), (graph.value_info, pasts | presents)):
        kept = [value for value in values if value.name not in removed]
        del values[:]
        values.extend(kept)
    return len(nodes)


def strip_cache_files(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> int:
    """The same from file to file. source: a model, or a folder with a genai_config.json. target: the file to write,
    which may be the source, or a folder that does not exist yet.

    The genai_config.json of the target names no past and present, and has Winnow's provider first. Returns what
    strip_cache() returns. Raises InvalidArgument where the source is no model, FileExistsError where a file of weights
    in the target's folder has the name of another one, and what strip_cache() raises; then nothing is written."""
    source, target = Path(source), Path(target)
    if source.is_dir():
        return _strip_folder(source, target)
    model = _load(source)
    changed = strip_cache(model)
    if source.resolve().parent != target.resolve().parent:
        _copy_data(_data_files(model), source.parent, target.parent)
    _write(target, model.SerializeToString())
    return changed


def _is_served(node: Any) -> bool:
    return (node.domain, node.op_type) == _SERVED


def _graphs(graph: Any) -> Iterator[Any]:
    """A graph and those in its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in ([attribute.g] if attribute.HasField("g") else attribute.graphs):
                yield from _graphs(inner)


def _check_nodes(model: Any, nodes: list[Any]) -> None:
    others = [node for node in model.graph.node if not _is_served(node)]
    others += [node for graph in list(_graphs(model.graph))[1:] for node in graph.node]
    others += [node for function in model.functions for node in function.node]
    kinds = sorted({node.op_type for node in others if node.op_type.endswith("Attention")})
    if kinds:
        raise Unsupported(f"the model has {', '.join(kinds)}, perhaps in a branch or a function, expected "
                          "GroupQueryAttention of com.microsoft in its graph alone, which is told how many tokens a "
                          "sequence has")
    if not nodes:
        raise Unsupported("the model has no attention node, expected GroupQueryAttention of com.microsoft")
    read = {name for graph in _graphs(model.graph) for node in graph.node for name in node.input}
    read |= {value.name for value in model.graph.output}
    for node in nodes:
        if any(node.input[_SCALES]):
            raise Unsupported(f"the node {node.name} keeps its cache in integers (k_scale, v_scale), expected float32 "
                              "or float16")
        unserved = _unserved(node)
        if node.output[0] not in read:
            unserved = f"an output {node.output[0]} that nobody reads"
        if unserved:
            raise Unsupported(f"the node {node.name} has {unserved}; Winnow's provider does not compute such a node, "
                              "and nothing else could without past")


def _unserved(node: Any) -> str | None:
    """What Winnow's provider does not take, as hosts/onnxruntime/capability.cpp has it. Shapes are not known here."""
    inputs, outputs = [*node.input], [*node.output]
    others = [f"an input {name}" for name in inputs[_INPUTS:] if name]
    others += [f"an output {name}" for name in outputs[_OUTPUTS:] if name]
    others += [f"an attention_bias ({name})" for name in inputs[_BIAS:_BIAS + 1] if name]
    given = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    if given.get("do_rotary", 0) == 1 and not any(inputs[_COS:_COS + 1]):
        others.append("do_rotary=1 and no cos_cache")
    window = given.get("local_window_size", -1)
    taken = {"causal": given.get("causal", 1) == 1, "local_window_size": window == -1 or window > 0}
    others += [f"{name}={value}" for name, value in given.items()
               if not taken.get(name, name in _ATTRIBUTES or value in (0, -1, b"", b"NONE"))]
    return others[0] if others else None


def _check_uses(graph: Any, nodes: set[str], pasts: set[str], presents: set[str]) -> None:
    """nodes: the first outputs of those that are to be changed."""
    for name in sorted(pasts - {value.name for value in graph.input}):
        raise Unsupported(f"{name}, the past of an attention node, is computed in the model, expected an input of it")
    for name in sorted(pasts & {value.name for value in graph.output}):
        raise Unsupported(f"the past {name} is an output of the model, too")
    for each in _graphs(graph):
        for node in each.node:
            own = _is_served(node) and node.output[0] in nodes
            for place, name in enumerate(node.input):
                if name in presents or name in pasts and not (own and place in range(_PASTS.start, _PASTS.stop)):
                    raise Unsupported(f"{name}, a tensor of the cache, is also an input of the node "
                                      f"{node.name or node.op_type}, which could not be computed without it")


def _load(path: Path) -> Any:
    try:
        return onnx.load(path, load_external_data=False)
    except DecodeError as error:
        raise InvalidArgument(f"{path} is no ONNX model: {error}") from error


def _data_files(model: Any) -> list[str]:
    """Where a model has its weights, relative to its folder."""
    found = set()
    for graph in _graphs(model.graph):
        tensors: list[Any] = [*graph.initializer]
        tensors += [attribute.t for node in graph.node for attribute in node.attribute if attribute.HasField("t")]
        for tensor in tensors:
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                found |= {entry.value for entry in tensor.external_data if entry.key == "location"}
    for name in found:
        if os.path.isabs(name) or ".." in Path(name).parts:
            raise InvalidArgument(f"the model has weights in {name}, expected a file in its folder")
    return sorted(found)


def _copy_data(names: Iterable[str], source: Path, target: Path) -> None:
    missing = []
    for name in names:
        if not (target / name).exists():
            missing.append(name)
        elif not filecmp.cmp(source / name, target / name):
            raise FileExistsError(f"{target / name} is there, and may belong to another model; choose another folder, "
                                  "or remove it")
    for name in missing:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source / name, target / name)  # with its time, by which it is known again


def _write(path: Path, content: bytes) -> None:
    """Replaces a file that is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _strip_folder(source: Path, target: Path) -> int:
    config_file = source / CONFIG
    if not config_file.is_file():
        raise InvalidArgument(f"{source} has no {CONFIG}; name a model's file, or a folder of onnxruntime-genai")
    if source.resolve() in target.resolve().parents:
        raise InvalidArgument(f"{target} lies in {source}, which is to be copied; choose a folder outside of it")
    config = json.loads(config_file.read_text(encoding="utf-8"))
    decoder = config.get("model", {}).get("decoder", {})
    if "filename" not in decoder or "pipeline" in decoder:
        raise Unsupported(f"{config_file} has no model.decoder.filename, or a pipeline of several models, expected a "
                          "decoder in one file")
    model = _load(source / decoder["filename"])
    changed = strip_cache(model)
    _adapt(config)
    own = {CONFIG, decoder["filename"], *_data_files(model)}
    target.mkdir(parents=True)
    _copy_data(_data_files(model), source, target)
    for path in source.rglob("*"):
        name = path.relative_to(source)
        if path.is_file() and str(name) not in own:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target / name)
    _write(target / decoder["filename"], model.SerializeToString())
    _write(target / CONFIG, json.dumps(config, indent=4, ensure_ascii=False).encode())
    return changed


def _adapt(config: dict[str, Any]) -> None:
    """Has genai make no cache, and take Winnow's provider."""
    decoder = config["model"]["decoder"]
    for kind, names in _GENAI_NAMES.items():
        for name in names:
            decoder.get(kind, {}).pop(name, None)
    if "past_present_share_buffer" in config.get("search", {}):
        config["search"]["past_present_share_buffer"] = False
    if decoder.get("sliding_window"):  # positions must not slide: Winnow's cache keeps them
        decoder["sliding_window"] |= {"slide_key_value_cache": False, "slide_inputs": False}
    options = decoder.setdefault("session_options", {}).setdefault("provider_options", [])
    if not any(PROVIDER in entry for entry in options):
        settings = {"kv": "winnow"}
        if "context_length" in config["model"]:  # a model without RoPE's tables does not tell it
            settings["max_tokens"] = str(config["model"]["context_length"])
        options.insert(0, {PROVIDER: settings})


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m winnowkv.onnx", description="Adapts models in ONNX to Winnow.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    strip = commands.add_parser("strip-cache", help="remove past and present, so that Winnow has the only cache")
    strip.add_argument("source", type=Path, help="a model.onnx, or a folder with a genai_config.json")
    strip.add_argument("target", type=Path, help="the model to write, or a folder that does not exist yet")
    options = parser.parse_args(arguments)
    try:
        changed = strip_cache_files(options.source, options.target)
    except (Error, OSError, ValueError) as error:
        sys.exit(f"winnowkv.onnx: {error}")
    print(f"{options.target}: {changed} attention nodes have lost past and present" if changed else
          f"{options.target}: the model had no past and present")


if __name__ == "__main__":
    main()
