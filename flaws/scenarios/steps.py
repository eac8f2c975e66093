# SPDX-License-Identifier: Apache-2.0
"""What the scenarios are made of: instances, and sales that are stopped at points of the code and let go on."""
from stage import LOCK_KEY, LONG_TTL_MS, SHORT_TTL_MS, WAIT_MS
from waiting import wait_until

READ, WRITE = "sale.after_read", "sale.before_write"


def point_of(stage, *names):
    """The first of these points that the rung has; where it has none, the end of its section."""
    for name in names:
        if name in stage.rung.points:
            return f"{stage.rung.lock.name}.{name}"
    return "sale.after_write"


def short(stage, name="a", *flags, **where):
    return stage.instance(name, SHORT_TTL_MS, *flags, **where)


def long(stage, name="b", *flags, **where):
    return stage.instance(name, LONG_TTL_MS, *flags, **where)


def impatient(stage, name="b", *flags, **where):
    """One that waits for a short time for a lock that may never come."""
    return long(stage, name, "--wait-ms", str(WAIT_MS), *flags, **where)


def tell_entry(stage, sale, inside):
    done = "is inside" if stage.write == "atomic" else "has read the stock" if sale.buys else "has the lock, to read,"
    stage.note(f"{sale.name} {done} and pauses" if inside else f"{sale.name} waits for the lock")


def enter(stage, instance, point, query=""):
    """As Stage.enter(), and noted in the transcript."""
    sale, inside = stage.enter(instance, point, query)
    tell_entry(stage, sale, inside)
    return sale, inside


def park(stage, instance, point, query=""):
    """As Stage.park(), and noted."""
    sale = stage.park(instance, point, query)
    tell_entry(stage, sale, True)
    return sale


def finish(stage, sale, inside, point=READ):
    """A sale that is paused, or waits for the lock, to its end."""
    if inside:
        stage.resume(sale, point)
    else:
        sale.instance.resume(point)
    stage.wait_answered(sale)


def beside(stage, a, b, meanwhile=lambda: None, query=""):
    """A sale of a is inside and pauses; something happens; one of b comes. Then a's goes on, and then b's."""
    first = park(stage, a, READ, query)
    meanwhile()
    second, inside = enter(stage, b, READ)
    finish(stage, first, True)
    finish(stage, second, inside)


def outlive(stage, holder):
    """Until the lock's time to live is over: it is gone then, or was renewed so often that it would be."""
    if not stage.has_ttl():
        return
    is_there = lambda: stage.lock_redis("EXISTS", LOCK_KEY) == 1
    wait_until(lambda: not is_there() or holder.count("renewals") > 4, "the lock expires, or is renewed")
    if is_there():
        stage.note("its time to live has ended, and the lock is still there")
    else:
        stage.note("the lock expires", "the lock expires")
