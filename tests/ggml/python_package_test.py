"""winnowkv.llama_cpp: after enable() a Llama's attention is Winnow's, and report() counts it; what is refused is said
in the plugin's words, and a call that comes too late or differs from the first is refused, too.
"""

import json
import shutil
from pathlib import Path

import llama_cpp
import random_models
from llama_cpp import expect

BUDGET = 96
PACKAGE = Path(__file__).resolve().parents[2] / "hosts" / "python"
BEGIN = """
import json, sys
import llama_cpp
from winnowkv.llama_cpp import Error, enable, report
model, text = sys.argv[1:]
prompt = open(text, encoding="utf-8").read()[:600]

def write(arguments):
    llm = llama_cpp.Llama(model, n_ctx=512, n_ubatch=64, n_threads=1, n_threads_batch=1, verbose=False, **arguments)
    answer = llm(prompt, max_tokens=24, temperature=0.0)["choices"][0]["text"]
    living = report()["living"]
    llm.close()
    print(json.dumps({"answer": answer, "living": living, "report": report()}))

def expect_error(kind, call):
    try:
        call()
    except kind as error:
        print(error)
    else:
        sys.exit("no " + kind.__name__)
"""


def run(host, options, code, **environment):
    """The lines that the code prints, and what its last one says in JSON if it wrote a text."""
    settings = {"LLAMA_CPP_LIB_PATH": str(host.programs), "PYTHONPATH": str(PACKAGE),
                "WINNOW_PATH": str(host.plugin.parent), "GGML_BACKEND_PATH": ""}
    out, err, _ = host.run(options.python, "-P", "-c", BEGIN + code, options.model, options.text, winnow=True,
                           environment=settings | environment)
    print(out, end="")
    lines = out.splitlines()
    return lines, json.loads(lines[-1]) if "write(" in code else None, err


def check_texts(host, options):
    texts = {}
    for kv in ("", "none:k=f16,v=f16", f"winnow:budget={BUDGET}"):
        _, found, _ = run(host, options, f"write(enable({kv!r}))")
        report = found["report"]
        expect(report["attention_calls"] > 0, f"{kv}: Winnow was not called: {report}")
        expect(len(found["living"]) == len(report["caches"]) == bool(kv), f"{kv}: other caches: {found}")
        expect(report["living"] == [], f"{kv}: a cache outlives its Llama: {report['living']}")
        texts[kv] = found["answer"]
    llama_cpp.expect_same_text(texts["none:k=f16,v=f16"], texts[""])
    expect(found["living"][0]["steps"] > 0, f"no step was counted: {found['living']}")
    llama_cpp.expect_budget(report["caches"][0], BUDGET)
    _, found, _ = run(host, options, "enable(''); write({})")
    expect(found["report"]["attention_calls"] == 0, "without the arguments a Llama is Winnow's, too")


def check_refusals(host, options):
    (line, *_), found, _ = run(host, options, "expect_error(Error, lambda: enable('h3o')); write(enable('winnow'))")
    expect('no policy "h3o"' in line and "winnow, window" in line, f"another message: {line}")
    expect(found["report"]["attention_calls"] > 0, "after a string that was refused none is taken")
    lines, _, _ = run(host, options, "expect_error(Error, lambda: enable('h3o', 'cpu'))\n"
                      "expect_error(RuntimeError, lambda: enable('winnow', '0')); enable('winnow', 'cpu')")
    expect("(None, 'cpu')" in lines[1] and "('winnow', '0')" in lines[1], f"another message: {lines}")
    lines, _, _ = run(host, options, "import os; os.environ.pop('WINNOW_DEVICE', None)\n"
                      "expect_error(Error, lambda: enable(device='no such device'))\n"
                      "print('WINNOW_DEVICE' in os.environ)")
    expect("no such device" in lines[0] and not lines[0].startswith("winnow: "), f"the device is not named: {lines}")
    expect(lines[1] == "False", "the variable stays, though the device was refused")
    folder = options.work / "alone"
    folder.mkdir(exist_ok=True)
    shutil.copy(host.plugin, folder)
    lines, _, _ = run(host, options, "expect_error(Error, enable)", WINNOW_PATH=str(folder))
    expect("this process has ggml" in lines[0] and "no library in" in lines[0], f"another message: {lines}")
    lines, _, _ = run(host, options, "expect_error(FileNotFoundError, enable)", WINNOW_PATH="")
    expect("libwinnow_ggml.so" in lines[0] and "ci/wheel" in lines[0], f"another message: {lines}")


def check_order(host, options):
    lines, _, _ = run(host, options, "first = enable('winnow', device='cpu'); assert enable('winnow', 'cpu') == first\n"
                      "expect_error(RuntimeError, lambda: enable('none', 'cpu'))")
    expect("('winnow', 'cpu')" in lines[0] and "('none', 'cpu')" in lines[0], f"another message: {lines}")
    lines, _, _ = run(host, options, "expect_error(RuntimeError, report)\n"
                      "llama_cpp.Llama(model, n_ctx=64, verbose=False).close()\nexpect_error(RuntimeError, enable)")
    expect("before report()" in lines[0] and "before the first" in lines[1], f"other messages: {lines}")


def check_log(host, options):
    """A callback that the user has set hears llama.cpp and ggml after enable(), too."""
    lines, _, _ = run(host, options, """
import ctypes
heard = []
hear = llama_cpp.llama_log_callback(lambda level, text, user_data: heard.append((text, user_data)))
llama_cpp.llama_log_set(hear, ctypes.c_void_p(7))
enable()
heard.clear()
library = llama_cpp.llama_cpp._lib  # libllama, and with it ggml
library.ggml_backend_load(b"/nonesuch.so")
print("ggml", sum(b"nonesuch" in text and user_data == 7 for text, user_data in heard))
llama_cpp.llama_model_load_from_file(b"/nonesuch.gguf", llama_cpp.llama_model_default_params())
print("llama", sum(b"nonesuch.gguf" in text and user_data == 7 for text, user_data in heard))
""")
    for line in lines:
        expect(int(line.split()[1]) > 0, f"the user's callback hears nothing: {lines}")


def test():
    parser = llama_cpp.parser(__doc__, "text")
    parser.add_argument("--python", type=Path, required=True, help="a Python that can import llama-cpp-python")
    options = parser.parse_args()
    host = llama_cpp.Host(options)
    host.environment.pop("LD_PRELOAD", None)
    options.model = random_models.make("plain", options.work)
    check_texts(host, options)
    check_refusals(host, options)
    check_order(host, options)
    check_log(host, options)


llama_cpp.main(test)
