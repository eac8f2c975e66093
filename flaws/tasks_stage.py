# SPDX-License-Identifier: Apache-2.0
"""The stage of a list of tasks: workers pick them, do them, and write a result for each."""
import re

from instance import Instance, Request
from service_stage import ServiceStage
from waiting import wait_until

LETTERS = "letters"
LIST_KEY = f"tasks:{{{LETTERS}}}"
LEASE_MS, SHORT_LEASE_MS = 60000, 1000  # nobody may be so late by chance; one that ends on purpose
# A script is told with the list, the task and the token, and without what is the same each time or differs from run to run:
# the other keys, when the list was laid, the request, the way to write.
SENT = re.compile(r"^(look|take|result)\.lua 4 (\S+) \S+ \S+ \S+ (.*) (?:plain|fenced)$")
LAID = re.compile(r"\b\d{10}\.\d+ ")
FOUND = re.compile(r'^\["?\d+\.\d+"?, "?(\d+)"?, .*\]$')


class Step(Request):
    """A step of a worker: it picks a task, does it, and writes the result."""
    item, label = LETTERS, "POST work"

    def __init__(self, instance, name):
        super().__init__(instance, name, "POST", f"/lists/{LETTERS}/work")

    @property
    def success(self):
        return f"task {self.body['task']} is done"


class TasksInstance(Instance):
    def work(self):
        return self.stage.add_request(Step(self, self.stage.new_name(self)))


class TasksStage(ServiceStage):
    service, program, item = "tasks", "tasksd", LETTERS
    settings = {"task_ms": 0, "lease_ms": LEASE_MS, "result": "plain"}
    columns, instances_are = ("task",), TasksInstance
    points = {"tasks.looked": "has found a task", "tasks.picked": "has picked its task and released the lock",
              "tasks.worked": "has picked a task, has done it"}

    def __init__(self, rung, flaw, *others):
        super().__init__(rung, flaw, *others)
        self.items = {LETTERS: self.settings.pop("tasks", 2)}

    def flags(self):
        lease_ms = self.settings["lease_ms"]
        return ["--task-ms", str(self.settings["task_ms"]), "--result", self.settings["result"],
                *(("--lease-ms", str(lease_ms)) if lease_ms else ("--lease", "off"))]

    def lay(self):
        self.by_operator(f"/lists/{LETTERS}", {"tasks": self.items[LETTERS]})

    def leased(self):
        """The tasks with a lease that has not ended."""
        seconds, us = self.redis("TIME")
        return self.redis("ZRANGEBYSCORE", LIST_KEY, f"({int(seconds) * 1000 + int(us) // 1000}", "+inf")

    def wait_lease(self):
        """Waits until the leases end, if there are any."""
        if self.leased():
            wait_until(lambda: not self.leased(), "the lease ends")
            self.note("the lease ends", "the lease ends")

    def redis_side(self):
        leased = len(self.leased())
        missing = [task for task in range(1, self.items[LETTERS] + 1) if not self.redis("HEXISTS", f"{LIST_KEY}:results", task)]
        return {"tasks": {LETTERS: {"open": self.redis("ZCARD", LIST_KEY) - leased, "leased": leased,
                                    "done": self.redis("HLEN", f"{LIST_KEY}:results"),
                                    "missing": missing, "missing_count": len(missing)}},
                "locks": self.lock_sides()}

    def place_of(self, event):
        return "list" if LIST_KEY in event["sent"] else "lock"

    def in_short(self, sent, reply):
        found = SENT.match(sent)
        if not found:
            return sent, reply
        script, key, words = found.groups()
        words = LAID.sub("", f"{words} ").split()
        if script == "result":
            words.pop()
        return f"{script}.lua {key} {' '.join(words)}", FOUND.sub(lambda found: f"task {found[1]}", reply)
