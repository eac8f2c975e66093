# SPDX-License-Identifier: Apache-2.0
"""Locks that readers share."""
import itertools

from scenarios.scenario import scenario
from scenarios.steps import READ, enter, finish, impatient, long, park, short
from stage import LOCK_KEY, WAIT_MS
from waiting import Inconclusive, wait_until

GUARDED = ("--guard-reads", "on")
LOOK = "read.entered"  # of who only reads, and has its lock


@scenario("a reader is killed while it reads", {"rw_counter": "read_write"},
          "a writer waits for the dead reader's own time, and no longer", stock=2)
def dead_reader(stage):
    stage.open()
    a, b = short(stage, "a", *GUARDED), impatient(stage)
    a.set_point(LOOK, "crash")
    reader = a.read()
    a.wait_dead(f"a is killed at {LOOK}")
    stage.wait_answered(reader)
    stage.wait_answered(b.sell())


@scenario("readers keep coming, each before the last one leaves, and a writer waits", {"rw_counter": "read_write"},
          "the next reader waits until the writer is done", stock=2)
def writer_starvation(stage):
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
            raise Inconclusive(f"{sale.name} gave up before the last reader came")
        if not inside:
            instance.resume(LOOK)  # when its turn comes
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
    reader.instance.resume_one(LOOK)
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
    if stage.rung.quorum:  # a try is a request to each server, and has begun anew when the one before is over
        asked = sale.instance.count("attempts")
        wait_until(lambda: sale.answered or sale.instance.count("attempts") > asked + 1, f"{sale.name} asks once more")
        return
    asked = len(tries_of(sale.instance))
    wait_until(lambda: sale.answered or len(now := tries_of(sale.instance)) > asked and len(now[-1]) == len(now[-2]),
               f"{sale.name} asks once more")


def check_none_met(*instances):
    """Every reader had the lock at its first try, and the writer found the same at each of its own. On a machine that
    was too slow the interleaving was another: one of them came while the other was coming or going."""
    *readers, writer = instances
    for reader in readers:
        if reader.count("contended") > 0:
            raise Inconclusive(f"a reader of {reader.name} met the writer in the middle of its try")
    if any(one != other for one, other in itertools.pairwise(tries_of(writer))):
        raise Inconclusive(f"{writer.name} asked while one reader had come and the other not yet left")


@scenario("a sale reads under the read lock, and asks for the write lock while it holds that", {"rw_counter": "read_write"},
          "the upgrade is refused, and the sale begins anew, with the write lock", stock=2)
def upgrade(stage):
    stage.open()
    a = impatient(stage, "a", *GUARDED)
    stage.note("a1 looks first: it takes the lock to read, and asks for it to write while it has that")
    stage.wait_answered(a.sell("?upgrade=1"))
