# SPDX-License-Identifier: Apache-2.0
"""What happens to tasks that workers pick from a list."""
from base_stage import LONG_TTL_MS
from scenarios.scenario import of_service
from tasks_stage import SHORT_LEASE_MS

LOOKED, PICKED, WORKED = "tasks.looked", "tasks.picked", "tasks.worked"


def two_workers(stage):
    stage.open()
    return (stage.instance(name, LONG_TTL_MS) for name in "ab")


@of_service("tasks", "two workers find the same task, and both pick it", "the second one looks when the first one has picked",
            {"none": "watchdog", "local": "watchdog"}, "repeated")
def task_twice(stage):
    a, b = two_workers(stage)
    first, _ = stage.enter(a, LOOKED, a.work)
    second, inside = stage.enter(b, LOOKED, b.work)
    stage.go_on_to(first, LOOKED, PICKED)
    if not inside:
        stage.wait_at(second, LOOKED)
    stage.finish(second, True, LOOKED)
    stage.finish(first, True, PICKED)


@of_service("tasks", "a worker picks a task and dies", "the pick is a lease, which ends, and another worker takes the task over",
            {"tasks_no_lease": "watchdog"}, "lost_task", fault="killed_working", tasks=1, lease_ms=SHORT_LEASE_MS)
def task_lost(stage):
    a, b = two_workers(stage)
    stage.kill_at(a, [PICKED], a.work, f"a is killed at {PICKED}")
    stage.wait_lease()
    stage.wait_answered(b.work())


@of_service("tasks", "a worker is late, another one takes its task over, and both write a result",
            "the list refuses the result of the older pick", {"fair": "tasks_fenced"}, "repeated", fault="frozen", tasks=1,
            lease_ms=SHORT_LEASE_MS)
def task_late(stage):
    a, b = two_workers(stage)
    first, _ = stage.enter(a, WORKED, a.work)
    stage.wait_lease()
    stage.wait_answered(b.work())
    stage.finish(first, True, WORKED)
