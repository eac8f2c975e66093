# SPDX-License-Identifier: Apache-2.0
"""What a shop may do so that it needs a lock less, or waits less for it, side by side."""
import statistics
import time

from world import World, machine, nginx_version, redis_version, wrk

# By the flag's name: the flags of both instances.
POLICIES = {
    "fair": ["--lock", "fair", "--write", "decr"],
    "atomic": ["--lock", "none", "--write", "atomic"],
    "cas": ["--lock", "none", "--write", "cas"],
    "watchdog": ["--lock", "watchdog", "--write", "decr"],
    "local-first": ["--lock", "watchdog", "--write", "decr", "--local-first"],
    "fail": ["--lock", "fair", "--write", "decr", "--on-conflict", "fail"],
    "admit": ["--lock", "fair", "--write", "decr", "--admit", "2000,2000"],
}
HEAD = f"{'policy':12} {'sales/s':>9} {'p50 ms':>9} {'p99 ms':>9} {'refused/s':>10} {'commands/sale':>14}"


def measured(policy, arguments):
    """One round, in a shop of its own."""
    with World([*POLICIES[policy], "--work-ms", str(arguments.work_ms)]) as world:
        wrk(world.port, "/inventory/phone/sale", arguments.connections, 1, True)
        time.sleep(0.2)
        before = world.redis_commands()
        seen = wrk(world.port, "/inventory/phone/sale", arguments.connections, arguments.seconds, True)
        commands = (world.redis_commands() - before) / max(1, seen["good"])
    return {"policy": policy, "connections": arguments.connections, "work_ms": arguments.work_ms,
            "sales_per_s": round(seen["rate"]), "p50_ms": seen["p50_ms"], "p99_ms": seen["p99_ms"],
            "refused_per_s": round(seen["bad"] / arguments.seconds), "commands_per_sale": round(commands, 1)}


def policies(arguments, keep):
    """Compares policies of the shop in alternating rounds of a closed loop through nginx. Who is refused asks again at
    once; p50 and p99 count refusals, too."""
    names, rows = arguments.policy or list(POLICIES), []
    for number in range(arguments.rounds):
        for name in names:
            rows.append({"round": number, **measured(name, arguments)})
    print(HEAD)
    for name in names:
        mine = [row for row in rows if row["policy"] == name]
        rate, p50, p99, refused, commands = (
            statistics.median(row[field] for row in mine)
            for field in ("sales_per_s", "p50_ms", "p99_ms", "refused_per_s", "commands_per_sale"))
        print(f"{name:12} {rate:9.0f} {p50:9.1f} {p99:9.1f} {refused:10.0f} {commands:14.1f}")
    print(f"medians of {arguments.rounds} rounds of {arguments.seconds} s, {arguments.connections} connections, "
          f"{arguments.work_ms} ms of business; {machine(redis_version(), nginx_version())}")
    keep("policies", rows, arguments.results)
    return 0
