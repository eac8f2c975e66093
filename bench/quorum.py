# SPDX-License-Identifier: Apache-2.0
"""bench quorum: libdlock's redlock and the Go library redsync on the same five Redis servers, and redlock alone on ill
servers. HELP says what is compared."""
import contextlib
import re
import socket
import sys

from locks import refuse_busy
from rounds import cost_bar
from versus import (CROWD, EXIT_CODES, FAIR, NEEDS_BENCH, Load, VersusWorld, build_with_go, compare, our_program,
                    with_peer)
from world import ROOT, redis_version
from ports import free_port
from redis_server import Redis

SERVERS = 5
DELAY_MS = 200
WARM_MS = 3000  # until the late server is connected, which takes several replies
OURS, PEER = "redlock", "redsync"
TOKENS = f"{OURS} with tokens"
ILL = f"{OURS} on ill servers"


def beside_tokens(waiters, least):
    return with_peer(waiters, least, OURS, PEER, [TOKENS], [(TOKENS, PEER), (TOKENS, OURS)])


LOADS = {"pairs": beside_tokens(1, 0.9),
         "crowd": beside_tokens(CROWD, 1),
         "ill": Load(f"on ill servers, the replies of one come {DELAY_MS} ms late, and another is silent", 1, [OURS, ILL],
                     "us_per_pair", [(ILL, OURS)], [cost_bar(ILL, OURS, 1.5, "us_per_pair")])}

HELP = f"""\
Compares libdlock's redlock with the Go library redsync on the same {SERVERS} Redis servers, and with itself on ill
servers. A pair is an acquire and its release. The command starts the servers itself, and ends them.

shapes:
  pairs   {OURS}, {PEER} and {TOKENS}: one waiter.
          Bar: pairs/s of {OURS} / pairs/s of {PEER} is at least 0.9.
  crowd   The same three: {CROWD} waiters in one process want one lock. Bar: the same ratio is at least 1.
  ill     {OURS} on {SERVERS} servers that are well, and on ill ones: the replies of one server come {DELAY_MS} ms
          late, and another server never answers. One waiter.
          Bar: time of a pair on ill servers / time of a pair on well ones is at most 1.5.

"With tokens" means that each acquire also draws a fencing token, which costs a second round to the servers.
redsync has no tokens, so that row has no bar.

{FAIR}

It needs Go, and Go's module proxy the first time, except for `--shape ill`. Build the rest before:
  {NEEDS_BENCH}

A round is valid if every pair succeeded, no two waiters held the lock at once, each token is larger than the one
before, and the late server was asked all the time.
{EXIT_CODES}
"""


class Hole:
    """An address that drops the first packet of each new connection."""

    def __init__(self):
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(0)
        self.port = self.listener.getsockname()[1]
        self.fillers = [socket.socket() for _ in range(8)]
        for filler in self.fillers:
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", self.port))

    def close(self):
        for one in [self.listener, *self.fillers]:
            one.close()


class QuorumWorld(VersusWorld):
    """Independent Redis servers; a relay before the last but one delays each reply, and an address is silent."""
    ours = OURS

    def start_all(self):
        self.servers = [Redis(self.folder / f"redis-{number}", spawn=self.start) for number in range(SERVERS)]
        self.late_port = free_port()
        self.start([sys.executable, str(ROOT / "bench" / "relay.py"), str(self.late_port),
                    str(self.servers[-2].port), str(DELAY_MS)])
        self.wait(self.relay_listens, "the relay")
        self.hole = self.stack.enter_context(contextlib.closing(Hole()))

    def relay_listens(self):
        with socket.create_connection(("127.0.0.1", self.late_port)):
            return True

    def words(self, who):
        ports = [server.port for server in self.servers]
        if who == ILL:
            ports[-2:] = self.late_port, self.hole.port
        options = {ILL: ["-warm-ms", str(WARM_MS)], TOKENS: ["-tokens"]}.get(who, [])
        return [*options, *(f"{'' if who == PEER else 'redis://'}127.0.0.1:{port}" for port in ports)]

    @staticmethod
    def version():
        return redis_version()

    def look(self):
        """How many commands the late server has run."""
        return int(re.search(r"total_commands_processed:(\d+)", self.servers[-2]("INFO", "stats"))[1])

    def is_empty(self):
        """A late request may still arrive: the peer's, of an attempt that was refused."""
        return all(server("EXISTS", "lock:{phone}") == 0 for server in self.servers)

    def judge(self, who, pairs, before):
        late = self.look() - before
        reasons = []
        if who == ILL and late < 2 * pairs:
            reasons.append(f"the late server was asked only {late} times: it was not connected all the time")
        return {"late_commands": late}, reasons


def quorum(parser, arguments, keep):
    """Compares libdlock's redlock with redsync on five Redis servers, and with itself if two of them are ill."""
    refuse_busy(parser, arguments)
    programs = {OURS: our_program()}
    if any(PEER in LOADS[name].contestants for name in arguments.shape or LOADS):
        programs[PEER] = build_with_go(PEER)
    return compare("quorum", QuorumWorld, LOADS, programs, arguments, keep)
