"""Time to the first token of an answer: the prompt computed, or its state restored from PrefixFS or from the XFS below.

A restore is timed with the one token that is computed after it, as is the prompt. The systems take turns in every
round; the table has medians. The first round warms up and does not count.
"""

import os
import platform
import statistics
import time

from engine import Engine, Prompt
from scenarios import check

STATES = {"hot": "hot", "dropped": "caches dropped", "remounted": "remounted"}


def first_token_ms(engine, prompt):
    return engine.ask("generate", token=prompt.last, count=1)["first_ms"]


class Table:
    def __init__(self, ground, options, say):
        self.ground, self.options, self.say = ground, options, say
        self.systems = {"PrefixFS": ground.mount, "XFS": ground.native}
        # Dropping caches is for the whole machine: tests that run beside this one would feel it.
        self.states = {state: title for state, title in STATES.items() if state != "dropped" or not options.quick}
        self.rows = []

    def measure(self):
        self.load_before = os.getloadavg()[0]
        with Engine(self.options) as engine:
            for count in self.options.lengths:
                samples = {}
                for number in range(self.options.rounds + 1):
                    self.round(engine, Prompt(f"table {count}", count), number, samples)
                    self.say(f"  {count} tokens, round {number} of {self.options.rounds}")
                self.rows.append({"tokens": count, "state_bytes": self.bytes, **{
                    key: {"median_ms": statistics.median(values), "samples_ms": values}
                    for key, values in samples.items()}})

    def round(self, engine, prompt, number, samples):
        def note(key, value):
            if number > 0:
                samples.setdefault(key, []).append(value)

        systems = list(self.systems.items())
        if number % 2:
            systems.reverse()
        engine.ask("clear")
        computed = engine.ask("evaluate", tokens=prompt.head)["ms"]
        for name, directory in systems:
            # Under another name each time, as a new state is; the one before goes.
            self.path(directory, prompt, number - 1).unlink(missing_ok=True)
            answer = engine.ask("save", path=self.path(directory, prompt, number))
            self.bytes = answer["bytes"]
            note(f"{name} save", answer["ms"])
        note("recompute", computed + first_token_ms(engine, prompt))
        for state in self.states:
            for name, directory in systems:
                self.bring_to(state)
                restored = engine.ask("restore", path=self.path(directory, prompt, number))
                check(not restored.get("missing"), f"the state on {name} is missing")
                note(f"{name} {state}", restored["ms"] + first_token_ms(engine, prompt))
                note(f"{name} {state} restore", restored["ms"])

    @staticmethod
    def path(directory, prompt, number):
        return directory / f"table-{prompt.count}-{number}"

    def bring_to(self, state):
        if state == "dropped":
            self.ground.drop_caches()
        elif state == "remounted":
            self.ground.remount()

    def describe(self):
        return {"date": time.strftime("%Y-%m-%d"), "kernel": platform.release(), "cpus": os.cpu_count(),
                "threads": self.options.threads, "rounds": self.options.rounds, "load_before": self.load_before,
                "image": str(self.ground.image.parent.parent)}

    def text(self):
        cells = [["prompt", "state", "computed",
                  *(f"{name}, {title}" for title in self.states.values() for name in self.systems),
                  *(f"{name}, save" for name in self.systems)]]
        for row in self.rows:
            recompute = row["recompute"]["median_ms"]
            cells.append([str(row["tokens"]), f"{row['state_bytes'] / (1 << 20):.1f} MiB", f"{recompute:.0f}",
                          *(self.cell(row, f"{name} {state}") for state in self.states for name in self.systems),
                          *(f"{row[f'{name} save']['median_ms']:.1f}" for name in self.systems)])
        widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
        lines = ["| " + " | ".join(text.rjust(width) for text, width in zip(line, widths)) + " |" for line in cells]
        lines.insert(1, "|" + "|".join("-" * (width + 1) + ":" for width in widths) + "|")
        return "\n".join(lines)

    @staticmethod
    def cell(row, key):
        return f"{row[key]['median_ms']:.1f} ({row[key + ' restore']['median_ms']:.1f})"
