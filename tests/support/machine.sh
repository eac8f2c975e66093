# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Machines for the tests, on this one: a bare Debian in a folder, or namespaces for network, mounts and
# process ids. When the first process of a machine ends, the kernel ends and unmounts everything
# else in it. So a test that fails half-way leaves nothing behind. Its ports, bridges and firewall rules are
# separate from the host's. It reaches the outside through slirp4netns, without a rule on the host.
# Source scripts/lib/common.sh and scripts/lib/setup.sh first.

# slirp4netns answers DNS queries there, with the host's resolver.
export MACHINE_DNS=10.0.2.3

# machine_debian SUITE DIR: makes a minimal Debian, with the site's CA certificates, if there are any. Maven
# needs them if TLS goes through a proxy of the site.
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

# machine_start LOG COMMAND...: runs COMMAND in new namespaces, as soon as their network is up. MACHINE_PID is
# its first process, with the host's process id.
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

# Finds the child of unshare; until it is forked, unshare has none.
machine_find() {
    MACHINE_PID=$(tr -d ' ' <"/proc/$1/task/$1/children" 2>/dev/null) && [[ -n $MACHINE_PID ]]
}

machine_is_online() {
    grep -q '^tap0.00000000' "/proc/$MACHINE_PID/net/route" # the default route
}

# machine_end PID START OUTER START: ends all processes in it, and waits for the last one.
machine_end() {
    end_process "$1" "$2" KILL
    wait_until 30 process_is_gone "$3" "$4"
}

# machine_do COMMAND...: runs COMMAND in the machine's network, with the host's files.
machine_do() {
    nsenter --net="/proc/$MACHINE_PID/ns/net" "$@"
}

# machine_boot DIR LOG: starts a machine with the Debian in DIR. Only a first process runs in it, which reaps
# orphaned processes.
machine_boot() {
    local root=$1
    printf 'nameserver %s\n' "$MACHINE_DNS" >"$root/etc/resolv.conf"
    printf '127.0.0.1 localhost %s\n' "$(uname -n)" >"$root/etc/hosts"
    # shellcheck disable=SC2016
    machine_start "$2" bash -c "$(declare -f machine_mount)"'
        set -e
        machine_mount "$1"
        exec chroot "$1" /bin/bash -c "while :; do sleep 3600 & wait; done"' machine "$root"
    wait_until 10 machine_is_booted "$root" || fail "the machine did not come up: see $2"
}

# Its / must be a mount point, as on any machine: ip netns exec, for example, makes it private.
machine_mount() {
    local node
    mount --bind "$1" "$1"
    mount -t proc proc "$1/proc"
    mount -t sysfs sysfs "$1/sys"
    mount -t tmpfs -o mode=755 tmpfs "$1/run"
    mount -t tmpfs -o mode=755 tmpfs "$1/dev"
    mkdir "$1/dev/pts" "$1/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=666,mode=620 devpts "$1/dev/pts"
    mount -t tmpfs -o mode=1777 tmpfs "$1/dev/shm"
    for node in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0; do
        mknod --mode=666 "$1/dev/${node%%:*}" c "$(cut -d : -f 2 <<<"$node")" "${node##*:}"
    done
    ln -s pts/ptmx "$1/dev/ptmx"
    ln -s /proc/self/fd "$1/dev/fd"
    ln -s fd/0 "$1/dev/stdin"
    ln -s fd/1 "$1/dev/stdout"
    ln -s fd/2 "$1/dev/stderr"
}

machine_is_booted() {
    [[ $(readlink "/proc/$MACHINE_PID/root") == "$1" ]]
}

# machine_run DIR COMMAND...: runs COMMAND in the booted machine, as root after a login, in its folder DIR.
machine_run() {
    local dir=$1
    shift
    nsenter --target "$MACHINE_PID" --mount --pid --net --root --wd="/proc/$MACHINE_PID/root$dir" -- \
        env --ignore-environment HOME=/root LANG=C.UTF-8 TERM="${TERM:-dumb}" \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        bash -c 'ulimit -S -n 1024; exec "$@"' login "$@"
}
