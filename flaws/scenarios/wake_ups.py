# SPDX-License-Identifier: Apache-2.0
"""Waiters that sleep until they are woken."""
from scenarios.scenario import scenario
from scenarios.steps import READ, enter, finish, impatient, long, park, tell_entry
from waiting import wait_until

CROWD = 8


@scenario("two clients wait, and the woken one dies before it acts", {"blpop_wake": "notify"}, "all waiters are woken", stock=3)
def lost_wakeup(stage):
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


@scenario("the lock is released before the refused client has subscribed", {},
          "it asks again once it is subscribed", on="notify", stock=2)
def freed_meanwhile(stage):
    stage.open()
    proxy = stage.proxy()
    a, b = long(stage, "a"), impatient(stage, proxy=proxy)
    first = park(stage, a, READ)
    proxy.hold()
    second, inside = stage.enter(b, READ, or_else=lambda: proxy.held_back > 0)
    if inside:
        tell_entry(stage, second, True)
    else:
        stage.note(f"{second.name} has asked for the lock, and the answer is on its way")
    finish(stage, first, True)
    if not inside:
        stage.note("the answer arrives")
    proxy.go_on()
    finish(stage, second, inside)


@scenario("the subscriber connection is cut, and again at the moment of the release", {},
          "it subscribes again, and asks", on="notify", stock=2)
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


@scenario("a crowd of one process waits", {}, "one waiter of each process asks, and only after a release",
          limits={"watchdog": "notify"}, stock=CROWD + 1)
def thundering_herd(stage, crowd=CROWD):
    stage.open()
    a, b = long(stage, "a"), long(stage, "b", "--workers", str(crowd), "--wait-ms", "6000")
    first = park(stage, a, READ)
    stage.note(f"{crowd} buyers come to b")
    sales = [b.sell() for _ in range(crowd)]
    stage.crowd = {sale.name for sale in sales}
    all_wait = lambda: b.in_flight() == crowd and b.count("attempts") >= stage.rung.attempts_before_waiting
    wait_until(lambda: all_wait() or all(sale.answered for sale in sales), "the crowd waits")
    asked = b.count("redis_commands")
    stage.wait_second()
    stage.note(f"a second goes by, in which b asks the lock's Redis   ({b.count('redis_commands') - asked} times)")
    stage.resume(first, READ)
    stage.wait_answered(first, *sales)
    stage.note(f"for all of its sales b has asked it   ({b.count('redis_commands')} times)")
