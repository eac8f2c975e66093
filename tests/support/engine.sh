# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# A container engine for a test, on a machine that has neither an engine nor a registry. It runs in a machine
# of tests/support/machine.sh, so its bridges and firewall rules are separate from the host's. It ends with all
# its containers. Source common.sh, setup.sh and machine.sh first; WORK is a folder.

ENGINE_SOCKET=$WORK/engine.sock
ENGINE_FILES=20000 # descriptors that it may open; some machines allow no more
export DOCKER_HOST=unix://$ENGINE_SOCKET DOCKER_CONFIG=$WORK/docker-config

engine_install() {
    local missing=()
    command -v dockerd >/dev/null || missing+=(docker.io)
    command -v debootstrap >/dev/null || missing+=(debootstrap)
    command -v slirp4netns >/dev/null || missing+=(slirp4netns)
    ((${#missing[@]} == 0)) || install_packages "${missing[@]}"
}

# engine_start OWNER: OWNER may use it, besides root
engine_start() {
    # All options are given here, so that no configuration of the machine changes them.
    printf '{}\n' >"$WORK/daemon.json"
    # Without that capability its runtime cannot raise a container's descriptor limit above its own.
    machine_start "$WORK/engine.log" docker-init -- prlimit --nofile="$ENGINE_FILES:$ENGINE_FILES" \
        setpriv --bounding-set=-sys_resource -- dockerd --config-file "$WORK/daemon.json" \
        --data-root "$WORK/engine" --exec-root "$WORK/exec" --pidfile "$WORK/engine.pid" \
        --dns "$MACHINE_DNS" --host "$DOCKER_HOST"
    wait_until 60 docker version >/dev/null 2>&1 ||
        fail "the engine did not start: $(tail -n 1 "$WORK/engine.log")"
    chown "$1" "$ENGINE_SOCKET"
}

# engine_import_debian SUITE NUMBER: makes debian:NUMBER-slim as the registry's image is made: without manuals,
# and its packages install none.
engine_import_debian() {
    local root=$WORK/$1
    machine_debian "$1" "$root"
    printf 'path-exclude /usr/share/%s/*\n' doc info locale man >"$root/etc/dpkg/dpkg.cfg.d/docker"
    rm -rf "$root"/usr/share/{doc,info,locale,man}/*
    printf 'Acquire::Languages "none";\n' >"$root/etc/apt/apt.conf.d/docker-no-languages"
    tar --directory "$root" --create . | docker import - "debian:$2-slim" >/dev/null
    rm -rf "$root"
}
