# SPDX-License-Identifier: Apache-2.0
"""The schedules: what is done to a shop, step by step. Each one is a column of the matrix and runs on every
rung; `shows` names the rungs whose flaw it is, each with the one that survives it; `limits` those that do no harm
under it and yet do worse than another. A schedule waits for causes alone, so it takes the same course every time.

Who acts: a and b, instances of inventoryd with a buyer or two each, and the director, who pauses them at
named points of the code, kills or freezes them, and lets them go on. a's lock lives for a short time, so
that it can expire on purpose; b's lives long, so that nothing else expires by chance."""
import itertools

from stage import LOCK_KEY, LONG_TTL_MS, RENEWED_TTL_MS, SHORT_TTL_MS, WAIT_MS, Spoiled, wait_until

READ, WRITE = "sale.after_read", "sale.before_write"
LOOK = "read.entered"  # of who only reads, and has its lock
GIFT = "?gift=1"  # a sale that asks for its lock once more, inside
CROWD = 8
ALL = {}


class Schedule:
    def __init__(self, run, title, shows, keeps, limits, on, **settings):
        self.run, self.name, self.title = run, run.__name__, title
        self.shows, self.keeps, self.limits, self.on = shows, keeps, limits, on
        self.settings = settings  # of the stage: write, stock

    @property
    def cures(self):
        """By the rung that has the flaw or the limit: the one that has it no more, or None."""
        return {**self.shows, **self.limits}

    @property
    def breaks(self):
        """The first rung whose flaw or limit it is, or None."""
        return next(iter(self.cures), None)

    @property
    def cured(self):
        """The rung that survives what breaks the first one; None: none does yet."""
        return self.cures.get(self.breaks)


def demonstrations():
    """Each schedule with each rung that it is there for."""
    pairs = [(flaw, rung) for flaw, *rungs in shown() for rung in rungs if rung]
    return pairs + [(flaw, flaw.on) for flaw in ALL.values() if not flaw.breaks]


def shown():
    """Every flaw and limit wherever it shows: the schedule, the rung that has it, and the one that survives it,
    or None."""
    return [(flaw, breaks, cured) for flaw in ALL.values() for breaks, cured in flaw.cures.items()]


def schedule(title, shows, keeps, limits=None, on="watchdog", **settings):
    """Registers a function as the schedule of its name. shows: the rungs whose flaw it is, each with the one
    that survives it, or None; limits: the same for what does no harm. keeps: what holds on the cure; where no
    rung breaks, on this one."""
    def register(run):
        ALL[run.__name__] = Schedule(run, title, shows, keeps, limits or {}, on, **settings)
        return run
    return register


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
    """As the stage's, and told."""
    sale, inside = stage.enter(instance, point, query)
    tell_entry(stage, sale, inside)
    return sale, inside


def park(stage, instance, point, query=""):
    """The same."""
    sale = stage.park(instance, point, query)
    tell_entry(stage, sale, True)
    return sale


# ---- Two at once -----------------------------------------------------------------------------------


def finish(stage, sale, inside, point=READ):
    """A sale that is paused, or waits for the lock, to its end."""
    if inside:
        stage.let_go(sale, point)
    else:
        sale.instance.let_go(point)
    stage.wait_answered(sale)


def beside(stage, a, b, meanwhile=lambda: None, query=""):
    """A sale of a is inside and pauses; something happens; one of b comes. Then a's goes on, and then b's."""
    first = park(stage, a, READ, query)
    meanwhile()
    second, inside = enter(stage, b, READ)
    finish(stage, first, True)
    finish(stage, second, inside)


@schedule("two requests in one process read the same stock", {"none": "local"}, "one waits for the other")
def one_process(stage):
    stage.open()
    a = long(stage, "a")
    a.arm(READ, "1*pause")
    a.arm(WRITE, "1*pause")
    first = park(stage, a, READ)
    second, inside = enter(stage, a, WRITE)
    if not inside:
        a.let_go(WRITE)
    finish(stage, first, True)
    finish(stage, second, inside, WRITE)


@schedule("two processes read the same stock", {"local": "setnx", "reentrant_getset": "reentrant"},
          "one waits for the other")
def two_instances(stage):
    stage.open()
    beside(stage, long(stage, "a"), long(stage, "b"))


# ---- The holder dies -------------------------------------------------------------------------------


def dies_at(stage, point):
    stage.open()
    a, b = short(stage), impatient(stage)
    a.set_point(point, "crash")
    sale = a.sell()
    a.wait_dead(f"a is killed at {point}")
    stage.wait_answered(sale)
    was_locked = stage.lock_redis("EXISTS", LOCK_KEY) == 1
    sale = b.sell()
    stage.wait_answered(sale)
    if was_locked and sale.status == 200 and b.count("contended") == 0:
        raise Spoiled("b asked for the lock when it had expired")


@schedule("the holder is killed while it holds the lock", {"setnx": "setnx_expire", "setnx_multi": "set_nx_ex"},
          "the lock frees itself", stock=2)
def killed_holding(stage):
    dies_at(stage, READ)


@schedule("the holder is killed right behind its first command", {"setnx_expire": "set_nx_ex"},
          "the lock frees itself", stock=2)
def killed_acquiring(stage):
    dies_at(stage, point_of(stage, "between_setnx_and_expire", "acquired"))


@schedule("the holder is killed before it gives the lock back", {"setnx": "setnx_expire"},
          "the lock frees itself", stock=2)
def killed_releasing(stage):
    dies_at(stage, point_of(stage, "between_get_and_del", "before_release"))


@schedule("an error path forgets the release", {"setnx": "setnx_expire"}, "the lock frees itself", stock=2)
def forgotten(stage):
    stage.open()
    a, b = short(stage), impatient(stage)
    a.set_point("sale.after_write", "fail")
    sale = a.sell()
    stage.wait_answered(sale)
    stage.note(f"{sale.name} returned early and forgot to give the lock back; a lives on")
    stage.wait_answered(b.sell())


@schedule("Redis dies right behind the holder's first command, and comes back with all it was told",
          {"setnx_expire": "set_nx_ex"}, "the lock frees itself", stock=2)
def redis_dies(stage):
    stage.open(durable=True)
    a, b = short(stage), impatient(stage)
    point = point_of(stage, "between_setnx_and_expire", "acquired")
    sale = stage.park(a, point)
    stage.redis.kill()
    stage.note("the Redis server dies", "Redis dies")
    a.process.kill()
    a.wait_dead("a is killed")
    stage.wait_answered(sale)
    stage.redis.start()
    stage.note("Redis comes back, with everything that it had answered", "Redis comes back")
    stage.wait_answered(b.sell())


@schedule("the network is gone when the lock is given back, and comes back", {"watchdog_timer": "watchdog"},
          "the lock frees itself", stock=4)
def release_lost(stage):
    stage.open(lock_apart=True)
    cable = stage.cable()
    a = stage.instance("a", RENEWED_TTL_MS, "--workers", "1", cable=cable)
    b = long(stage, "b", "--wait-ms", str(3 * RENEWED_TTL_MS))
    stage.wait_answered(a.sell())
    stage.wait_answered(a.sell())
    point = point_of(stage, "before_release")
    third = stage.park(a, point)
    stage.note(f"{third.name} pauses at {point}")
    cable.down()
    stage.note("a cannot reach the lock's Redis any more", "a cannot reach Redis")
    finish(stage, third, True, point)
    cable.up()
    stage.note("it can again", "it can again")
    stage.wait_answered(b.sell())


# ---- The lock expires under its holder -------------------------------------------------------------


def releases_late(stage, point):
    """a is slow to give back, its lock expires, b gets it; what does a's release do to b's lock?"""
    stage.open()
    a, b = stage.instance("a", RENEWED_TTL_MS if stage.rung.renewed else SHORT_TTL_MS), long(stage)
    first = stage.park(a, point)
    stage.note(f"{first.name} pauses at {point}")
    outlive(stage, a)
    second, inside = enter(stage, b, READ)
    finish(stage, first, True, point)
    if not inside:  # it polls: the third must not be quicker
        inside = stage.wait_inside(second, READ)
    third, too = enter(stage, a, READ)
    finish(stage, second, inside)
    finish(stage, third, too)


@schedule("a slow holder gives back a lock that is another's by then", {"set_nx_ex": "owner_check"},
          "the other's lock is left alone", stock=3)
def late_release(stage):
    releases_late(stage, point_of(stage, "before_release"))


@schedule("the lock expires between the look and the delete", {"owner_check": "owner_lua"},
          "the other's lock is left alone", stock=3)
def release_gap(stage):
    releases_late(stage, point_of(stage, "between_get_and_del", "before_release"))


def outlive(stage, holder):
    """Until the lock's time to live is over: it is gone then, or was renewed so often that it would be."""
    if not stage.has_ttl():
        return
    is_there = lambda: stage.lock_redis("EXISTS", LOCK_KEY) == 1
    wait_until(lambda: not is_there() or holder.count("renewals") > 4, "the lock expires, or is renewed")
    if is_there():
        stage.note("its time to live is over, and the lock is still there")
    else:
        stage.note("the lock expires", "the lock expires")


@schedule("the work takes longer than the lock lives", {"reentrant": "watchdog"}, "the lock lives as long as the work")
def long_section(stage):
    stage.open()
    a, b = stage.instance("a", RENEWED_TTL_MS), long(stage)
    beside(stage, a, b, lambda: outlive(stage, a))


@schedule("the holder is frozen for longer than its lock lives, wakes, and writes ahead of the next one",
          {"watchdog": "fenced", "fair": "fenced", "read_write": "fenced", "fenced_textbook": "fenced"}, "a write without the newest token is refused")
def frozen(stage):
    freezes_at(stage, READ)


@schedule("the holder is frozen for longer than its lock lives, wakes, and writes behind the next one",
          {"watchdog": "fenced_textbook"}, "a write with an older token than the last one is refused")
def frozen_late(stage):
    freezes_at(stage, READ, late=True)


@schedule("the holder is frozen between its last look at its hold and its write", {"watchdog": "fenced"},
          "a write without the newest token is refused")
def frozen_writing(stage):
    freezes_at(stage, WRITE)


def freezes_at(stage, point, late=False):
    stage.open()
    a, b = stage.instance("a", RENEWED_TTL_MS), long(stage)
    first = stage.park(a, point)
    stage.note(f"{first.name} pauses at {point}")
    a.freeze()
    stage.note("a is frozen (SIGSTOP)")
    if stage.has_ttl():
        stage.wait_expired()
    second, inside = enter(stage, b, READ)
    if late and inside:
        finish(stage, second, inside)
    stage.note("a wakes (SIGCONT), and knows nothing")
    a.let_go(point)
    a.thaw()
    stage.wait_answered(first)
    if not second.answered:
        finish(stage, second, inside)


# ---- Whose turn it is ------------------------------------------------------------------------------

CALM = ("--grant-ms", "5000")  # on fair: who is given the lock and stands still for a moment keeps its turn


MOMENT_MS = 300


def stands_still(stage, instance):
    instance.freeze()
    stage.note(f"{instance.name} stands still (SIGSTOP)")


def overtakes(stage, a, lets_go):
    """a's sale has the lock; b's waits for it, and then c's. When it comes free b stands still for a moment:
    is c's served first? If so it keeps the lock until b's has waited too long."""
    b, c = long(stage, "b", "--wait-ms", str(WAIT_MS), *CALM), long(stage, "c", "--wait-ms", str(2 * WAIT_MS), *CALM)
    first = park(stage, a, READ)
    second, inside = enter(stage, b, READ)
    third, too = enter(stage, c, READ)
    lets_go(first, third, b)
    if not inside and not too:
        wait_until(lambda: c.parked(READ) or stage.handed_over() or third.answered, "somebody has the lock, or nobody ever")
        too = c.parked(READ) == 1
        inside = stage.handed_over()
        if too:
            stage.note(f"{third.name}, who came after {second.name}, has read the stock and pauses")
    stage.note("b goes on (SIGCONT)")
    b.thaw()
    if inside and not too:  # what it was given it takes
        stage.wait_inside(second, READ)
    finish(stage, second, inside)
    finish(stage, third, too)


@schedule("the first in line stands still for a moment when the lock is given back, and somebody came later",
          {"watchdog": "fair", "notify": "fair"}, "who came first is served first", stock=4)
def stalled_first(stage):
    def goes_on(first, _, b):
        stands_still(stage, b)
        finish(stage, first, True)
    stage.open()
    overtakes(stage, long(stage, "a"), goes_on)


@schedule("the holder is dead, the first in line stands still for a moment when its lock expires, and somebody came later",
          {"watchdog": "fair", "notify": "fair"}, "who came first is served first", stock=4)
def stalled_at_expiry(stage):
    def dies(first, third, b):
        a.process.kill()
        a.wait_dead("a is killed")
        stage.wait_answered(first)
        if stage.has_ttl():
            wait_until(lambda: 0 <= stage.lock_redis("PTTL", LOCK_KEY) < MOMENT_MS or third.answered or third.instance.parked(READ),
                       "the lock is about to expire")
        stands_still(stage, b)
    stage.open()
    a = stage.instance("a", RENEWED_TTL_MS, *CALM)
    overtakes(stage, a, dies)


@schedule("the next in line is killed while it waits", {}, "the one behind it waits for a grant to run out, once", stock=3)
def dead_next(stage):
    stage.open()
    a, b, c = long(stage, "a"), long(stage, "b"), impatient(stage, "c")
    first = park(stage, a, READ)
    second, inside = enter(stage, b, READ)
    third, too = enter(stage, c, READ)
    b.process.kill()
    b.wait_dead("b is killed")
    stage.wait_answered(second)
    finish(stage, first, True)
    finish(stage, third, too)
    if stage.rung.hands_over:
        stage.note(f"grants that ran out unclaimed: {c.count('grants_expired')}")


# ---- The holder asks twice -------------------------------------------------------------------------


def asks_twice(stage, *flags):
    stage.open()
    a = long(stage, "a", "--wait-ms", str(WAIT_MS), *flags)
    stage.note("a1 buys with a gift: inside its section it asks for the same lock again")
    sale = a.sell(GIFT)
    stage.wait_answered(sale)


@schedule("inside its section the holder asks for its own lock again", {"owner_lua": "reentrant"},
          "it is let in and counted")
def reentry(stage):
    asks_twice(stage)


@schedule("the holder asks again under another name, as with an identity for every lock object", {"reentrant": None},
          "one identity a process")
def two_identities(stage):
    asks_twice(stage, "--owner", "object")


@schedule("the inner release of a nested hold must not free the lock", {}, "it is freed by the last one")
def inner_release(stage):
    stage.open()
    a, b = long(stage, "a", "--wait-ms", str(WAIT_MS)), long(stage)
    stage.note("a1 buys with a gift: it asks for the same lock again, and gives it back once")
    first, inside = stage.enter(a, WRITE, GIFT)
    if not inside:
        stage.note("a1 waits for itself")
        stage.wait_answered(first)
        stage.wait_answered(b.sell())
        return
    stage.note("a1 is about to write, and pauses")
    second, too = enter(stage, b, READ)
    finish(stage, first, True, WRITE)
    finish(stage, second, too)


@schedule("the holder asks again when its lock has expired and is another's", {"reentrant_tls": "reentrant"},
          "nothing is sold on the strength of a lock that is gone")
def expired_reentry(stage):
    stage.open()
    a, b = stage.instance("a", RENEWED_TTL_MS, "--wait-ms", "6000"), long(stage)
    beside(stage, a, b, lambda: outlive(stage, a), GIFT)


# ---- Readers ---------------------------------------------------------------------------------------

GUARDED = ("--guard-reads", "on")


@schedule("a reader is killed while it reads", {"rw_counter": "read_write"},
          "a writer waits for the dead reader's own time, and no longer", stock=2)
def dead_reader(stage):
    stage.open()
    a, b = short(stage, "a", *GUARDED), impatient(stage)
    a.set_point(LOOK, "crash")
    reader = a.read()
    a.wait_dead(f"a is killed at {LOOK}")
    stage.wait_answered(reader)
    stage.wait_answered(b.sell())


@schedule("readers keep coming, each before the one ahead of it leaves, and a writer waits", {"rw_counter": "read_write"},
          "the next reader waits behind the writer", stock=2)
def endless_readers(stage):
    stage.open()
    a, b = long(stage, "a", *GUARDED), long(stage, "b", *GUARDED)
    # It waits while the others come and go, on a busy machine too; and they come between two of its tries.
    c = long(stage, "c", "--wait-ms", str(2 * WAIT_MS), "--retry-ms", "500")
    reader = park(stage, a, LOOK, None)
    sale, selling = enter(stage, c, READ)
    unmarked = False
    for instance in (b, a, b):
        if not selling:
            wait_refused_again(stage, sale)
            unmarked |= stage.lock_redis("EXISTS", LOCK_KEY) == 0
        following, inside = enter(stage, instance, LOOK, None)
        if sale.answered:
            raise Spoiled(f"{sale.name} gave up before the last reader came")
        if not inside:
            instance.let_go(LOOK)  # when its turn comes
            break
        leaves(stage, reader)
        reader = following
    if inside and not selling:
        stage.wait_answered(sale)  # its time is over
    leaves(stage, reader)
    if not sale.answered:
        finish(stage, sale, selling)
    stage.wait_answered(following)
    if unmarked:  # readers are in, and between its tries the writer leaves nothing that keeps others out
        check_none_met(a, b, c)


def leaves(stage, reader):
    stage.note(f"{reader.name} goes on")
    reader.instance.let_one_go(LOOK)
    stage.wait_answered(reader)


def tries_of(instance):
    """What one that polls has sent and was answered, try by try: each begins with the same command."""
    tries = []
    for event in instance.events():
        if event["event"] == "command":
            if not tries or event["sent"] == tries[0][0][0]:
                tries.append([])
            tries[-1].append((event["sent"], event["reply"]))
    return tries


def wait_refused_again(stage, sale):
    """One that polls has asked once more, and is through with that: its last try is as long as the one before. A
    reader that comes now does not meet it."""
    if stage.rung.listens:
        return
    asked = len(tries_of(sale.instance))
    wait_until(lambda: sale.answered or len(now := tries_of(sale.instance)) > asked and len(now[-1]) == len(now[-2]),
               f"{sale.name} asks once more")


def check_none_met(*instances):
    """Every reader had the lock at its first try, and the writer found the same at each of its own. A machine that was
    too slow for that made another course of it: one of them came in the middle of the other's coming or going."""
    *readers, writer = instances
    for reader in readers:
        if reader.count("contended") > 0:
            raise Spoiled(f"a reader of {reader.name} met the writer in the middle of its try")
    if any(one != other for one, other in itertools.pairwise(tries_of(writer))):
        raise Spoiled(f"{writer.name} asked while one reader had come and the other not yet left")


@schedule("a sale reads under the read lock, and asks for the write lock while it has that", {"rw_counter": "read_write"},
          "the upgrade is refused, and the sale begins anew, with the write lock", stock=2)
def upgrade(stage):
    stage.open()
    a = impatient(stage, "a", *GUARDED)
    stage.note("a1 looks first: it takes the lock to read, and asks for it to write while it has that")
    stage.wait_answered(a.sell("?look=1"))


# ---- Redis and the cable to it ---------------------------------------------------------------------


@schedule("the lock's Redis is restarted empty", {"watchdog": "fenced"}, "a write without the newest token is refused")
def redis_empty(stage):
    def restart():
        stage.lock_redis.kill()
        stage.lock_redis.start()
        stage.note("the lock's Redis dies, and comes back empty", "Redis comes back empty")
    stage.open(lock_apart=True)
    beside(stage, long(stage, "a"), long(stage), restart)


@schedule("Redis forgets its scripts while the lock is held", {}, "scripts are sent again", stock=2)
def script_flush(stage):
    def flush():
        stage.redis("SCRIPT", "FLUSH")
        stage.note("SCRIPT FLUSH")
    stage.open()
    beside(stage, long(stage, "a"), long(stage), flush)


@schedule("the reply to the holder's first command is lost", {"set_nx_ex": "owner_check"},
          "it asks whose the lock is, and finds that it is its own", stock=2)
def cut_acquiring(stage):
    stage.open(lock_apart=True)
    cable = stage.cable()
    a, b = short(stage, cable=cable), impatient(stage)
    cable.lose_next = True
    stage.note("a's connection to the lock's Redis will be cut before the first reply comes")
    stage.wait_answered(a.sell())
    stage.wait_answered(b.sell())


@schedule("the connection is cut while the lock is held, and healed before its release", {},
          "the release finds its way", stock=2)
def cut_holding(stage):
    def cut():
        cable.cut()
        stage.note("a's connections to the lock's Redis are cut; new ones work", "a's connections are cut")
    stage.open(lock_apart=True)
    cable = stage.cable()
    beside(stage, long(stage, "a", cable=cable), long(stage), cut)


# ---- Who waits without asking ----------------------------------------------------------------------


@schedule("two wait, and the one who is woken dies before it acts", {"blpop_wake": "notify"}, "all who wait are told", stock=3)
def signal_lost(stage):
    stage.open()
    a, b, c = long(stage, "a"), long(stage), impatient(stage, "c")
    first = park(stage, a, READ)
    second, inside = enter(stage, b, READ)
    third, too = enter(stage, c, READ)
    b.freeze()
    c.freeze()
    stage.note("b and c are frozen (SIGSTOP)")
    finish(stage, first, True)
    b.process.kill()
    b.wait_dead("b is killed")
    stage.wait_answered(second)
    stage.note("c wakes (SIGCONT)")
    c.thaw()
    finish(stage, third, too)


@schedule("the lock is freed before the one who was refused can listen", {},
          "it asks again once it listens", on="notify", stock=2)
def freed_meanwhile(stage):
    stage.open()
    cable = stage.cable()
    a, b = long(stage, "a"), impatient(stage, cable=cable)
    first = park(stage, a, READ)
    cable.hold()
    second, inside = stage.enter(b, READ, or_else=lambda: cable.held_back > 0)
    if inside:
        tell_entry(stage, second, True)
    else:
        stage.note(f"{second.name} has asked for the lock, and the answer is on its way")
    finish(stage, first, True)
    if not inside:
        stage.note("the answer arrives")
    cable.go_on()
    finish(stage, second, inside)


@schedule("the connection of who listens is cut, and once more in the moment in which the lock is freed", {},
          "it listens anew, and asks", on="notify", stock=2)
def cut_listening(stage):
    stage.open()
    a, b = long(stage, "a"), impatient(stage)
    first = park(stage, a, READ)
    second, inside = enter(stage, b, READ)
    if stage.listeners():
        connects = b.count("redis_connects")
        stage.cut_listeners()
        stage.note("the connection on which b listens is cut", "b hears nothing")
        wait_until(lambda: second.answered or b.count("redis_connects") > connects and stage.listeners(), "b listens again")
    b.freeze()
    stage.cut_listeners()
    stage.note("b is frozen (SIGSTOP), and nobody listens", "nobody listens")
    finish(stage, first, True)
    stage.note("b wakes (SIGCONT)")
    b.thaw()
    finish(stage, second, inside)


@schedule("a crowd of one process waits", {}, "one of each process asks, and only when there is something to be had",
          limits={"watchdog": "notify"}, stock=CROWD + 1)
def herd(stage, crowd=CROWD):
    stage.open()
    a, b = long(stage, "a"), long(stage, "b", "--workers", str(crowd), "--wait-ms", "6000")
    first = park(stage, a, READ)
    stage.note(f"{crowd} buyers come to b")
    sales = [b.sell() for _ in range(crowd)]
    stage.crowd = {sale.name for sale in sales}
    all_wait = lambda: b.in_flight() == crowd and b.count("attempts") >= stage.rung.asks_in_vain
    wait_until(lambda: all_wait() or all(sale.answered for sale in sales), "the crowd waits")
    asked = b.count("redis_commands")
    stage.wait_second()
    stage.note(f"a second goes by, in which b asks the lock's Redis   ({b.count('redis_commands') - asked} times)")
    stage.let_go(first, READ)
    stage.wait_answered(first, *sales)
    stage.note(f"for all of its sales b has asked it   ({b.count('redis_commands')} times)")
