# SPDX-License-Identifier: Apache-2.0
"""What happened on a stage, a line a step: who sent what to Redis, what it answered, at what time. Taken from
the instances' own records; MONITOR, the server's side, must agree. Repeated tries are one line, every identity
is written as the name of the client or instance that has it, and a channel as what it is."""
import collections
import dataclasses
import functools
import re

import ladder
import lua_scripts as lua

# A client; behind it the number of an acquisition or of an owner, and of a hold. See lock/owner.h.
ID = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?::([xt]?)(\d+)(\.\d+)?(#\d+)?)?")
OBJECTS = 1000000  # an instance's numbers above it are of --owner object: a new one for every acquire
COLUMNS_MAX = 100
ARGUMENT_MAX = 80  # the library cuts longer arguments in its records
HEAD_MAX = 70  # of them that show which script was sent in full
STEPS_MAX = 4  # commands of one try
# What a new connection asks of itself, and ends the one before it by. The library records no login.
LOGIN = ("CLIENT ID", "INFO server", "CLIENT KILL ID ")
# What sentinels and replicas say, and what an instance asks of a server that sentinels name.
OF_GROUP = ("PING", "INFO", "ROLE", "REPLCONF ", "PUBLISH __sentinel__:hello ", "CLIENT SETNAME sentinel-")
PROBED = "{readyz}"  # in the key by which a shop looks whether a server takes writes
LISTENING = ("SUBSCRIBE", "UNSUBSCRIBE", "BLPOP")
LETTING_GO = re.compile(r"_release\.lua|delete_if_owner\.lua| (release|leave|give_up)\b")  # by itself, later
UNSOLD = ("refused", "fail", "unknown")  # how a request may end
CHANNEL = re.compile(r"redisson_lock__channel:lock:\{\w+\}")
TOKEN = re.compile(r"\b\d{16}\b")  # microseconds since 1970
EVALSHA = re.compile(r"EVALSHA ([0-9a-f]{40})")
EVAL = re.compile(r'EVAL "([^"]*)"')
# Of buyers, tokens and units.
ANY_NUMBER = re.compile(r"(?<=<[a-z])\d+|(?<=\bT)\d+(?:\+\d+)?|(?<=inventory:\{phone\} )\d+|(?<=unit )\d+|\d+(?= left)|(?<=^\")\d+(?=\"$)")
NUMBER = re.compile(r"(\d+|\bN\b)")
GROWING = re.compile(r"(?<=\bT)\d+(?:\+\d+)?|(?<=\")\d+(?=\")|(?<=\")N(?=\")|(?<=T)N")
GRANT_TOKENS = 1000  # a client that passes the lock on counts up to so many tokens by itself
# What the larger scripts are sent: the keys beside the lock, and what a step does not look at, are left out.
NOTIFY = re.compile(r"^(notify_acquire\.lua) 2 (\S+) dlock:token:\2 (\S+) (\d+) (\d) \d+$")
# What a fenced sale sends in addition, and what is the same in every run: it reads the identity of the lock's server and
# the stock's epoch, and makes the first epoch. When an epoch is raised, that is told.
EPOCH_KEY = "inventory:epoch"
UNTOLD = re.compile(rf'^(?:SET dlock:identity |HMGET {EPOCH_KEY} |epoch\.lua 1 {EPOCH_KEY} "" )')
RAISED = re.compile(rf"^epoch\.lua 1 {EPOCH_KEY} (E\d+) .*$")
# What a shop does to see what is in a queue, and what became of a sale: how often is chance.
LOOKS_AT_QUEUE = re.compile(r"^(?:Z(?:RANGE|SCAN|REM) inventory:queues |queue_oldest\.lua |X(?:RANGE|LEN) \S+:queue\b|GET inventory:\{\w+\}:(?:id|key):)")
OF_QUEUE_KEY = "}:queue "
OF_QUEUE = re.compile(r"^queue_(?:accept|sell|take|settle)\.lua ")
RANDOM = re.compile(r"\b(?:(?P<entry>\d{13}-\d+)|(?P<id>[0-9a-f]{32})|(?P<mark>[0-9a-f]{16}))\b")
# The rounds of a lock on several servers for a token: the numbers that the servers would accept are of their clocks.
SET_KEY = "dlock:identity:set"
FOR_TOKEN = re.compile(rf"^(redlock_\w+\.lua) \d (lock:\S+ )?(?:dlock:token:\S+ )?{SET_KEY} (\S+).*$")
TOLD_WITH_GRANT = re.compile(r'^\[(\(integer\) [01]), \(integer\) \d{16}, "[^"]*"\]$')  # its number, its identity
OF_ENSEMBLE = re.compile(r"(?<=\.lua )(\d(?: (?!\d+ )\S+)+ )(\d+)(?= )")  # behind the keys: an ensemble's token, any number
ONE_SEGMENT = re.compile(r"^(\S+) 2 \S+ (\S+) \d+ ")  # the number of keys, the item's, and of how many
OF_SEGMENTS = re.compile(r"^(read_segments\.lua) \d+ (\S+)(?: \2:segment:\d+)+$")
FENCED = re.compile(r"^(fenced\w*\.lua) \d (\S+)((?: (?!T)\S+)*) ")
FAIR = re.compile(r"(fair\.lua) 4 (\S+) dlock:queue:\2 dlock:token:\2 dlock:grant:\2 (\w+) (\S+) (\d+) \d+ (\S+) (\d) \d+(?: \S+)?$")
# The same for read_write.lua.
READ_WRITE = re.compile(r"(read_write\.lua) 7 (\S+) " + " ".join(rf"dlock:{kind}:\2" for kind in (
    "holds", "readers", "writers", "invited", "token", "free")) + r" (\w+) (\S+) (\w+) (\d+) \w+ \d+$")


@dataclasses.dataclass(eq=False)
class Line:
    t_ns: int
    who: str
    what: str
    answer: str = ""
    count: int = 1
    at: str = ""  # which server, where there are several

    @property
    def told(self):
        """The answer, and how often it came."""
        return self.answer + (f"   ({self.count} times)" if self.count > 1 else "")


@dataclasses.dataclass
class Script:
    name: str  # of its file
    head: str  # its first line, as far as every record has it


@functools.cache
def scripts():
    """Lua's scripts by the SHA1 that Redis knows them by: the lock's, and each service's."""
    folders = (ladder.ROOT / name / "lua" for name in ("lock", "service", *ladder.SERVICES))
    return {lua.sha1(file): Script(file.name, lua.text(file).splitlines()[0][:HEAD_MAX])
            for folder in folders for file in sorted(folder.glob("*.lua"))}


def epochs_in(event, names):
    """The epochs that the stock answered to this command."""
    words = event.get("sent", "").split()
    asks = words[:2] == ["HMGET", EPOCH_KEY]
    raises = words[:1] == ["EVAL"] and EPOCH_KEY in words and "KEYS[1] the stock's epoch: a hash" in event["sent"] or \
        words[:1] == ["EVALSHA"] and words[1] in names and names[words[1]].name == "epoch.lua"
    return [int(found[0]) for found in TOKEN.finditer(event.get("reply", ""))] if asks or raises else []


def names_any_client(command):
    """An identity has the name of the client that made it."""
    return EPOCH_KEY in command or SET_KEY in command and "KEYS[1] lock," not in command


class Names:
    """Who is who: acquisitions by their sale, clients by their instance."""

    def __init__(self, stage):
        self.clients, self.holds, self.scripts, owners, tokens, epochs = {}, {}, scripts(), {}, set(), set()
        for instance in stage.instances.values():
            for event in instance.events():
                for text in (event.get("hold", ""), event.get("sent", "")):
                    found = ID.search(text) if not names_any_client(text) else None
                    if found and event.get("request"):
                        self.clients.setdefault(found[1], instance.name)
                        if found[4] or found[5]:  # a name that is used once
                            who = sender(instance, event, "")
                            is_first = owners.setdefault(who, found[3]) == found[3]
                            self.holds.setdefault(found[0], who + ("" if is_first else "'s other"))
                epochs.update(epochs_in(event, self.scripts))
                if OF_QUEUE_KEY in event.get("sent", ""):  # it has other numbers
                    continue
                is_of_servers = SET_KEY in event.get("sent", "")  # they tell what they would accept
                reply = "" if is_of_servers else event.get("reply", "")
                tokens.update(int(found[0]) for found in TOKEN.finditer(f"{event.get('sent', '')} {reply}"))
        self.grants = [event for event in in_order(stage, "granted") if stage.ensemble]
        self.epochs = sorted(epochs)
        self.tokens = []  # the first one of each tenure
        for token in sorted(tokens - epochs):
            if not self.tokens or token - self.tokens[-1] >= (GRANT_TOKENS if stage.rung.handoff else 1):
                self.tokens.append(token)

    def name(self, found):
        if found[0] in self.holds:
            return f"<{self.holds[found[0]]}>"
        other = "'s other" if found[2] and int(found[3]) > OBJECTS else ""
        return f"<{self.clients.get(found[1], '?')}{other}>"

    def found_in(self, value):
        """The sale, or else the instance, whose name is in that value of a key; None: it names nobody."""
        found = ID.search(value)
        return (self.holds.get(found[0]) or self.clients.get(found[1])) if found else None

    def token(self, found):
        """T1, T2 in the order of growing; T1+1 is what its client made of T1. E1, E2 are epochs."""
        if int(found[0]) in self.epochs:
            return f"E{self.epochs.index(int(found[0])) + 1}"
        number = sum(first <= int(found[0]) for first in self.tokens)
        if number == 0:
            return found[0]  # it is none
        more = int(found[0]) - self.tokens[number - 1]
        return f"T{number}" + (f"+{more}" if more else "")

    def granted(self, token, request):
        """The same for an ensemble's token. Where it has lost its data, it counts anew: the order is that of the grants, and
        two may have the same number. Then the request's own is meant."""
        same = [(event["request"] == request, number) for number, event in enumerate(self.grants, 1)
                if event["token"] == int(token)]
        return f"T{max(same)[1]}" if same else token

    def plain(self, text, request=None):
        """The text with identities, tokens and scripts by name. request: who sent it."""
        if self.grants and text.startswith("(error) STALE "):
            text = re.sub(r"\b\d+\b", lambda found: self.granted(found[0], request), text)
        text = TOKEN.sub(self.token, ID.sub(self.name, text))
        text = EVALSHA.sub(lambda found: self.scripts[found[1]].name if found[1] in self.scripts else found[0], text)
        if found := EVAL.match(text):
            for script in self.scripts.values():
                if found[1].startswith(script.head):
                    text = script.name + text[found.end():]
                    break
        if self.grants and text.startswith("fenced"):
            text = OF_ENSEMBLE.sub(lambda found: found[1] + self.granted(found[2], request), text)
        return CHANNEL.sub("<channel>", text)


def is_listening(event):
    """Whether the process sent it for all who wait in it."""
    return event.get("sent", "").startswith(LISTENING)


def sender(instance, event, sent):
    """For whom a command was sent."""
    if event.get("request") and not re.fullmatch(rf"{instance.name}\d+", event["request"]):
        return f"{event['request']} by {instance.name}"  # another instance accepted it
    part = "subscriber" if is_listening(event) else "library" if LETTING_GO.search(sent) else "timer"
    return event.get("request") or f"{instance.name}'s {part}"


def of_fair(found):
    script, lock, what, me, ttl_ms, token, more = found.groups()
    words = [script, what, lock, me]
    words += [ttl_ms] if what in ("acquire", "renew") else []
    words += [token] if what in ("release", "renew") else []
    return " ".join(words + (["more"] if more == "1" else []))


def of_read_write(found):
    script, lock, what, me, hold, ttl_ms = found.groups()
    return " ".join([script, what, lock, me, hold] + ([ttl_ms] if what in ("acquire", "renew") else []))


def of_fenced(found):
    script, stock, keys = found.groups()
    named = {f"{stock}:fence": "<fence>"}
    told = [key for key in keys.split() if key not in (EPOCH_KEY, "dlock:identity")]
    return " ".join([script, stock] + [named.get(key, "<token>") for key in told]) + " "


def of_queue(sent, reply):
    """An entry is told without its keys, and with no number that differs from run to run."""
    sent, reply = (RANDOM.sub(lambda found: f"<{found.lastgroup}>", text) for text in (sent, reply))
    script, _, stock = sent.split()[:3]
    if script == "queue_accept.lua" and " sell " in sent:  # they have the same beginning
        script = "queue_sell.lua"
    stock = re.sub(r":(?:queue|key:<id>)$", "", stock)
    return f"{script} {stock}" + (" <entry>" if script != "queue_accept.lua" else ""), reply.replace("(integer) ", "")


def in_short(sent, reply):
    """Without what differs from run to run, and without what fair and read_write send only for their scripts'
    bookkeeping. The reply of a try that found the lock busy says what is left of the holder's time."""
    if sent.startswith("fair.lua"):
        sent, reply = FAIR.sub(of_fair, sent), reply.replace("(integer) ", "")
        return sent, re.sub(r"^\[0, \d+(?=, )", "[0, ms left", reply) if " acquire " in sent else reply
    if OF_QUEUE.match(sent):
        return of_queue(sent, reply)
    if sent.startswith("admit_"):
        return sent, re.sub(r'"refused", \d+', '"refused", us', reply.replace("(integer) ", ""))
    if sent.startswith("read_segments.lua"):
        return OF_SEGMENTS.sub(r"\1 \2", sent), reply
    if sent.startswith("write_segment.lua"):
        return ONE_SEGMENT.sub(r"\1 \2 ", sent), reply
    if sent.startswith("read_write.lua"):
        sent = READ_WRITE.sub(of_read_write, sent)
        return sent, re.sub(r"^-\d+$", "-ms left", reply.replace("(integer) ", ""))
    if reply.startswith("["):
        reply = reply.replace("(integer) ", "")
    if sent.startswith(("reentrant_acquire.lua", "inspect.lua")):
        reply = re.sub(r"(?:\(integer\) )?(?<![-\d])\d+(?=\]?$)", "ms left", reply)
    if sent.startswith("notify_acquire.lua"):
        sent, reply = NOTIFY.sub(r"\1 \2 \3 \4 \5", sent), re.sub(r"^(\[0), \d+", r"\1, ms left", reply)
    sent = FOR_TOKEN.sub(lambda found: f"{found[1]} {found[2] or ''}{found[3]}", sent)
    if RAISED.match(sent):
        sent, reply = RAISED.sub(r"epoch.lua \1 <lock>", sent), re.sub(r'^\["?(E\d+).*', r"\1", reply)
    return FENCED.sub(of_fenced, sent), reply


class Round:
    """One request to all servers of the lock, and what they answered."""

    def __init__(self, who, sent):
        self.who, self.sent, self.events, self.servers = who, sent, [], set()

    def add(self, event):
        self.events.append(event)
        self.servers.add(event["server"])

    def line(self, needed, names):
        """What a majority answered. Who else answered in time is chance."""
        replies = [TOLD_WITH_GRANT.sub(r"[\1, ...]", event["reply"]) for event in self.events]
        reply, count = collections.Counter(replies).most_common(1)[0]
        sent, told = in_short(self.sent, names.plain(reply))
        if count < needed or reply == "(lost)":
            return Line(self.events[0]["sent_ns"], self.who, sent, "no majority", at="lock")
        answered_ns = sorted(event["t_ns"] for event, its in zip(self.events, replies) if its == reply)[needed - 1]
        t_ns = self.events[0]["sent_ns"] if LETTING_GO.search(self.sent) else answered_ns
        return Line(t_ns, self.who, sent, f"{told} from most", at="lock")


def rounds(stage, names):
    """The requests to a lock on several servers: acquires, and the first release of each who leaves its section. Not
    told is what follows from the chance of who answers in time: renewals, what a refused attempt takes back, and a
    release that is sent again. An answer that comes after a sale was refused counts for nothing."""
    for instance in stage.instances.values():
        entered, left, refused, found = {}, {}, {}, []
        events = [event for event in instance.events() if event["t_ns"] <= stage.ended_ns]
        for event in events:
            if event["event"] in ("granted", "exit"):
                (entered if event["event"] == "granted" else left).setdefault(event["request"], event["t_ns"])
            elif event["event"] in UNSOLD:
                refused[event["request"]] = event["t_ns"]
        asked = [event for event in events if event["event"] == "command" and stage.place_of(event) == "lock"
                 and not is_no_rungs(event["sent"]) and not event["reply"].startswith("(error) NOSCRIPT")]
        for event in sorted(asked, key=lambda event: event["sent_ns"]):
            hold, sent = ID.search(event["sent"]), names.plain(event["sent"])
            who = event.get("request") or hold and names.holds.get(hold[0]) or sender(instance, event, sent)
            releases = LETTING_GO.search(sent)
            if "redlock_renew.lua" in sent or releases and event["sent_ns"] < left.get(who, float("inf")) \
                    or not releases and event["sent_ns"] > entered.get(who, float("inf")):
                continue
            same = next((one for one in reversed(found) if (one.who, one.sent) == (who, sent)), None)
            if same is not None and event["server"] in same.servers and releases:
                continue
            if same is None or event["server"] in same.servers:
                same = Round(who, sent)
                found.append(same)
            late = not releases and event["t_ns"] > refused.get(who, float("inf"))
            same.add({**event, "reply": "(lost)"} if late else event)
        for one in found:
            yield one.line(stage.needed, names)


def commands(stage, names):
    """A command has its place when it was answered, a release when it was sent: so a release comes before
    the grant that it makes possible, even if its own answer comes last."""
    for instance in stage.instances.values():
        left = set()  # requests that have left their section: what they send now is their release
        waiting = set()
        for event in instance.events():
            who = sender(instance, event, names.plain(event.get("sent", "")))
            if event["event"] == "exit":
                left.add(who)
            if event["event"] == "invoke":
                waiting.add(who)
            elif event["event"] in ("granted", *UNSOLD):
                waiting.discard(who)
            if event["event"] != "command" or event["reply"].startswith("(error) NOSCRIPT"):
                continue  # a script that is not known is sent again in full, which is the next line
            if is_listening(event) and not waiting:
                continue  # it was for nobody
            if stage.rung.quorum and stage.place_of(event) == "lock":
                continue  # see rounds()
            if event["t_ns"] > stage.ended_ns or PROBED in event["sent"]:
                continue  # what the end of the stage brought about; what is sent when a server seems to be away
            sent = names.plain(event["sent"], event.get("request"))
            releases = who in left or stage.locks_apart and LETTING_GO.search(sent)
            t_ns = event["sent_ns"] if releases else event["t_ns"]
            if not UNTOLD.match(sent) and not LOOKS_AT_QUEUE.match(sent):
                yield Line(t_ns, who, *in_short(*stage.in_short(sent, names.plain(event["reply"]))), at=stage.place_of(event))


def sent_about(stage, key):
    """(sent_ns, answered_ns, sale) of each command of a sale that names the key, and may have set it."""
    return [(event["sent_ns"], event["t_ns"], event["request"]) for instance in stage.instances.values()
            for event in instance.events()
            if event["event"] == "command" and event.get("request") and key in event["sent"].split()
            and event["reply"] not in ("(integer) 0", "(nil)")]


def in_order(stage, kind):
    """The instances' events of that kind, in their order, until the stage's end."""
    told = (event for instance in stage.instances.values() for event in instance.told(kind))
    return sorted((event for event in told if event["t_ns"] <= stage.ended_ns), key=lambda event: event["t_ns"])


def engine_calls(stage):
    """What was asked of an ensemble, as the instances recorded it: the grants, and the first thing that each who leaves
    its section does. Their requests are not recorded. Tokens are told in their order. Of a hold that is gone, a release
    says so, or that nobody answers yet: which of them is chance."""
    released = {event["hold"]: "OK" if event["status"] == "OK" else "not OK" for event in in_order(stage, "release")}
    for number, event in enumerate(in_order(stage, "granted"), 1):
        yield Line(event["t_ns"], event["request"], f"acquire {event['lock']}", f"granted, T{number}", at="lock")
    for event in in_order(stage, "exit"):
        if event["hold"] in released:
            yield Line(event["t_ns"], event["request"], f"release {event['lock']}", released[event["hold"]], at="lock")


def answers(stage, lines):
    """An answer has its place right behind what the sale did last, its refusal included; where it breaks off,
    behind the death that broke it, which the buyer may notice before the test driver does."""
    for sale in stage.requests:
        did = [line.t_ns for line in lines if line.who == sale.name]
        if not (did and stage.locks_apart):
            did += [event["t_ns"] for event in sale.instance.events()
                    if event.get("request") == sale.name and event["event"] in UNSOLD]
        if sale.status == 202:  # it is processed meanwhile
            did = [event["t_ns"] for event in sale.instance.told("accepted") if event["request"] == sale.name]
        elif sale.accepted:
            did = [line.t_ns for line in lines if line.who.split(" by ")[0] == sale.accepted.name] + [int(sale.began * 10**9)]
        broken = max(sale.answered_ns, sale.instance.dead_ns + 1)
        done = max(did) + 1 if did and sale.status != 0 else broken
        yield Line(done, sale.name, sale.answer)


def alike(some, others):
    """Whether the lines differ in nothing, or in a number that is no result: `(integer) 0` and `1` are two answers."""
    def kinds(lines):
        return [(line.who, line.at, NUMBER.sub("N", line.what), GROWING.sub("N", line.answer)) for line in lines]
    return kinds(some) == kinds(others)


def common(text, other):
    """What both say; N stands for a number in which they differ."""
    return "".join(one if one == two else "N" for one, two in zip(NUMBER.split(text), NUMBER.split(other)))


def merged(lines):
    """What somebody sends again and again and gets the same answers to, one command or a few that belong together,
    is told once, with its count."""
    told, result = collections.defaultdict(list), []
    for line in sorted(lines, key=lambda line: line.t_ns):
        mine = told[line.who]
        mine.append(line)
        result.append(line)
        for steps in range(1, STEPS_MAX + 1 if line.who else 1):
            if len(mine) < 2 * steps or not alike(mine[-steps:], mine[-2 * steps:-steps]):
                continue
            repeats = mine[-steps:]
            del mine[-steps:]
            for first, repeat in zip(mine[-steps:], repeats):
                result.remove(repeat)
                first.what, first.answer = common(first.what, repeat.what), common(first.answer, repeat.answer)
                first.count += 1
            break
    return result


def gathered(lines, crowd):
    """What the crowd does is told once, whichever of it did it, and with how many units."""
    told = {}
    for line in sorted(lines, key=lambda line: line.t_ns):
        if line.who not in crowd:
            yield line
            continue
        who = f"{line.who.rstrip('0123456789')}'s crowd"
        what, answer = (ANY_NUMBER.sub("N", text) for text in (line.what, line.answer))
        first = told.setdefault((who, what, answer), dataclasses.replace(line, who=who, what=what, answer=answer, count=0))
        first.count += 1
        if first.count == 1:
            yield first


def message_first(lines):
    """Who stood still finds its message there and its time to look over, at once, and takes them in either order: the
    message is told first."""
    lines = sorted(lines, key=lambda line: line.t_ns)
    for look, message in zip(lines, lines[1:]):
        subscriber = f"{look.who.rstrip('0123456789')}'s subscriber"
        if (message.who == subscriber and message.what.startswith("BLPOP")
                and look.what.startswith("fair.lua acquire")):
            message.t_ns = look.t_ns - 1
    return lines


def lines_of(stage):
    names = Names(stage)
    lines = message_first(commands(stage, names))
    if stage.rung.quorum:
        lines += rounds(stage, names)
    if stage.ensemble:
        lines += engine_calls(stage)
    lines += stage.told_lines()
    lines += [Line(t_ns, "", text) for t_ns, text in stage.notes]
    lines += list(answers(stage, lines))
    return merged(gathered(lines, stage.crowd))


def text_of(stage):
    """The transcript, ready to print."""
    lines = lines_of(stage)
    begin = lines[0].t_ns if lines else 0
    server = 8 + max([len(line.who) for line in lines] + [3]) + 2  # the column of where it is sent
    widest = max((len(line.at) for line in lines), default=0)
    first = server + (widest + 2 if widest else 0)  # and of what is sent
    fits = [line for line in lines if line.answer and first + len(line.what) + 2 + len(line.told) <= COLUMNS_MAX]
    second = first + max([len(line.what) for line in fits] + [20]) + 2  # and of what is answered
    rows = [((f"{'ms':>6}  who".ljust(server) + ("at" if widest else "")).ljust(first) + stage.asks).ljust(second) + "its answer"]
    for line in lines:
        ms = f"{(line.t_ns - begin) // 1000000:>6}  "
        if line.who == "":
            rows.append(f"{ms}-- {line.what}")
            continue
        row = ((ms + line.who).ljust(server) + line.at).ljust(first) + line.what
        if line.answer and line not in fits:  # too long for one row: the answer has the next one
            rows.append(row)
            row = " " * first
        column = min(second, COLUMNS_MAX - len(line.told))  # a long answer begins further left
        rows.append(f"{row:<{max(column, 2) - 2}}  {line.told}".rstrip())
    return "\n".join(rows)


def interleaving_of(text):
    """The transcript without what differs from run to run: times and counts."""
    return re.sub(r" +\(\d+ times\)", "", re.sub(r"^ *\d+  ", "", text, flags=re.MULTILINE))


# ---- The second witness ----------------------------------------------------------------------------


def as_recorded(command):
    """A command as MONITOR prints it, every argument in quotes, the way the library records it."""
    arguments = []
    for quoted in re.findall(r'"((?:[^"\\]|\\.)*)"', command):
        plain = quoted.replace('\\"', '"').replace("\\\\", "\\")
        arguments.append(plain if re.fullmatch(r"[!#-\[\]-~]+", quoted) and len(quoted) <= ARGUMENT_MAX
                         else f'"{quoted[:20]}')
    return " ".join(arguments)


def begun(text):
    """A record, each of its long or quoted arguments cut to its beginning, for comparing."""
    return re.sub(r'"((?:[^"\\]|\\.)*)"', lambda found: f'"{found[1][:20]}', text)


def is_no_rungs(command):
    """A shop sends it to see whether a server is there, or a new connection, for itself."""
    return PROBED in command or command.startswith(LOGIN)


def disagreement(stage):
    """What Redis says that it was sent and nobody recorded, or the other way round; "" when they agree. What a
    process was killed over, or whose reply was lost, may be missing on one side."""
    recorded, dropped, lossy = collections.Counter(), collections.Counter(), False
    for instance in stage.instances.values():
        lossy |= instance.dead_ns > 0
        for event in instance.events():
            if event["event"] == "command" and event["reply"] != "(lost)" and not is_no_rungs(event["sent"]):
                recorded[begun(event["sent"])] += 1
                dropped[begun(event["sent"])] += event["reply"] == "QUEUED"
            lossy |= event["event"] == "command" and event["reply"] == "(lost)"
    seen = collections.Counter()
    for redis in stage.servers:
        for client, command in redis.witnessed():
            if client != "lua":
                seen[as_recorded(command)] += 1
    if stage.rung.quorum:  # of an answer that no majority needed one side may not know
        recorded, seen = (collections.Counter(set(one)) for one in (recorded, seen))
    unseen = recorded - dropped - seen  # MONITOR tells of a transaction's commands only when EXEC carries them out
    unrecorded = collections.Counter() if lossy else seen - recorded
    told = (*LISTENING, *(OF_GROUP if stage.group or stage.rung.quorum else ()))
    for command in [one for one in unrecorded if one.startswith(told) or is_no_rungs(one)]:
        del unrecorded[command]  # nobody answered before the end, or before the connection was cut; or it is no command of a rung
    if unseen:
        return f"recorded, but not seen by Redis: {next(iter(unseen))}"
    if unrecorded:
        return f"seen by Redis, but recorded by nobody: {next(iter(unrecorded))}"
    return ""
