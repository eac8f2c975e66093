# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# A shop's group: three sentinels, a master and two replicas, with the settings of deploy/sentinel. The parts are
# sentinel1 to sentinel3 on SHOP_SENTINEL_PORT and the next two, replica1 and replica2 on the two after them, and
# `redis`, the first master. Needs common.sh and shop.sh.

SHOP_SENTINELS=3
SHOP_REPLICAS=2

# The parts of the group beside the first master, with their ports: NAME PORT, a line each.
shop_group() {
    local i
    [[ -n $SHOP_SENTINEL_PORT ]] || return 0
    for ((i = 0; i < SHOP_SENTINELS; i++)); do
        printf 'sentinel%s %s\n' $((i + 1)) $((SHOP_SENTINEL_PORT + i))
    done
    for ((i = 0; i < SHOP_REPLICAS; i++)); do
        printf 'replica%s %s\n' $((i + 1)) $((SHOP_SENTINEL_PORT + SHOP_SENTINELS + i))
    done
}

# The sentinels' ports, a line each.
shop_sentinel_ports() {
    shop_group | sed -n 's/^sentinel[0-9]* //p'
}

# ask_sentinel PORT WORD...
ask_sentinel() {
    timeout 5 redis-cli -h 127.0.0.1 -p "$1" sentinel "${@:2}" 2>/dev/null
}

# shop_master: HOST:PORT of the server that lock and stock are on now, from the first sentinel that answers.
shop_master() {
    local port master=$SHOP_REDIS_PORT
    for port in $(shop_sentinel_ports); do
        master=$(ask_sentinel "$port" get-master-addr-by-name shop | sed -n 2p)
        [[ ! $master =~ ^[0-9]+$ ]] || break
    done
    [[ -n $master ]] && printf '127.0.0.1:%s' "$master"
}

# start_group_server NAME PORT [MASTER-PORT]: a master, or a replica of that one.
start_group_server() {
    local folder conf
    folder=$(shop_folder)/$1
    conf=$folder/redis.conf
    mkdir -p "$folder"
    cp "$LADDER_ROOT/deploy/sentinel/redis.conf" "$conf" # Sentinel makes the server rewrite it
    start_part "$1" "$2" "$folder.log" redis-server "$conf" --port "$2" --dir "$folder" \
        --daemonize no ${3:+--replicaof 127.0.0.1 "$3"}
}

# start_sentinel NAME PORT MASTER-PORT
start_sentinel() {
    local folder conf
    folder=$(shop_folder)/$1
    conf=$folder/sentinel.conf
    mkdir -p "$folder"
    sed -e "s/^port .*/port $2/" -e "s/^\(sentinel monitor shop 127.0.0.1\) [0-9]*/\1 $3/" \
        "$LADDER_ROOT/deploy/sentinel/sentinel.conf" >"$conf" # Sentinel keeps in it what it has learned
    printf 'dir %s\n' "$folder" >>"$conf"
    start_part "$1" "$2" "$folder.log" redis-server "$conf" --sentinel --daemonize no
}

start_group() {
    local name port
    start_group_server redis "$SHOP_REDIS_PORT"
    while read -r name port <&4; do
        case $name in
        replica*) start_group_server "$name" "$port" "$SHOP_REDIS_PORT" ;;
        sentinel*) start_sentinel "$name" "$port" "$SHOP_REDIS_PORT" ;;
        esac
    done 4< <(shop_group)
}

# sentinel_knows_all PORT: the other sentinels and the replicas.
sentinel_knows_all() {
    local told
    told=$(ask_sentinel "$1" master shop | paste -s -d ' ')
    [[ $told == *" num-slaves $SHOP_REPLICAS "* && $told == *" num-other-sentinels $((SHOP_SENTINELS - 1)) "* ]]
}

# Whether a failover would find what it needs. A replica's own `master_link_status` comes too early.
group_is_complete() {
    local port
    for port in $(shop_sentinel_ports); do
        sentinel_knows_all "$port" || return 1
    done
    [[ $(timeout 5 redis-cli -h 127.0.0.1 -p "$SHOP_REDIS_PORT" info replication | grep -c state=online) == \
        "$SHOP_REPLICAS" ]]
}

await_group() {
    [[ -n $SHOP_SENTINEL_PORT ]] || return 0
    wait_until 60 group_is_complete ||
        fail "the sentinels and the replicas did not find each other within 60 s; their logs are in $(shop_folder)"
}
