# SPDX-License-Identifier: Apache-2.0
"""libdlock-zookeeper on an ensemble of three: what is lost, cut off, or frozen, and what becomes of the holds."""
import signal

import pytest

from party import Party
from waiting import wait_until
from zookeepers import Ensemble

TTL_MS = 3000


@pytest.fixture
def ensemble(tmp_path, request):
    made = Ensemble(tmp_path, **getattr(request, "param", {}))
    made.start()
    yield made
    made.end()


@pytest.fixture
def parties():
    made = []

    def make(url, ttl_ms=TTL_MS):
        made.append(Party(url, ttl_ms))
        return made[-1]
    yield make
    for party in made:
        party.end()


def test_the_leader_is_lost_and_the_hold_is_not(ensemble, parties):
    first, leader = ensemble.followers()[0], ensemble.leader()
    holder, waiter = parties(ensemble.url(first), ttl_ms=20000), parties(ensemble.url(), ttl_ms=20000)
    token = int(holder.ask("acquire 60000").split()[1])
    waiter.say("acquire 60000")
    leader.kill()
    wait_until(lambda: holder.told("CONNECTION_RESTORED"), "a new leader", 60)
    assert holder.valid() and holder.ask("extend").startswith("OK")
    assert holder.ask("release").startswith("OK")
    assert int(waiter.answer()[2].split()[1]) > token
    assert not holder.told("LOST")


@pytest.mark.parametrize("ensemble", [{"links": True, "sync_limit": 100}], indirect=True)
def test_a_follower_that_is_cut_off_keeps_no_hold_valid(ensemble, parties):
    """It serves its client for 20 s more. The hold ends all the same, before another client is granted the lock."""
    follower = ensemble.followers()[0]
    others = [node for node in ensemble.nodes if node is not follower]
    holder, waiter = parties(ensemble.url(follower)), parties(ensemble.url(*others))
    assert holder.ask("acquire 60000").startswith("OK")
    waiter.say("acquire 60000")
    ensemble.cut_off(follower)
    granted_ms = waiter.answer()[0]
    assert not holder.valid()
    lost = wait_until(lambda: holder.told("LOST"), "the loss")
    assert lost[0] <= granted_ms


def test_a_minority_is_lost_and_the_others_work(ensemble, parties):
    follower = ensemble.followers()[0]
    follower.kill()
    party = parties(ensemble.url())
    assert party.ask("acquire 60000").startswith("OK") and party.ask("release").startswith("OK")


def test_without_a_majority_nothing_is_granted(ensemble, parties):
    follower = ensemble.followers()[0]
    party = parties(ensemble.url(follower))
    assert party.ask("acquire 60000").startswith("OK") and party.ask("release").startswith("OK")
    for node in ensemble.nodes:
        if node is not follower:
            node.kill()
    assert party.ask("acquire 1000").split()[0] in ("UNREACHABLE", "UNKNOWN", "TIMED_OUT")


def test_a_frozen_holder_finds_that_it_has_lost(ensemble, parties):
    holder, waiter = parties(ensemble.url()), parties(ensemble.url())
    token = int(holder.ask("acquire 60000").split()[1])
    waiter.say("acquire 60000")
    holder.process.send_signal(signal.SIGSTOP)
    assert int(waiter.answer()[2].split()[1]) > token
    holder.process.send_signal(signal.SIGCONT)
    assert not holder.valid()
    wait_until(lambda: holder.told("LOST"), "the loss")
    assert holder.ask("release").startswith("LOST")
    assert waiter.ask("release").startswith("OK") and holder.ask("acquire 60000").startswith("OK")
