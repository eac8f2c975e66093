# SPDX-License-Identifier: Apache-2.0
"""Two clients are in their critical sections at once."""
from scenarios.scenario import scenario
from scenarios.steps import READ, WRITE, beside, enter, finish, long, park


@scenario("two requests in one process read the same stock", {"none": "local"}, "one waits for the other")
def one_process(stage):
    stage.open()
    a = long(stage, "a")
    a.arm(READ, "1*pause")
    a.arm(WRITE, "1*pause")
    first = park(stage, a, READ)
    second, inside = enter(stage, a, WRITE)
    if not inside:
        a.resume(WRITE)
    finish(stage, first, True)
    finish(stage, second, inside, WRITE)


@scenario("two processes read the same stock", {"local": "setnx", "reentrant_getset": "reentrant"},
          "one waits for the other")
def two_instances(stage):
    stage.open()
    beside(stage, long(stage, "a"), long(stage, "b"))
