# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# A container engine of the test's own, and what a machine with Docker and a registry has besides:
# debian:12-slim, and both Composes. The engine lives in a machine of tests/support/machine.sh: its
# bridges and firewall rules never meet the host's, and it ends with all its containers.
# Needs common.sh, setup.sh and machine.sh; WORK is a folder.

ENGINE_SOCKET=$WORK/engine.sock
export DOCKER_HOST=unix://$ENGINE_SOCKET DOCKER_CONFIG=$WORK/docker-config

# Debian 12's own packages; docker-compose there is 1.29.2.
engine_install() {
    local missing=()
    command -v dockerd >/dev/null || missing+=(docker.io)
    command -v debootstrap >/dev/null || missing+=(debootstrap)
    command -v slirp4netns >/dev/null || missing+=(slirp4netns)
    command -v docker-compose >/dev/null || missing+=(docker-compose)
    ((${#missing[@]} == 0)) || install_packages "${missing[@]}"
    [[ $(docker-compose version --short) == 1.29.* ]] ||
        fail "docker-compose is $(docker-compose version --short), not 1.29 as Debian 12 has it:" \
            "this test runs on Debian 12"
}

# Compose v2 is in Debian 13, and its program runs on Debian 12. It is not installed.
engine_fetch_compose() {
    local apt=$WORK/apt plugins=$DOCKER_CONFIG/cli-plugins
    mkdir -p "$apt"/{lists/partial,cache/archives/partial,deb} "$plugins"
    printf 'deb [signed-by=%s] http://deb.debian.org/debian trixie main\n' \
        /usr/share/keyrings/debian-archive-keyring.gpg >"$apt/sources.list"
    local options=(-o "Dir::Etc::SourceList=$apt/sources.list" -o Dir::Etc::SourceParts=-
        -o "Dir::State::Lists=$apt/lists" -o "Dir::Cache=$apt/cache" -o Dir::State::Status=/dev/null
        -o APT::Sandbox::User=root -o Acquire::Languages=none -o Acquire::Retries=2)
    {
        apt-get "${options[@]}" update &&
            (cd "$apt/deb" && apt-get "${options[@]}" download docker-compose) &&
            dpkg-deb --extract "$apt"/deb/docker-compose_*.deb "$apt/tree" &&
            cp "$apt/tree/usr/libexec/docker/cli-plugins/docker-compose" "$plugins/"
    } >"$apt/log" 2>&1 || fail "Compose v2 could not be fetched: $(tail -n 1 "$apt/log")"
}

# engine_start OWNER: who may use it beside root
engine_start() {
    # All options stand here: no file of the machine's own has a say.
    printf '{}\n' >"$WORK/daemon.json"
    machine_start "$WORK/engine.log" docker-init -- dockerd --config-file "$WORK/daemon.json" \
        --data-root "$WORK/engine" --exec-root "$WORK/exec" --pidfile "$WORK/engine.pid" \
        --dns "$MACHINE_DNS" --host "$DOCKER_HOST"
    wait_until 60 docker version >/dev/null 2>&1 ||
        fail "the engine did not start: $(tail -n 1 "$WORK/engine.log")"
    chown "$1" "$ENGINE_SOCKET"
}

# Made as the image in the registry is: without manuals, and packages bring none.
engine_import_debian() {
    local root=$WORK/debian
    machine_debian bookworm "$root"
    printf 'path-exclude /usr/share/%s/*\n' doc info locale man >"$root/etc/dpkg/dpkg.cfg.d/docker"
    rm -rf "$root"/usr/share/{doc,info,locale,man}/*
    printf 'Acquire::Languages "none";\n' >"$root/etc/apt/apt.conf.d/docker-no-languages"
    tar --directory "$root" --create . | docker import - debian:12-slim >/dev/null
    rm -rf "$root"
}
