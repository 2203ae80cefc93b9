"""Makes models in ONNX of GGUF files, tests Winnow with onnxruntime-genai, and measures caches under ONNX Runtime.

    ci/onnx models                            # prints the folder of SmolLM2-135M in ONNX
    ci/onnx test [LIBRARY [NAME=VALUE ...]]   # with each onnxruntime and onnxruntime-genai that is served
    ci/onnx builder LIBRARY [NAME=VALUE ...]  # with models that onnxruntime-genai's model builder makes
    ci/onnx measure memory --winnow LIBRARY ...   # and `quality`, `limit`

LIBRARY is Winnow's provider, and NAME=VALUE its options. What `measure` takes, and what it measures, is in
hosts/onnxruntime/measure.py; without --text it measures on the book of ci/eval. --model names another model of
ci/eval, before `models` or `measure`: qwen is Qwen2.5-Coder-0.5B-Instruct, of which 0.5 GB are downloaded and 2.5 GB
kept. Downloads and models stay in ${XDG_CACHE_HOME:-~/.cache}/winnow-dev.
"""

import argparse
import hashlib
import os

import parts
import texts
import transformers_host

HERE = parts.SOURCE / "hosts" / "onnxruntime"
BUILDER = ("onnx-ir==1.1.0", f"transformers=={transformers_host.NEWEST}")  # what genai's model builder needs


def arguments():
    introduction, details = __doc__.split("\n\n", 1)
    parser = argparse.ArgumentParser(prog="ci/onnx", description=introduction, epilog=details,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=("smollm2", "qwen"), default="smollm2")
    parser.add_argument("what", choices=("models", "test", "builder", "measure"))
    parser.add_argument("rest", nargs=argparse.REMAINDER)
    return parser.parse_args()


def python():
    """A Python that makes and measures models."""
    return parts.onnxruntime_python(more=parts.ONNX_MODELS)


def model_of(name):
    """A folder with model.onnx, its weights in float32, and tokenizer.json. Its logits are those of the last token."""
    source = texts.MODELS[name]()
    maker = HERE / "models.py"
    made_of = (source.parent.name, *parts.ONNX, *parts.ONNX_MODELS, maker.read_text(encoding="utf-8"))
    version = hashlib.sha256("\n".join(made_of).encode()).hexdigest()[:12]

    def make(folder):
        parts.say(f"making {name} in ONNX")
        parts.run([python(), "-B", maker, source, folder, "--last-logits", "--context", "8192"],
                  log=parts.CACHE / "logs" / f"{name}-onnx.log")

    return parts.kept(f"{name}-onnx", version, make)


def test(options):
    for release, genai in parts.ONNXRUNTIMES.items():
        served = parts.onnxruntime_python(release)
        parts.say(f"testing with onnxruntime {release}")
        parts.run([served, "-B", HERE / "strip_cache_test.py", *options.rest])
        if genai:
            parts.say(f"testing with onnxruntime-genai {genai}")
            parts.run([served, "-B", HERE / "genai_test.py", *options.rest])


def builder_python():
    """A Python with the newest onnxruntime-genai and what its model builder needs, torch among it."""
    release, genai = next(iter(parts.ONNXRUNTIMES.items()))
    packages = (f"onnxruntime=={release}", f"onnxruntime-genai=={genai}", *parts.ONNX, *BUILDER)
    torch = parts.python_with(f"torch-{transformers_host.TORCH}", transformers_host.NEEDS, transformers_host.add_torch)
    return transformers_host.python_with_torch(f"onnx-builder-{parts.versions(packages)}", packages,
                                               torch.parent.parent)


def main():
    options = arguments()
    parts.setup("test")
    if options.what == "test":
        test(options)
    elif options.what == "builder":
        parts.run([builder_python(), "-B", HERE / "builder_test.py", *options.rest])
    elif options.what == "models":
        print(model_of(options.model))
    else:
        command = (python(), "-B", HERE / "measure.py", model_of(options.model), "--text", texts.book(), *options.rest)
        os.execv(command[0], [str(part) for part in command])


if __name__ == "__main__":
    parts.run_main("ci/onnx", main)
