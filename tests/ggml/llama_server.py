"""Running llama-server and asking it for completions."""

import json
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request

import llama_cpp

START = 60  # seconds until it has to answer
ANSWER = 120
# Arguments of most tests; without them it is as people start it.
QUICK = ("--no-webui", "-fa", "on", "-t", 1, "--no-warmup")
IDLE = 0.1  # after the last answer: the handler of SIGINT waits for ever for a lock that what it interrupts has


def with_draft(host, draft, tokens):
    """Arguments by which a draft model drafts so many tokens at a time, with its attention in Winnow."""
    of_draft = ["-md", draft, "-devd", "Winnow"]
    if "draft-simple" in host.help("llama-server"):
        return [*of_draft, "--spec-type", "draft-simple", "--spec-draft-n-max", tokens, "--spec-draft-p-min", 0]
    return [*of_draft, "--draft-max", tokens, "--draft-p-min", 0]  # older servers draft whenever there is a draft model


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """llama-server while a `with` lasts; its report is there after that."""

    def __init__(self, host, kv, *arguments, environment=None, group=None, settings=QUICK, winnow=True):
        """group: the control group that it is to be in; settings: more arguments; winnow: with the plugin."""
        self.host = host
        self.kv = kv
        self.group = group
        self.winnow = winnow
        self.environment = llama_cpp.kv_environment(kv) | (environment or {})
        self.port = free_port()
        self.command = ["llama-server", "--port", self.port, *settings, *(llama_cpp.DEVICE if winnow else ()),
                        *arguments]
        self.process = None
        self.log = []
        self.report = None

    def __enter__(self):
        self.process = self.host.start(*self.command, winnow=self.winnow, environment=self.environment,
                                       group=self.group, stderr=subprocess.PIPE)
        self.reader = threading.Thread(target=lambda: self.log.extend(self.process.stderr))
        self.reader.start()
        try:
            self.wait_until_ready()
        except BaseException:
            self.stop(signal.SIGKILL)
            raise
        return self

    def __exit__(self, kind, *_):
        time.sleep(IDLE)
        self.stop(signal.SIGINT)
        self.report = self.host.take_report()
        if kind is None:
            llama_cpp.expect(self.process.returncode == 0, self.failure(f"ended with {self.process.returncode}"))

    def stop(self, number):
        self.process.send_signal(number)
        try:
            self.process.wait(START)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.reader.join()

    def failure(self, what):
        return f"{' '.join(map(str, self.command))} with WINNOW_KV={self.kv} {what}:\n{''.join(self.log)[-4000:]}"

    def wait_until_ready(self):
        end = time.monotonic() + START
        while time.monotonic() < end:
            llama_cpp.expect(self.process.poll() is None, self.failure("ended"))
            try:
                if self.ask("/health")["status"] == "ok":
                    return
            except (urllib.error.URLError, ConnectionError, llama_cpp.Failure):
                pass
            time.sleep(0.05)
        raise llama_cpp.Failure(self.failure("does not answer"))

    def ask(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data=data,
                                         headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=ANSWER) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise llama_cpp.Failure(self.failure(f"answered {path} with {error.read().decode()}")) from error

    def complete(self, slot, prompt, tokens, **more):
        """The likeliest continuation: llama-server's answer, with `content` and `timings`. slot: None lets the server
        choose, without which older ones do not look into the prompts that are kept in memory."""
        if slot is not None:
            more["id_slot"] = slot
        return self.ask("/completion", {"prompt": prompt, "n_predict": tokens, "temperature": 0, "ignore_eos": True,
                                        "cache_prompt": True, **more})

    def complete_together(self, prompts, tokens, **more):
        """A continuation of each prompt, each in a slot of its own, at the same time."""
        answers = [None] * len(prompts)

        def ask(slot):
            answers[slot] = self.complete(slot, prompts[slot], tokens, **more)

        threads = [threading.Thread(target=ask, args=(slot,)) for slot in range(len(prompts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        llama_cpp.expect(all(answers), self.failure("did not answer"))
        return answers
