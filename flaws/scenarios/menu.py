# SPDX-License-Identifier: Apache-2.0
"""What happens to a menu in a cache, in front of a slow database."""
from base_stage import LONG_TTL_MS, RENEWED_TTL_MS
from scenarios.scenario import of_service

MISSED, FILL = "menu.missed", "menu.before_fill"


def two_ask(stage):
    """a1 finds nothing in the cache, and is about to ask the database; b1 comes."""
    stage.open()
    a, b = (stage.instance(name, LONG_TTL_MS) for name in "ab")
    first, _ = stage.enter(a, MISSED, a.read)
    second, asks = stage.enter(b, MISSED, b.read)
    stage.finish(first, True, MISSED)
    stage.finish(second, asks, MISSED)


@of_service("menu", "two readers find nothing in the cache, and both ask the database", "the second one finds what the first one filled in",
            {"none": "watchdog", "local": "watchdog"}, "stampede")
def menu_both_ask(stage):
    two_ask(stage)


@of_service("menu", "a reader waits for the lock while another one fills the cache, and asks the database all the same",
            "the reader looks into the cache again, once it has the lock", {"menu_one_look": "watchdog"}, "stampede")
def menu_ask_again(stage):
    two_ask(stage)


@of_service("menu", "a reader has asked the database, an update comes, and then the reader fills in the old menu",
            "the update waits until the reader has filled the cache, and then deletes the menu", {"menu_unguarded": "watchdog"}, "stale",
            fault="late_fill")
def menu_late_fill(stage):
    stage.open()
    a, b = (stage.instance(name, LONG_TTL_MS) for name in "ab")
    first, _ = stage.enter(a, FILL, a.read)
    update, _ = stage.begin(b, b.update)
    stage.finish(first, True, FILL)
    stage.wait_answered(update)
    stage.wait_answered(b.read())


@of_service("menu", "a reader has asked the database, is frozen for longer than its lock lives, wakes, and fills in the old menu",
            "the cache refuses a reader whose claim is void", {"fair": "menu_fenced"}, "stale", fault="frozen")
def menu_frozen_fill(stage):
    stage.open()
    a, b = stage.instance("a", RENEWED_TTL_MS), stage.instance("b", LONG_TTL_MS)
    first, _ = stage.enter(a, FILL, a.read)
    stage.freeze(a)
    stage.wait_answered(b.update())
    stage.wake(a, FILL)
    stage.wait_answered(first)
    stage.wait_answered(b.read())
