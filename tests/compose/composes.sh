# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Both Composes: docker-compose 1.29, which is Debian 12's, and Compose v2. Needs common.sh, setup.sh and
# engine.sh.

# Debian 12's own package; docker-compose there is 1.29.2.
compose_install() {
    command -v docker-compose >/dev/null || install_packages docker-compose
    [[ $(docker-compose version --short) == 1.29.* ]] ||
        fail "docker-compose is $(docker-compose version --short), not 1.29 as Debian 12 has it:" \
            "this test runs on Debian 12"
}

# Compose v2 is in Debian 13, and its program runs on Debian 12. It is not installed.
compose_fetch() {
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
