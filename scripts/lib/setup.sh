# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034  # settings of those who source it
#
# What the project needs from Debian, in one place, and how to tell what is missing. Needs
# common.sh. scripts/lib/install-packages does the installing.

# Debian keeps some programs where only root looks.
PATH=$PATH:/usr/sbin:/sbin

SETUP_PURPOSES='rung run test bench zookeeper etcd'

# setup_list rung|run|test|bench|zookeeper|etcd: a line each: Debian's package, and what shows that it is there: a
# program on PATH, a /file, lib:NAME for pkg-config, or `window`, a Java that can open one.
setup_list() {
    case $1 in
    rung)
        cat <<'LIST'
gcc                     cc
libc6-dev               /usr/include/stdio.h
make                    make
cmake                   cmake
pkgconf                 pkg-config
libhiredis-dev          lib:hiredis
libmicrohttpd-dev       lib:libmicrohttpd
libcjson-dev            lib:libcjson
libcmocka-dev           lib:cmocka
libsqlite3-dev          lib:sqlite3
redis-server            redis-server
redis-tools             redis-cli
python3                 python3
LIST
        ;;
    run)
        setup_list rung
        cat <<'LIST'
nginx                   nginx
default-jre-headless    java
curl                    curl
jq                      jq
iproute2                ss
procps                  ps
LIST
        ;;
    bench)
        setup_list run
        cat <<'LIST'
wrk                     wrk
gnuplot-nox             gnuplot
default-jdk-headless    javac
maven                   mvn
LIST
        setup_list zookeeper
        setup_list etcd
        ;;
    test)
        setup_list bench
        cat <<'LIST'
g++                     c++
ccache                  ccache
python3-pytest          /usr/lib/python3/dist-packages/pytest/__init__.py
shellcheck              shellcheck
clang-format            clang-format
clang-tidy              clang-tidy
pyflakes3               pyflakes3
spin                    spin
prometheus              promtool
chromium                chromium
default-jre             window
fonts-dejavu-core       /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf
xvfb                    Xvfb
xdotool                 xdotool
imagemagick             import
LIST
        ;;
    zookeeper)
        cat <<'LIST'
zookeeper               /usr/share/java/zookeeper.jar
libzookeeper-mt-dev     /usr/include/zookeeper/zookeeper.h
LIST
        ;;
    etcd)
        cat <<'LIST'
etcd-server             etcd
libcurl4-openssl-dev    lib:libcurl
LIST
        ;;
    esac
}

# is_there SIGN: what the second column of setup_list says.
is_there() {
    case $1 in
    /*) [[ -e $1 ]] ;;
    lib:*) pkg-config --exists "${1#lib:}" 2>/dev/null ;;
    window) java_has_windows ;;
    *) command -v "$1" >/dev/null ;;
    esac
}

java_has_windows() {
    local java
    java=$(command -v java) && [[ -e $(dirname "$(readlink -f "$java")")/../lib/libawt_xawt.so ]]
}

# need_packages PURPOSE[,PURPOSE]: prints the packages that are missing, each once.
need_packages() {
    local package sign purpose
    while read -r package sign; do
        is_there "$sign" || printf '%s\n' "$package"
    done < <(for purpose in ${1//,/ }; do setup_list "$purpose"; done | awk '!seen[$1]++')
}

# system_name: what /etc/os-release calls this machine.
system_name() {
    (
        # shellcheck disable=SC1091
        source /etc/os-release 2>/dev/null || true
        printf '%s' "${PRETTY_NAME:-an unknown system}"
    )
}

system_is_debian() {
    grep --quiet --extended-regexp '^ID(_LIKE)?=.*debian' /etc/os-release 2>/dev/null &&
        command -v apt-get >/dev/null
}

# install_packages PACKAGE...: as root, by sudo if need be.
install_packages() {
    local command=("$LADDER_ROOT/scripts/lib/install-packages" "$@")
    local by_hand="apt-get install --no-install-recommends $*"
    system_is_debian ||
        fail "missing: $*. These are names of Debian's packages, and this is $(system_name):" \
            "scripts/setup installs on Debian 12 and 13 only. Install them by hand, then come back"
    if ((EUID == 0)); then
        "${command[@]}"
        return
    fi
    command -v sudo >/dev/null ||
        fail "missing: $*. Installing takes root, and there is no sudo. As root: $by_hand"
    say "installing takes root: asking sudo"
    if [[ -t 0 ]]; then
        sudo -- "${command[@]}"
    else
        sudo --non-interactive true 2>/dev/null ||
            fail "missing: $*. sudo wants a password, and there is no terminal to ask on. Run" \
                "scripts/setup in a terminal first"
        sudo --non-interactive -- "${command[@]}"
    fi
}
