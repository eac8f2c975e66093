# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034  # settings of those who source it
#
# A shop's servers for locks that are not on its own Redis. They begin at SHOP_LOCK_PORT: the redis-servers of a
# majority, lock1 and on, from there on; an ensemble of three ZooKeepers, zk1 to zk3, ten ports behind; one of three
# etcds, etcd1 to etcd3, twenty behind. SHOP_LOCK_ON says which there are: redis, zookeeper, etcd.
# Needs common.sh and shop.sh. To add a kind: a word in ENSEMBLES, and the functions <kind>_parts, _url, _start,
# _answers and _need.

ENSEMBLES='zookeeper etcd'
ENSEMBLE_SERVERS=3
ENSEMBLE_SPAN=29 # ports from SHOP_LOCK_PORT on
# A sale waits for an ensemble's lock for as long as a crowd of 1500 takes, and until another leader is elected.
ENSEMBLE_WAIT_MS=120000
ENSEMBLE_FAIL_FAST_MS=15000
ENSEMBLE_TTL_MS=20000 # 20 ticks or fewer are granted by default; a tick is 500 ms here

ZOOKEEPER_JARS=/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar
ZOOKEEPER_TICK_MS=500

# ensembles: the kinds of SHOP_LOCK_ON that are ensembles, a line each.
ensembles() {
    local kind
    [[ -z $SHOP_LOCK_PORT ]] || for kind in ${SHOP_LOCK_ON//,/ }; do
        [[ " $ENSEMBLES " != *" $kind "* ]] || printf '%s\n' "$kind"
    done
}

# ensemble_parts: NAME PORT, where buyers' instances reach it, a line each.
ensemble_parts() {
    local kind
    for kind in $(ensembles); do
        "${kind}_parts"
    done
}

# ensemble_ports: PORT KIND of all ports.
ensemble_ports() {
    local kind port
    for kind in $(ensembles); do
        for port in $("${kind}_ports"); do
            printf '%s %s\n' "$port" "$kind"
        done
    done
}

# ensemble_urls: for --lock-servers, a line each.
ensemble_urls() {
    local kind
    for kind in $(ensembles); do
        "${kind}_url"
        echo
    done
}

# hosts_of_parts: of the lines NAME PORT that it reads 127.0.0.1:PORT, by comma.
hosts_of_parts() {
    sed 's/.* /127.0.0.1:/' | paste --serial --delimiters ,
}

need_ensembles() {
    local kind
    for kind in $(ensembles); do
        "${kind}_need"
    done
}

start_ensembles() {
    local kind
    for kind in $(ensembles); do
        "${kind}_start"
    done
}

# Options of instances that an ensemble needs. The user's count: those of the environment, and options, which come
# later.
ensemble_options() {
    [[ -z $(ensembles) ]] ||
        printf '%s\n' --wait-ms "${INVENTORYD_WAIT_MS:-$ENSEMBLE_WAIT_MS}" \
            --fail-fast-ms "${INVENTORYD_FAIL_FAST_MS:-$ENSEMBLE_FAIL_FAST_MS}" \
            --ttl-ms "${INVENTORYD_TTL_MS:-$ENSEMBLE_TTL_MS}"
}

say_raised_limits() {
    [[ -z $(ensembles) ]] ||
        say "an ensemble's locks are slower than Redis', so limits are raised, unless you give them:" \
            "$(ensemble_options | paste -sd ' '); they make nginx's proxy_read_timeout $(shop_read_s)s," \
            "JMeter's response_ms $(shop_response_ms)"
}

# ---- ZooKeeper -----------------------------------------------------------------------------------

zookeeper_parts() {
    local i
    for ((i = 1; i <= ENSEMBLE_SERVERS; i++)); do
        printf 'zk%s %s\n' "$i" $((SHOP_LOCK_PORT + 9 + i))
    done
}

# Clients', quorum's and election's.
zookeeper_ports() {
    seq $((SHOP_LOCK_PORT + 10)) $((SHOP_LOCK_PORT + 9 + 3 * ENSEMBLE_SERVERS))
}

zookeeper_url() {
    printf 'zk://%s/shop?tick_ms=%s' "$(zookeeper_parts | hosts_of_parts)" "$ZOOKEEPER_TICK_MS"
}

zookeeper_need() {
    need java
    [[ -e ${ZOOKEEPER_JARS%%:*} && -e ${ZOOKEEPER_JARS##*:} ]] ||
        fail "there is no ZooKeeper: scripts/setup --for zookeeper installs Debian's package zookeeper"
}

# zookeeper_configure I: prints the file of server I. Nothing is forced to the disk: it is ended with the shop.
zookeeper_configure() {
    local i port=$((SHOP_LOCK_PORT + 9))
    printf '%s\n' tickTime=$ZOOKEEPER_TICK_MS initLimit=40 syncLimit=10 maxSessionTimeout=40000 maxClientCnxns=0 \
        forceSync=no admin.enableServer=false 4lw.commands.whitelist=srvr "dataDir=$(shop_folder)/zk$1" \
        "clientPort=$((port + $1))" clientPortAddress=127.0.0.1
    for ((i = 1; i <= ENSEMBLE_SERVERS; i++)); do
        printf 'server.%s=127.0.0.1:%s:%s\n' "$i" $((port + ENSEMBLE_SERVERS + i)) $((port + 2 * ENSEMBLE_SERVERS + i))
    done
}

zookeeper_start() {
    local name port folder
    folder=$(shop_folder)
    while read -r name port <&4; do
        mkdir -p "$folder/$name"
        printf '%s\n' "${name#zk}" >"$folder/$name/myid"
        zookeeper_configure "${name#zk}" >"$folder/$name/zoo.cfg"
        start_part "$name" "$port" "$folder/$name.log" java -Xms16m -Xmx64m -XX:+UseSerialGC \
            -XX:TieredStopAtLevel=1 -XX:-UsePerfData -cp "$ZOOKEEPER_JARS" \
            org.apache.zookeeper.server.quorum.QuorumPeerMain "$folder/$name/zoo.cfg"
    done 4< <(zookeeper_parts)
}

# zookeeper_mode PORT: leader or follower; fails unless it serves.
zookeeper_mode() {
    { exec {asked}<>"/dev/tcp/127.0.0.1/$1"; } 2>/dev/null || return
    printf srvr >&"$asked"
    timeout 5 sed -n 's/^Mode: //p' <&"$asked" | grep .
}

zookeeper_answers() (
    zookeeper_mode "$1" >/dev/null
)

# The ports of as many servers as it can lose, the leader first.
zookeeper_minority() {
    local name port
    while read -r name port; do
        [[ $(zookeeper_mode "$port") != leader ]] || printf '%s\n' "$port"
    done < <(zookeeper_parts)
}

# ---- etcd ----------------------------------------------------------------------------------------

etcd_parts() {
    local i
    for ((i = 1; i <= ENSEMBLE_SERVERS; i++)); do
        printf 'etcd%s %s\n' "$i" $((SHOP_LOCK_PORT + 19 + i))
    done
}

# Clients' and peers'.
etcd_ports() {
    seq $((SHOP_LOCK_PORT + 20)) $((SHOP_LOCK_PORT + 19 + 2 * ENSEMBLE_SERVERS))
}

etcd_url() {
    printf 'etcd://%s' "$(etcd_parts | hosts_of_parts)"
}

etcd_need() {
    command -v etcd >/dev/null ||
        fail "there is no etcd: scripts/setup --for etcd installs Debian's package etcd-server"
}

etcd_start() {
    local name port folder peers=()
    folder=$(shop_folder)
    while read -r name port; do
        peers+=("$name=http://127.0.0.1:$((port + ENSEMBLE_SERVERS))")
    done < <(etcd_parts)
    while read -r name port <&4; do
        start_part "$name" "$port" "$folder/$name.log" etcd --name "$name" --data-dir "$folder/$name" \
            --listen-client-urls "http://127.0.0.1:$port" --advertise-client-urls "http://127.0.0.1:$port" \
            --listen-peer-urls "http://127.0.0.1:$((port + ENSEMBLE_SERVERS))" \
            --initial-advertise-peer-urls "http://127.0.0.1:$((port + ENSEMBLE_SERVERS))" \
            --initial-cluster "$(IFS=, && printf '%s' "${peers[*]}")" --initial-cluster-state new \
            --logger zap --log-level warn --auto-compaction-mode periodic --auto-compaction-retention 5m
    done 4< <(etcd_parts)
}

# etcd_answers PORT
etcd_answers() {
    curl --silent --fail --max-time 2 --output /dev/null "http://127.0.0.1:$1/health"
}

# The ports of as many servers as it can lose, the leader first.
etcd_minority() {
    local name port status
    while read -r name port; do
        status=$(curl --silent --fail --max-time 2 --data '{}' "http://127.0.0.1:$port/v3/maintenance/status") ||
            continue
        ! jq --exit-status '.leader == .header.member_id' <<<"$status" >/dev/null || printf '%s\n' "$port"
    done < <(etcd_parts)
}
