"""The engine as the tests see it: engine.mjs in a process of its own, and what it says of a prompt."""

import hashlib
import json
import random
import struct
import subprocess

import bench

CONTEXT_TOKENS = 4352  # the longest prompt, and room to answer
OUTPUT_TOKENS = 24
FIRST_WORD = 260  # of the vocabulary that gguf.py makes: below it are control tokens and bytes


class Prompt:
    """Tokens that follow from a seed. The last one is not in the saved state: it is what an engine goes on with."""

    def __init__(self, seed, count, vocabulary=1024):
        source = random.Random(seed)
        tokens = [source.randrange(FIRST_WORD, vocabulary) for _ in range(count)]
        self.count, self.head, self.last = count, tokens[:-1], tokens[-1]
        self.digest = hashlib.sha256(struct.pack(f"={len(self.head)}I", *self.head)).hexdigest()


class Engine:
    """Requests are answered in order, so several may be sent before the first answer is read."""

    def __init__(self, options):
        script = bench.TOP / "tests/llama/engine.mjs"
        self.process = subprocess.Popen(
            ["node", script, options.model, str(CONTEXT_TOKENS), str(options.threads)], cwd=options.packages,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            self.receive()
        except BaseException:
            self.kill()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def kill(self):
        """Returns the answers that it gave and nobody has read."""
        self.process.kill()
        rest = [json.loads(line) for line in self.process.stdout if line.endswith("\n")]
        self.process.wait()
        return rest

    def send(self, requests):
        self.process.stdin.write("".join(json.dumps(request) + "\n" for request in requests))
        self.process.stdin.flush()

    def receive(self):
        line = self.process.stdout.readline()
        if not line:
            raise bench.BenchError(f"the engine ended by itself: status {self.process.wait()}")
        return json.loads(line)

    def try_to(self, operation, **arguments):
        """The answer, which may be an error."""
        self.send([{"op": operation, **{key: convert(value) for key, value in arguments.items()}}])
        return self.receive()

    def ask(self, operation, **arguments):
        answer = self.try_to(operation, **arguments)
        if "error" in answer:
            raise bench.BenchError(f"{operation} {arguments.get('path', '')}: {answer['error']}")
        return answer

    def recompute(self, prompt, save_to=None):
        self.ask("clear")
        self.ask("evaluate", tokens=prompt.head)
        if save_to:
            self.ask("save", path=save_to)
        return self.go_on(prompt)

    def go_on(self, prompt, count=OUTPUT_TOKENS):
        return self.ask("generate", token=prompt.last, count=count)["tokens"]


def convert(value):
    return value if isinstance(value, (int, list)) else str(value)
