# SPDX-License-Identifier: Apache-2.0
"""A process with one client of an engine: hold.c."""
import os
import queue
import subprocess
import threading

HOLD = os.environ["HOLD"]


class Party:
    def __init__(self, url, ttl_ms, name="lock:{a}", answer_ms=10000):
        self.process = subprocess.Popen([HOLD, url, str(ttl_ms), name, str(answer_ms)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, bufsize=1)
        self.answers, self.events = queue.Queue(), []
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            at_ms, word, rest = line.rstrip("\n").split(" ", 2)
            if word == "event":
                self.events.append((int(at_ms), rest))
            else:
                self.answers.put((int(at_ms), word, rest))

    def say(self, line):
        self.process.stdin.write(line + "\n")

    def answer(self, patience_s=60):
        """(time, word, what it says)"""
        return self.answers.get(timeout=patience_s)

    def ask(self, line):
        self.say(line)
        return self.answer()[2]

    def valid(self):
        return self.ask("valid").startswith("1 ")

    def told(self, kind):
        return [at_ms for at_ms, text in self.events if text.startswith(kind + " ")]

    def end(self):
        self.process.kill()
        self.process.wait()
