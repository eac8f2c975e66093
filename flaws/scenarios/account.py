# SPDX-License-Identifier: Apache-2.0
"""What happens to the balances of accounts."""
from account_stage import X, Y
from base_stage import LONG_TTL_MS, RENEWED_TTL_MS, WAIT_MS
from scenarios.scenario import of_service
from waiting import wait_until

READ, ONE_LOCK, BETWEEN, WRITTEN = "account.read", "account.one_lock", "account.between", "account.before_answer"


@of_service("account", "A adds 200 and B takes 100, and both have read the same balance", "B reads what A has written",
            {"none": "watchdog", "local": "watchdog"}, "unbalanced", fault="lost_update")
def account_lost_update(stage):
    stage.open()
    a, b = (stage.instance(name, LONG_TTL_MS) for name in "ab")
    first, _ = stage.enter(a, READ, lambda: a.add(200))
    second, inside = stage.enter(b, READ, lambda: b.add(-100))
    stage.finish(first, True, READ)
    stage.finish(second, inside, READ)


@of_service("account", "a process dies when the first command of a transfer has written", "one script writes both accounts",
            {"account_two": "watchdog"}, "unbalanced", fault="killed_between")
def account_torn(stage):
    stage.open()
    a, b = (stage.instance(name, LONG_TTL_MS) for name in "ab")
    stage.kill_at(a, [BETWEEN, WRITTEN], lambda: a.transfer(X, Y, 40), "a is killed behind its first write")
    for name in (X, Y):
        stage.wait_answered(b.look(name))


@of_service("account", "a process has read a balance, is frozen for longer than its lock lives, wakes, and writes",
            "the account refuses a token that is older than its own", {"watchdog": "fair"}, "unbalanced", fault="frozen")
def account_frozen(stage):
    stage.open()
    a, b = stage.instance("a", RENEWED_TTL_MS), stage.instance("b", LONG_TTL_MS)
    first, _ = stage.enter(a, READ, lambda: a.add(200))
    stage.freeze(a)
    stage.wait_answered(b.add(-100))
    stage.wake(a, READ)
    stage.wait_answered(first)


@of_service("account", "a transfer from x to y and one from y to x come at once, and each takes the lock of its first account",
            "each has both locks or none", {"account_unordered": "watchdog"}, "deadlock", fault="crossed")
def account_crossed(stage):
    """a's transfer times out first: then b's has its second lock."""
    stage.open()
    a, b = stage.instance("a", LONG_TTL_MS, "--wait-ms", str(WAIT_MS // 2)), stage.instance("b", LONG_TTL_MS)
    point = ONE_LOCK if stage.settings["locks"] == "unordered" else READ
    first, _ = stage.enter(a, point, lambda: a.transfer(X, Y, 5))
    second, inside = stage.enter(b, point, lambda: b.transfer(Y, X, 7))
    for request in (first, second) if inside else ():
        waits = stage.kept_out(request.instance)
        stage.resume(request, point)
        wait_until(waits, f"{request.name} waits for its second lock")
    if not inside:
        stage.finish(first, True, point)
        b.resume(point)
    stage.wait_answered(first, second)
