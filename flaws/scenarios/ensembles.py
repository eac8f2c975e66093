# SPDX-License-Identifier: Apache-2.0
"""The servers of an ensemble die, or are cut off from each other, or forget."""
from scenarios.scenario import of_ensembles
from scenarios.steps import READ, enter, finish, park
from stage import CROWD_TTL_MS, CUT_OFF_TTL_MS, LASTING_TTL_MS, LOCK_KEY, RENEWED_TTL_MS
from waiting import Inconclusive, wait_until

LOOKS = ("--check-hold", "on")  # the sale writes only while its hold is valid
PATIENT = ("--wait-ms", "60000")  # until others lead, and longer
IMPATIENT = ("--wait-ms", "3000")
CROWD = 200
CROWD_S = 60  # for all of it on a busy machine
SET, FIRED = "zk_watch_count", "zk_sum_node_[a-z]+_watch_count"  # watches, as ZooKeeper counts them


@of_ensembles("the leader of the ensemble dies while the lock is held",
              "the hold stays valid, and the waiter gets the lock when it is released", stock=2)
def leader_lost(stage):
    stage.open()
    a, b = (stage.instance(name, LASTING_TTL_MS, *LOOKS, *PATIENT) for name in "ab")
    first = park(stage, a, READ)
    second, inside = enter(stage, b, READ)
    stage.ensemble.leader().kill()
    stage.note("the leader dies", "the leader dies")
    stage.ensemble.leader()
    stage.note("another one leads", "another one leads")
    finish(stage, first, True)
    finish(stage, second, inside)


def are_cut_off(stage, count, *flags):
    """A sale of a, and then so many of the three servers are cut off: from each other, too. Returns a."""
    stage.open(links=True)
    a = stage.instance("a", LASTING_TTL_MS, *LOOKS, *flags)
    stage.wait_answered(a.sell())
    for node in [*stage.ensemble.followers()[:1], stage.ensemble.leader()][:count]:
        stage.ensemble.cut_off(node)
    told = "a follower is" if count == 1 else "the leader and a follower are"
    stage.note(f"{told} cut off from all others", f"{told} cut off")
    return a


@of_ensembles("a follower is cut off from the two others", "they are a majority, and sales go on", stock=2)
def minority_cut_off(stage):
    stage.wait_answered(are_cut_off(stage, 1, *PATIENT).sell())


@of_ensembles("each server is cut off from the two others; later all are joined again",
              "buyers are refused in time, nothing is left behind, and sales go on", stock=3)
def majority_cut_off(stage):
    a = are_cut_off(stage, 2, *IMPATIENT)
    wait_until(lambda: not stage.ensemble.serving(), "no server serves")
    stage.wait_answered(a.sell())
    stage.ensemble.mend()
    stage.note("all are joined again", "all are joined again")
    b = stage.instance("b", LASTING_TTL_MS, *PATIENT)
    stage.wait_answered(b.sell())


@of_ensembles("the server that the holder's client is connected with is a follower, and is cut off from the others",
              "the hold ends by its client's own clock, before another client gets the lock")
def follower_cut_off(stage):
    stage.open(serves_on=True)
    follower = stage.ensemble.followers()[0]
    a = stage.instance("a", CUT_OFF_TTL_MS, *LOOKS, reaches=[follower])
    b = stage.instance("b", CUT_OFF_TTL_MS, *PATIENT, reaches=[node for node in stage.ensemble.nodes if node is not follower])
    first = park(stage, a, READ)
    second, _ = enter(stage, b, READ)
    stage.ensemble.cut_off(follower)
    stage.note("the follower that serves a is cut off from the others", "a's server is cut off")
    told = wait_until(lambda: a.told("lost"), "a's hold ends")
    stage.note("a's hold has ended, by a's clock", "a's hold has ended")
    finish(stage, first, True)
    stage.wait_inside(second, READ)
    if told[0]["t_ns"] < b.told("granted")[0]["t_ns"] < a.told("exit")[0]["t_ns"]:
        raise Inconclusive("b got the lock when a's hold had ended, and before a was let go on")
    finish(stage, second, True)


@of_ensembles("the holder is frozen for longer than its session or lease lives, wakes, and writes before the next holder does",
              "a write without the newest token is refused", fenced=True)
def session_lost(stage):
    stage.open()
    a, b = stage.instance("a", RENEWED_TTL_MS), stage.instance("b", LASTING_TTL_MS, *PATIENT)
    first = park(stage, a, READ)
    second, inside = enter(stage, b, READ)
    a.freeze()
    stage.note("a is frozen (SIGSTOP)")
    inside = inside or stage.wait_inside(second, READ)
    stage.note("a wakes (SIGCONT), and knows nothing")
    a.resume(READ)
    a.thaw()
    stage.wait_answered(first)
    finish(stage, second, inside)


@of_ensembles("all servers of the ensemble die while the lock is held, and come back empty",
              "a write of an earlier epoch is refused", fenced=True)
def data_lost(stage):
    stage.open()
    a = stage.instance("a", LASTING_TTL_MS)
    first = park(stage, a, READ)
    stage.ensemble.kill()
    stage.queue_watch.look(after_change=True)
    for node in stage.ensemble.nodes:
        node.forget()
    stage.ensemble.mend()
    stage.note("all servers die, and come back empty", "the servers come back empty")
    b = stage.instance("b", LASTING_TTL_MS)
    second, inside = enter(stage, b, READ)
    finish(stage, first, True)
    finish(stage, second, inside)


@of_ensembles("two hundred waiters are in the lock's queue", "each release wakes one waiter, the next one",
              limits={"zookeeper_herd": "zookeeper"}, stock=CROWD + 1)
def herd(stage, crowd=CROWD):
    stage.open()
    a = stage.instance("a", CROWD_TTL_MS, *PATIENT)
    first = park(stage, a, READ)
    wait_served, woken = (herding if stage.rung.herds else queueing)(stage, crowd)
    counts = stage.rung.engine == "zookeeper"
    before = counts and stage.ensemble.count(FIRED)
    finish(stage, first, True)
    wait_served()
    stage.note(f"all waiters have held the lock, and were woken {woken()} times")
    if counts:
        stage.note(f"ZooKeeper's servers have fired {stage.ensemble.count(FIRED) - before} watches")


def queueing(stage, crowd):
    """So many buyers wait, each with a place of its own in the queue. Returns what waits until all are served, and what
    counts how often they tried again."""
    b = stage.instance("b", CROWD_TTL_MS, *PATIENT, "--workers", "16", "--contenders", str(crowd))
    sales = [b.sell() for _ in range(crowd)]
    stage.crowd = {sale.name for sale in sales}
    watches = lambda: stage.rung.engine != "zookeeper" or stage.ensemble.count(SET) == crowd + 1  # a's node is a's, too
    wait_until(lambda: b.waiting() == crowd and len(stage.ensemble.queue(LOCK_KEY)) == crowd + 1 and watches(),
               "the crowd waits", CROWD_S)
    asked = b.count("attempts")
    stage.note(f"{crowd} buyers wait, each for the end of the one before")
    return lambda: stage.wait_answered(*sales), lambda: b.count("attempts") - asked


def herding(stage, crowd):
    """So many waiters of a program of its own, which watch the queue. The same is returned."""
    ensemble, out = stage.ensemble, stage.folder / "herd.txt"
    # A server that is behind does not show the holder's node at once.
    queue = wait_until(lambda: ensemble.queue(LOCK_KEY), "the holder's node is seen", CROWD_S)[0].rpartition("/")[0]
    hosts = ",".join(f"127.0.0.1:{node.client_port}" for node in ensemble.nodes)
    with open(out, "wb") as file:
        program = stage.spawn([str(stage.built("herd")), hosts, queue, str(crowd)], file)

    def said(word):
        def find():
            if program.poll():
                raise Inconclusive(f"herd: {out.read_text()}")
            return [line for line in out.read_text().splitlines() if line.startswith(word)]
        return wait_until(find, f"herd says {word}", CROWD_S)
    said("waiting")
    stage.note(f"{crowd} waiters of another program wait, and each watches the whole queue")
    return lambda: said("woken"), lambda: int(said("woken")[0].split()[1])
