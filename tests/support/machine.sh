# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Machines of the tests' own, on this one: a bare Debian in a folder, and a place for processes with
# a network, mounts and process ids of their own. When its first process ends the kernel ends and
# unmounts all the rest, so a test that fails half-way leaves nothing behind; its ports, bridges and
# firewall rules never meet the host's. The way out is slirp4netns: no rule on the host is needed.
# Source scripts/lib/common.sh and scripts/lib/setup.sh first.

# slirp4netns answers there, by the host's own resolver.
export MACHINE_DNS=10.0.2.3

# machine_debian SUITE DIR: the least Debian there is, with the site's CA certificates, if any: where
# TLS goes through a proxy of the site, Maven needs them.
machine_debian() {
    local ca=/usr/local/share/ca-certificates
    debootstrap --variant=minbase "$1" "$2" >"$2.log" 2>&1 ||
        fail "debootstrap of $1 failed: $(tail -n 1 "$2.log"); the whole log is $2.log"
    rm -f "$2"/var/cache/apt/archives/*.deb
    if [[ -d $ca ]]; then
        mkdir -p "$2$ca"
        cp -r "$ca/." "$2$ca/"
    fi
}

# machine_start LOG COMMAND...: runs COMMAND in namespaces of its own, once their network is up.
# MACHINE_PID is its first process, as the host sees it.
machine_start() {
    local log=$1 outer
    shift
    setsid unshare --net --mount --pid --fork --kill-child --mount-proc \
        bash -c 'until grep -q "^tap0.00000000" /proc/net/route; do sleep 0.05; done; exec "$@"' \
        machine "$@" \
        </dev/null >>"$log" 2>&1 &
    outer=$!
    at_exit end_process "$outer" "$(process_start "$outer")" KILL
    wait_until 10 machine_find "$outer" || fail "no machine: see $log"
    at_exit machine_end "$MACHINE_PID" "$(process_start "$MACHINE_PID")" \
        "$outer" "$(process_start "$outer")"
    slirp4netns --configure --mtu=65520 "$MACHINE_PID" tap0 </dev/null >>"$log.net" 2>&1 &
    at_exit end_process $! "$(process_start $!)"
    wait_until 10 machine_is_online || fail "the machine has no network: see $log.net"
}

# The child of unshare, once it is there: until then unshare has none.
machine_find() {
    MACHINE_PID=$(tr -d ' ' <"/proc/$1/task/$1/children" 2>/dev/null) && [[ -n $MACHINE_PID ]]
}

machine_is_online() {
    grep -q '^tap0.00000000' "/proc/$MACHINE_PID/net/route" # the way out
}

# machine_end PID START OUTER START: all in it, and waits for the last of them.
machine_end() {
    end_process "$1" "$2" KILL
    wait_until 30 process_is_gone "$3" "$4"
}

# machine_do COMMAND...: in the machine's network, with the host's files.
machine_do() {
    nsenter --net="/proc/$MACHINE_PID/ns/net" "$@"
}
