"""What must hold for an engine that keeps its states on PrefixFS, whatever happens meanwhile.

The state of a prompt is whole or absent: what follows from a restored one is what follows from the prompt
computed anew, and where there is none the engine computes it and goes on.
"""

import collections
import itertools
import random
import threading
import time

import bench
from engine import OUTPUT_TOKENS, Engine, Prompt

ABSENT = "absent"


def check(holds, text):
    if not holds:
        raise bench.BenchError(text)


def check_output(output, expected, what):
    check(output == expected, f"{what}: the output is {output}, computed anew it is {expected}")


class States:
    """Prompts whose states were saved in a plain directory, with the output that follows from each."""

    def __init__(self, engine, directory, prompts):
        self.prompts, self.paths, self.outputs, self.bytes = prompts, {}, {}, {}
        for name, prompt in prompts.items():
            self.paths[name] = directory / f"state-{name}"
            self.outputs[name] = engine.recompute(prompt, save_to=self.paths[name])
            self.bytes[name] = self.paths[name].read_bytes()
        check(len({tuple(output) for output in self.outputs.values()}) == len(prompts),
              "the outputs of different prompts are the same: the model says nothing about its state")

    def name_of(self, data):
        return next((name for name, whole in self.bytes.items() if whole == data), None)

    def rewrite(self, path, order):
        """Requests that save the states one after the other under one name."""
        return list(itertools.chain.from_iterable(
            ({"op": "restore", "path": str(self.paths[name])}, {"op": "save", "path": str(path)}) for name in order))

    def restore(self, engine, path, count=OUTPUT_TOKENS):
        """The name of the state that was found at the path, after what follows from it was checked; or ABSENT."""
        answer = engine.ask("restore", path=path)
        if answer.get("missing"):
            return ABSENT
        name = next((name for name, prompt in self.prompts.items() if prompt.digest == answer["digest"]), None)
        check(name, f"{path} was restored, but is the state of no prompt")
        check_output(engine.go_on(self.prompts[name], count), self.outputs[name][:count], f"{path}, state {name}")
        return name


def restored_is_recomputed(ground, options):
    """Saved by one process, restored by another: same output, same bytes when saved again."""
    for count in options.lengths:
        prompt, path, again = Prompt(count, count), ground.mount / f"prompt-{count}", ground.native / "again"
        with Engine(options) as writer:
            expected = writer.recompute(prompt, save_to=path)
        with Engine(options) as reader:
            check_output(reader.recompute(prompt), expected, f"{count} tokens, computed by two processes")
            for when in ("at once", "after a remount"):
                if when != "at once":
                    ground.remount()
                answer = reader.ask("restore", path=path)
                check(answer.get("digest") == prompt.digest, f"{path}: restored {answer}")
                reader.ask("save", path=again)
                check(again.read_bytes() == path.read_bytes(), f"{path}: saved again it differs")
                check_output(reader.go_on(prompt), expected, f"{path}, restored {when}")
    return "prompts of " + ", ".join(map(str, options.lengths)) + " tokens, at once and after a remount"


def read(path):
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return ABSENT


class Killer:
    """Kills engines while they save, and knows what may be under the name afterwards."""

    def __init__(self, options, states, save_s):
        self.options, self.states, self.save_s = options, states, save_s
        self.random = random.Random(options.seed)
        self.tally = collections.Counter()

    def kill_one(self, path, before):
        """Returns what may be found: the version before, or the one that was being saved."""
        order = [self.random.choice("AB") for _ in range(8)]
        with Engine(self.options) as engine:
            engine.send(self.states.rewrite(path, order))
            # Up to the restore before the first save, or a later one: killed within about the time that a save takes.
            earlier = 0 if before == ABSENT else self.random.randrange(3)
            answers = [engine.receive() for _ in range(2 * earlier + 1)]
            time.sleep(self.random.uniform(0, 0.8 * self.save_s))
            answers += engine.kill()
        check(not any("error" in answer for answer in answers), f"{path}: {answers}")
        saved, saving = len(answers) // 2, len(answers) % 2 == 1
        last = order[saved - 1] if saved else before
        return {last, order[saved]} if saving else {last}

    def look(self, path, allowed, engine):
        data = read(path)
        found = ABSENT if data == ABSENT else self.states.name_of(data)
        check(found, f"{path}: {len(data)} bytes are no whole state")
        check(found in allowed, f"{path}: is {found}, but only {allowed} can be")
        check(self.states.restore(engine, path) == found, f"{path}: the engine did not find {found}")
        if found == ABSENT:
            check_output(engine.recompute(self.states.prompts["A"]), self.states.outputs["A"], "computed after a miss")
        self.tally["absent" if found == ABSENT else "whole"] += 1
        return found


def killed_writers_leave_whole_states(ground, options):
    """Half of the rounds save under new names, half under one that is there."""
    with Engine(options) as reader:
        states = States(reader, ground.native, {"A": Prompt("A", options.kill_tokens),
                                                "B": Prompt("B", options.kill_tokens - 57)})
        states.restore(reader, states.paths["A"])
        killer = Killer(options, states, reader.ask("save", path=ground.mount / "probe")["ms"] / 1000)
        kept, known = ground.mount / "kept", "A"
        kept.write_bytes(states.bytes["A"])
        torn = ground.statistic(ground.mount, "torn_writes")
        for number in range(options.kills):
            if number % 2:
                known = killer.look(kept, killer.kill_one(kept, known), reader)
                check(known != ABSENT, f"{kept} is gone")
            else:
                path = ground.mount / f"new-{number}"
                killer.look(path, killer.kill_one(path, ABSENT), reader)
        torn = ground.statistic(ground.mount, "torn_writes") - torn
    return (f"rounds: {options.kills} writers killed, {torn} of them with a file open for writing: afterwards "
            f"{killer.tally['whole']} times a whole state, {killer.tally['absent']} times none")


def readers_see_whole_states_while_it_is_rewritten(ground, options):
    path, again = ground.mount / "rewritten", ground.native / "again"
    found = collections.Counter()
    with Engine(options) as reader, Engine(options) as writer:
        states = States(reader, ground.native, {"A": Prompt("A", options.kill_tokens),
                                                "B": Prompt("B", options.kill_tokens - 57)})
        with Rewriting(writer, states, path) as rewriting:
            for number in range(options.rereads):
                check(not reader.ask("restore", path=path).get("missing"), f"{path} was absent while it was replaced")
                reader.ask("save", path=again)
                name = states.name_of(again.read_bytes())
                check(name, f"{path}: what was restored is no whole state")
                found[name] += 1
        states.restore(reader, path)
    return (f"rounds: {options.rereads} restores while it was saved {rewriting.saves} times: " +
            ", ".join(f"{found[name]} times {name}" for name in sorted(found)))


class Rewriting:
    """Saves two states in turn under one name, from the first one on until it is left."""

    def __init__(self, writer, states, path):
        self.writer, self.states, self.path = writer, states, path
        self.saves, self.failed = 0, None
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def save(self, name):
        self.writer.ask("restore", path=self.states.paths[name])
        self.writer.ask("save", path=self.path)
        self.saves += 1

    def run(self):
        try:
            for name in itertools.cycle("BA"):
                if self.stop.is_set():
                    break
                self.save(name)
        except bench.BenchError as error:
            self.failed = error

    def __enter__(self):
        self.save("A")
        self.thread.start()
        return self

    def __exit__(self, kind, *_):
        self.stop.set()
        self.thread.join()
        if self.failed and not kind:
            raise self.failed


def pass_over(engine, directory, prompts, outputs):
    """Each prompt as an engine serves it: from its state if that is there, else computed and saved."""
    found = collections.Counter()
    for name, prompt in prompts:
        path = directory / f"prompt-{name}"
        answer = engine.ask("restore", path=path)
        if answer.get("missing"):
            output = engine.recompute(prompt, save_to=path)
        else:
            check(answer["digest"] == prompt.digest, f"{path}: restored {answer}")
            output = engine.go_on(prompt)
        check_output(output, outputs.setdefault(name, output), path)
        found["missing" if answer.get("missing") else "there"] += 1
    return found


def evicted_states_are_clean_misses(ground, options):
    """Three times as many states as there is room for. The engine never fails, and its output is always the same."""
    prompts = [(number, Prompt(f"evict {number}", options.evict_tokens)) for number in range(options.evict_states)]
    outputs = {}
    with Engine(options) as engine:
        probe = ground.native / "probe"
        engine.recompute(prompts[0][1], save_to=probe)
        size = probe.stat().st_size
        # The lease is short, so that there is something to evict whenever a state is saved.
        ground.mount_small(size * len(prompts) // 3, f"reserve_initial={size}", "lease=100ms")
        first = pass_over(engine, ground.small, prompts, outputs)
        # The newest first: from the front, each would have been evicted just before its turn.
        second = pass_over(engine, ground.small, reversed(prompts), outputs)
        evicted = ground.statistic(ground.small, "evicted_blocks")
        ground.umount_small()
    check(first["there"] == 0, f"{first['there']} states were there before they were saved")
    check(evicted and second["missing"], "nothing was evicted")
    check(second["there"], "every state was evicted")
    return (f"{len(prompts)} states of {size} bytes, room for {len(prompts) // 3}: {evicted} evicted; when they were "
            f"wanted again {second['there']} there, {second['missing']} missing")


SCENARIOS = (restored_is_recomputed, killed_writers_leave_whole_states,
             readers_see_whole_states_while_it_is_rewritten, evicted_states_are_clean_misses)
