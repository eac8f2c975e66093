# SPDX-License-Identifier: Apache-2.0
"""What happened on a stage, a line a step: who sent what to Redis, what it answered, at what time. Taken from
the instances' own records; MONITOR, the server's side, must agree. Repeated tries are one line, every identity
is written as the name of the buyer or instance that has it, and a channel as what it is."""
import collections
import dataclasses
import hashlib
import re

import ladder

# A client; behind it the number of an acquisition or of an owner, and of a hold. See lock/owner.h.
ID = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?::([xt]?)(\d+)(\.\d+)?(#\d+)?)?")
OBJECTS = 1000000  # an instance's numbers above it are of --owner object: a new one for every acquire
ARGUMENT_MAX = 80  # the library cuts longer arguments in its records
STEPS_MAX = 4  # commands of one try
# What a new connection asks of itself, and ends the one before it by. The library records no login.
LOGIN = ("CLIENT ID", "INFO server", "CLIENT KILL ID ")
LISTENING = ("SUBSCRIBE", "UNSUBSCRIBE", "BLPOP")
LETTING_GO = re.compile(r"_release\.lua|delete_if_owner\.lua| (release|leave|give_up)\b")  # by itself, later
UNSOLD = ("refused", "fail", "unknown")  # how a request may end
CHANNEL = re.compile(r"redisson_lock__channel:lock:\{\w+\}")
TOKEN = re.compile(r"\b\d{16}\b")  # microseconds since 1970
# Of buyers, tokens and units.
ANY_NUMBER = re.compile(r"(?<=<[a-z])\d+|(?<=\bT)\d+(?:\+\d+)?|(?<=inventory:\{phone\} )\d+|(?<=unit )\d+|\d+(?= left)|(?<=^\")\d+(?=\"$)")
GRANT_TOKENS = 1000  # a client that passes the lock on counts up to so many tokens by itself
# What fair.lua is sent: the keys beside the lock, and what a step does not look at, are left out.
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


def scripts():
    """Lua's scripts by the SHA1 that Redis knows them by: the lock's, and the stock's."""
    folders = (ladder.ROOT / "lock" / "lua", ladder.ROOT / "service" / "lua")
    files = [file for folder in folders for file in sorted(folder.glob("*.lua"))]
    return {hashlib.sha1(file.read_bytes()).hexdigest(): file for file in files}


class Names:
    """Who is who: acquisitions by their sale, clients by their instance."""

    def __init__(self, stage):
        self.clients, self.holds, self.scripts, owners, tokens = {}, {}, scripts(), {}, set()
        for instance in stage.instances.values():
            for event in instance.events():
                for text in (event.get("hold", ""), event.get("sent", "")):
                    found = ID.search(text)
                    if found and event.get("request"):
                        self.clients.setdefault(found[1], instance.name)
                        if found[4] or found[5]:  # a name that is used once
                            is_first = owners.setdefault(event["request"], found[3]) == found[3]
                            self.holds.setdefault(found[0], event["request"] + ("" if is_first else "'s other"))
                tokens.update(int(found[0]) for found in TOKEN.finditer(f"{event.get('sent', '')} {event.get('reply', '')}"))
        self.tokens = []  # the first one of each tenure
        for token in sorted(tokens):
            if not self.tokens or token - self.tokens[-1] >= (GRANT_TOKENS if stage.rung.handoff else 1):
                self.tokens.append(token)

    def name(self, found):
        if found[0] in self.holds:
            return f"<{self.holds[found[0]]}>"
        other = "'s other" if found[2] and int(found[3]) > OBJECTS else ""
        return f"<{self.clients.get(found[1], '?')}{other}>"

    def token(self, found):
        """T1, T2 in the order of growing; T1+1 is what its client made of T1."""
        number = sum(first <= int(found[0]) for first in self.tokens)
        more = int(found[0]) - self.tokens[number - 1]
        return f"T{number}" + (f"+{more}" if more else "")

    def plain(self, text):
        """The text with identities, tokens and scripts by name."""
        text = TOKEN.sub(self.token, ID.sub(self.name, text))
        for sha, file in self.scripts.items():
            text = text.replace(f"EVALSHA {sha}", file.name)
            head = file.read_text(encoding="utf-8").splitlines()[0][:70]
            text = re.sub(r'^EVAL "' + re.escape(head) + r'[^"]*"', file.name, text)
        return CHANNEL.sub("<channel>", text)


def is_heard(event):
    """Whether the process sent it for all who wait in it."""
    return event.get("sent", "").startswith(LISTENING)


def sender(instance, event, sent):
    """For whom a command was sent."""
    part = "ear" if is_heard(event) else "library" if LETTING_GO.search(sent) else "timer"
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


def in_short(sent, reply):
    """Without what differs from run to run, and without what fair and read_write send only for their scripts'
    bookkeeping. The reply of a try that found the lock busy says what is left of the holder's time."""
    if sent.startswith("fair.lua"):
        sent, reply = FAIR.sub(of_fair, sent), reply.replace("(integer) ", "")
        return sent, re.sub(r"^\[0, \d+(?=, )", "[0, ms left", reply) if " acquire " in sent else reply
    if sent.startswith("read_write.lua"):
        sent = READ_WRITE.sub(of_read_write, sent)
        return sent, re.sub(r"^-\d+$", "-ms left", reply.replace("(integer) ", ""))
    if sent.startswith(("reentrant_acquire.lua", "inspect.lua")):
        reply = re.sub(r"(?<![-\d])\d+(?=\]?$)", "ms left", reply)
    if sent.startswith("notify_acquire.lua"):
        reply = re.sub(r"^(\[\(integer\) 0, \(integer\)) \d+", r"\1 ms left", reply)
    return sent, reply


def commands(stage, names):
    """A command has its place when it was answered, a release when it was sent: so a release comes ahead of
    the grant that it makes possible, even where the releaser hears of it last."""
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
            if is_heard(event) and not waiting:
                continue  # it was for nobody
            if event["t_ns"] > stage.ended_ns:
                continue  # what the end of the stage brought about
            t_ns = event["sent_ns"] if who in left else event["t_ns"]
            yield Line(t_ns, who, *in_short(names.plain(event["sent"]), names.plain(event["reply"])))


def answers(stage, lines):
    """An answer has its place right behind what the sale did last, its refusal included; where it breaks off,
    behind the death that broke it, which the buyer may notice before the test driver does."""
    for sale in stage.sales:
        did = [line.t_ns for line in lines if line.who == sale.name]
        did += [event["t_ns"] for event in sale.instance.events()
                if event.get("request") == sale.name and event["event"] in UNSOLD]
        broken = max(sale.answered_ns, sale.instance.dead_ns + 1)
        done = max(did) + 1 if did and sale.status != 0 else broken
        yield Line(done, sale.name, sale.answer)


def alike(some, others):
    return [(line.who, line.what, line.answer) for line in some] == [(line.who, line.what, line.answer) for line in others]


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
            for repeat in mine[-steps:]:
                result.remove(repeat)
            del mine[-steps:]
            for first in mine[-steps:]:
                first.count += 1
            break
    return result


def gathered(lines, crowd):
    """What the crowd does is told once, whoever of it did it, and with how many units."""
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
    for look, heard in zip(lines, lines[1:]):
        ear = f"{look.who.rstrip('0123456789')}'s ear"
        if heard.who == ear and heard.what.startswith("BLPOP") and look.what.startswith("fair.lua acquire"):
            heard.t_ns = look.t_ns - 1
    return lines


def lines_of(stage):
    names = Names(stage)
    lines = message_first(commands(stage, names))
    lines += [Line(t_ns, "", text) for t_ns, text in stage.notes]
    lines += list(answers(stage, lines))
    return merged(gathered(lines, stage.crowd))


def text_of(stage):
    """The transcript, ready to print."""
    lines = lines_of(stage)
    begin = lines[0].t_ns if lines else 0
    wide = max([len(line.what) for line in lines if line.answer] + [20])
    rows = [f"{'ms':>6}  {'who':<16}  {'to Redis':<{wide}}  its answer"]
    for line in lines:
        ms = (line.t_ns - begin) // 1000000
        times = f"   ({line.count} times)" if line.count > 1 else ""
        if line.who == "":
            rows.append(f"{ms:>6}  -- {line.what}")
        else:
            rows.append(f"{ms:>6}  {line.who:<16}  {line.what:<{wide}}  {line.answer}{times}".rstrip())
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


def disagreement(stage):
    """What Redis says that it was sent and nobody recorded, or the other way round; "" when they agree. What a
    process was killed over, or whose reply was lost, may be missing on one side."""
    recorded, dropped, lossy = collections.Counter(), collections.Counter(), False
    for instance in stage.instances.values():
        lossy |= instance.dead_ns > 0
        for event in instance.events():
            if event["event"] == "command" and event["reply"] != "(lost)":
                recorded[begun(event["sent"])] += 1
                dropped[begun(event["sent"])] += event["reply"] == "QUEUED"
            lossy |= event["event"] == "command" and event["reply"] == "(lost)"
    seen = collections.Counter()
    for redis in {stage.redis, stage.lock_redis}:
        for client, command in redis.witnessed():
            if client != "lua":
                seen[as_recorded(command)] += 1
    unseen = recorded - dropped - seen  # MONITOR tells of a transaction's commands only when EXEC carries them out
    unrecorded = collections.Counter() if lossy else seen - recorded
    for command in [command for command in unrecorded if command.startswith((*LISTENING, *LOGIN))]:
        del unrecorded[command]  # nobody answered before the end, or before the connection was cut; or it is no command of a rung
    if unseen:
        return f"recorded, but not seen by Redis: {next(iter(unseen))}"
    if unrecorded:
        return f"seen by Redis, but recorded by nobody: {next(iter(unrecorded))}"
    return ""
