# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034  # settings of those who source it
#
# A shop on this machine: a private redis-server, N inventoryd, an nginx in front, all on loopback; more
# redis-servers if a lock needs several; or a group of servers with sentinels (sentinel.sh) instead of the one.
# nginx listens on two ports: one for buyers, one for operators, who set the stock.
# Needs common.sh, nginx.sh, sentinel.sh and ensemble.sh. nginx's port identifies a shop. What was started is recorded
# in LADDER_STATE/<port>/, so that `down` ends exactly what `up` started:
#   parts       one line a process: name, pid, its start time in clock ticks, port
#   settings    one line each: the options of `up`, and an `instance` for each instance; readable for its user alone
#   load        locked while a load runs
#   left-out/   a file an instance that nginx may leave out, with its lock, and one if it is behind (restart.sh)
#   history/    what the instances record; a run's part is moved to its folder
#   redis/ lock1/ ... zk1/ ... etcd1/ ... replica1/ ... sentinel1/ ... nginx/ *.log

SHOP_PORT=8888
SHOP_OPERATORS_PORT= # nginx's for operators; "": the next one
SHOP_REDIS_PORT=7000
SHOP_LOCK_PORT=    # the first of the servers for locks that are not on the shop's Redis; "": there are none
SHOP_LOCK_ON=      # which of them there are, by comma: redis, zookeeper, etcd (ensemble.sh)
SHOP_LOCK_SERVERS=3 # redis-servers
SHOP_SENTINEL_PORT= # the first of the group's ports; "": there are no sentinels
SHOP_BASE=8000     # the first instance; its admin listener is on the next port
SHOP_STEP=1000     # from one instance to the next: 8000, 9000, 10000 ...
SHOP_COUNT=2
SHOP_COUNT_MAX=16  # 8000 to 23000: below the ports that the kernel gives to clients
SHOP_REDIS_CONF=
SHOP_TOKEN_FILE=${INVENTORYD_ADMIN_TOKEN_FILE:-} # of the admin listeners; "": they need none
SHOP_OPTIONS=()    # inventoryd's
SHOP_ANSWER_MS=30000 # an instance answers a sale, or has switched its lock, by then: see set_times
SHOP_DRAIN_MS=30000  # it ends by then

SHOP_STARTER=${LADDER_STARTER:-scripts/shop up} # what the user called: scripts/demo and scripts/prove say it
unset LADDER_STARTER
[[ $SHOP_STARTER == "scripts/shop up" ]] || PROGRAM=${SHOP_STARTER#scripts/} # whose options they are
SHOP_NAMES=abcdefghijklmnop
# Options of inventoryd that the shop sets itself, and the reason that a user who gives one reads.
declare -A SHOP_OWN_OPTIONS=(
    [--listen]='--base-port and --port-step choose the instances'\'' ports'
    [--admin-listen]='an admin listener is on the port behind its instance'\''s: --base-port, --port-step choose both'
    [--instance]='the instances are a, b, c ...: --instances says how many'
    [--redis]='it starts a Redis of its own: --redis-port chooses its port'
    [--lock-redis]='it starts a Redis of its own, for lock and stock: --redis-port chooses its port'
    [--stock-redis]='it starts a Redis of its own, for lock and stock: --redis-port chooses its port'
    [--history]='the histories are in its folder, and those of a run of scripts/jmeter in the folder of the run'
    [--admin-writes]='it is always on: scripts/jmeter and scripts/shop restart switch the lock by it'
)

shop_folder() {
    printf '%s/%s' "$LADDER_STATE" "$SHOP_PORT"
}

shop_name() {
    printf '%s' "${SHOP_NAMES:$1:1}"
}

# The ports of the redis-servers of a lock that a majority grants, one a line.
shop_lock_ports() {
    [[ -z $SHOP_LOCK_PORT || ,$SHOP_LOCK_ON, != *,redis,* ]] ||
        seq "$SHOP_LOCK_PORT" $((SHOP_LOCK_PORT + SHOP_LOCK_SERVERS - 1))
}

shop_instance_port() {
    printf '%s' $((SHOP_BASE + $1 * SHOP_STEP))
}

# ---- Records -------------------------------------------------------------------------------------

# shop_note NAME PID PORT: records a process right after its start, so that `down` finds it. If the part
# has a line already, the line is replaced in its place. A Ctrl-C is sent to every process of this
# subshell, so all of them ignore it.
shop_note() (
    trap '' HUP INT PIPE TERM
    parts=$(shop_folder)/parts
    start=$(process_start "$2") || start=0
    if grep -q "^$1 " "$parts" 2>/dev/null; then
        sed "s/^$1 .*/$1 $2 $start $3/" "$parts" >"$parts.new" && mv "$parts.new" "$parts"
    else
        printf '%s %s %s %s\n' "$1" "$2" "$start" "$3" >>"$parts"
    fi
)

# shop_each COMMAND...: calls COMMAND NAME PID START PORT for each part, in the order of the start.
shop_each() {
    local name pid start port
    [[ -f $(shop_folder)/parts ]] || return 0
    while read -r name pid start port <&4; do
        "$@" "$name" "$pid" "$start" "$port"
    done 4<"$(shop_folder)/parts"
}

print_if_alive() {
    if process_lives "$2" "$3"; then
        printf '%s ' "$1"
    fi
}

shop_alive() {
    shop_each print_if_alive
}

# say_remedy NAME PID START PORT: if the part has ended or is left out, says which command mends that.
say_remedy() {
    if is_left_out "$1"; then
        say "instance $1 is left out: scripts/shop restart --port $SHOP_PORT goes on"
    elif process_lives "$2" "$3"; then
        return 0
    elif [[ -n $(shop_setting sentinel) && $1 == @(redis|replica[0-9]|sentinel[0-9]) ]]; then
        say "$1 has ended, and the others of its group go on: scripts/shop down --port $SHOP_PORT, then up," \
            "makes the group whole again; what Redis holds is gone then"
    elif [[ $1 == redis ]]; then
        say "Redis has ended, and what it held is gone: scripts/shop down --port $SHOP_PORT, then up"
    elif [[ $1 == @(zk|etcd)[0-9] ]]; then
        say "the lock's server $1 has ended, and $(ensemble_goes_on "${1%[0-9]}"):" \
            "scripts/shop down --port $SHOP_PORT, then up"
    elif [[ $1 == lock[0-9] ]]; then
        say "the lock's server $1 has ended, and has forgotten its vote: scripts/shop down --port $SHOP_PORT, then up"
    elif [[ $1 == nginx || $(shop_setting count) == 1 ]]; then
        say "$1 has ended: scripts/shop down --port $SHOP_PORT, then up; what Redis holds is gone then"
    else
        say "instance $1 has ended: scripts/shop restart --port $SHOP_PORT replaces it"
    fi
}

# ensemble_goes_on NAME: what those of its servers do that live.
ensemble_goes_on() {
    local alive
    read -ra alive <<<"$(shop_alive | tr ' ' '\n' | grep "^$1[0-9]$" | tr '\n' ' ')"
    if ((2 * ${#alive[@]} > ENSEMBLE_SERVERS)); then
        printf 'the others of its ensemble go on'
    else
        printf 'those that are left are no majority, so no lock is granted there'
    fi
}

# shop_setting NAME: the values of a setting, one a line.
shop_setting() {
    sed -n "s/^$1=//p" "$(shop_folder)/settings"
}

shop_write_settings() {
    printf '%s\n' "port=$SHOP_PORT" "operators=$SHOP_OPERATORS_PORT" "redis=$SHOP_REDIS_PORT" \
        "lock=$SHOP_LOCK_PORT" "lock_on=$SHOP_LOCK_ON" "lock_count=$SHOP_LOCK_SERVERS" "sentinel=$SHOP_SENTINEL_PORT" \
        "answer=$SHOP_ANSWER_MS" "drain=$SHOP_DRAIN_MS" "token=$SHOP_TOKEN_FILE" \
        "base=$SHOP_BASE" "step=$SHOP_STEP" "count=$SHOP_COUNT"
    printf 'option=%s\n' "${SHOP_OPTIONS[@]}"
    printf 'folder=%s\n' "$PWD"
    env | sed -n 's/^INVENTORYD_/environment=&/p'
}

# shop_read_settings: sets SHOP_* from the settings of the shop that is up.
shop_read_settings() {
    SHOP_OPERATORS_PORT=$(shop_setting operators)
    SHOP_REDIS_PORT=$(shop_setting redis)
    SHOP_LOCK_PORT=$(shop_setting lock)
    SHOP_LOCK_ON=$(shop_setting lock_on)
    SHOP_LOCK_SERVERS=$(shop_setting lock_count)
    SHOP_SENTINEL_PORT=$(shop_setting sentinel)
    SHOP_TOKEN_FILE=$(shop_setting token)
    SHOP_BASE=$(shop_setting base)
    SHOP_STEP=$(shop_setting step)
    SHOP_COUNT=$(shop_setting count)
    mapfile -t SHOP_OPTIONS < <(shop_setting option)
    SHOP_ANSWER_MS=$(shop_setting answer)
    SHOP_ANSWER_MS=${SHOP_ANSWER_MS:-30000} # an earlier version did not write it
}

# shop_enter: restores the working directory and the environment of `up`, for a part that is started later.
shop_enter() {
    local line
    cd "$(shop_setting folder)" || fail "the folder that the shop was started in has gone"
    for line in $(compgen -e INVENTORYD_); do
        unset "$line"
    done
    while read -r line; do
        export "${line?}"
    done < <(shop_setting environment)
}

# ---- Up ------------------------------------------------------------------------------------------

# Called before anything is built.
shop_check_options() {
    local option
    for option in "${SHOP_OPTIONS[@]}"; do
        option=${option%%=*}
        [[ -z ${SHOP_OWN_OPTIONS[$option]-} ]] || fail "$option is set by the shop itself: ${SHOP_OWN_OPTIONS[$option]}"
    done
    shop_check_ports
}

# How another shop is started beside the one that is there.
shop_another() {
    printf 'Another shop beside it needs ports of its own: %s --port 8890 --base-port 8100 --redis-port 7001%s%s' \
        "$SHOP_STARTER" "${SHOP_LOCK_PORT:+ --lock-port 7130}" "${SHOP_SENTINEL_PORT:+ --sentinel-port 7220}"
}

# shop_of PID: the port of the shop of this clone that the process is a part of.
shop_of() {
    local file
    file=$(grep --files-with-matches "^[^ ]* $1 " "$LADDER_STATE"/*/parts 2>/dev/null | head -n 1)
    [[ -n $file ]] && basename "$(dirname "$file")"
}

# need_free_port PORT WHAT OPTION
need_free_port() {
    local who shop end='End that'
    if who=$(who_listens "$1"); then
        if shop=$(shop_of "${who##* }"); then
            who+=", of the shop on port $shop"
            end="End that shop with scripts/shop down --port $shop"
        fi
        fail "port $1, wanted for $2, is taken by $who. $end, or choose another with $3. $(shop_another)"
    fi
}

shop_check() {
    local i
    need redis-server redis-cli nginx curl ss setsid flock
    need_ensembles
    check_instance 0
    need_free_port "$SHOP_PORT" nginx --port
    need_free_port "$SHOP_OPERATORS_PORT" "nginx's operators" --operators-port
    need_free_port "$SHOP_REDIS_PORT" redis-server --redis-port
    for i in $(shop_lock_ports); do
        need_free_port "$i" "a lock's redis-server" --lock-port
    done
    for i in $(ensemble_ports | cut -d ' ' -f 1); do
        need_free_port "$i" "a server of an ensemble" --lock-port
    done
    for i in $(shop_group | cut -d ' ' -f 2); do
        need_free_port "$i" "a server of the group" --sentinel-port
    done
    for ((i = 0; i < SHOP_COUNT; i++)); do
        need_free_port "$(shop_instance_port "$i")" "instance $(shop_name "$i")" --base-port
        need_free_port $(($(shop_instance_port "$i") + 1)) \
            "the admin listener of instance $(shop_name "$i")" --base-port
    done
    # nginx uses two descriptors a client: 1500 of them are more than the usual 1024.
    ulimit -S -n 32768 2>/dev/null || ulimit -S -n "$(ulimit -H -n)"
    (($(ulimit -n) >= 8192)) ||
        fail "this session may open $(ulimit -n) files at once; 1500 buyers need 8192 (ulimit -Hn)"
}

# Fails if two ports of the shop are the same.
shop_check_ports() {
    local i port
    local -A taken=([$SHOP_PORT]='--port (nginx)')
    claim_port "$SHOP_OPERATORS_PORT" "--operators-port (nginx's operators)"
    claim_port "$SHOP_REDIS_PORT" '--redis-port (redis-server)'
    for port in $(shop_lock_ports); do
        claim_port "$port" "--lock-port (a lock's redis-server)"
    done
    for port in $(ensemble_ports | cut -d ' ' -f 1); do
        claim_port "$port" "--lock-port (a server of an ensemble)"
    done
    for port in $(shop_group | cut -d ' ' -f 2); do
        claim_port "$port" "--sentinel-port (a server of the group)"
    done
    for ((i = 0; i < SHOP_COUNT; i++)); do
        port=$(shop_instance_port "$i")
        claim_port "$port" "--base-port (instance $(shop_name "$i"))"
        claim_port $((port + 1)) "--base-port (the admin listener of instance $(shop_name "$i"))"
    done
}

# claim_port PORT WHAT: `taken` is the caller's.
claim_port() {
    [[ -z ${taken[$1]-} ]] ||
        fail "${taken[$1]} and $2 would both be port $1: choose other ones"
    taken[$1]=$2
}

# start_part NAME PORT LOG COMMAND...: starts it in a session of its own, so that a Ctrl-C for a script does
# not reach it, and without the folder's lock (descriptor 9). It runs only once it is recorded.
start_part() {
    uninterrupted start_and_record "$@"
}

start_and_record() {
    local name=$1 port=$2 log=$3 go
    shift 3
    # The new process reads a line from this pipe before its exec: it is written once the process is recorded. If
    # this script ends before that, the read fails, and the process ends.
    exec {go}> >(read -r && exec setsid "$@" </dev/null >>"$log" 2>&1 9>&-)
    shop_note "$name" "$!" "$port" 2>/dev/null ||
        fail "$(shop_folder)/parts cannot be written; $name was not started"
    trap '' PIPE # a Ctrl-C may have ended it; uninterrupted reports that
    { echo >&"$go"; } 2>/dev/null || true
    exec {go}>&-
}

# redis_answers PORT
redis_answers() {
    [[ $(timeout 5 redis-cli -h 127.0.0.1 -p "$1" ping 2>/dev/null) == PONG ]]
}

# instance_ready PORT: the instance that listens there
instance_ready() {
    curl --silent --fail --max-time 2 --output /dev/null "http://127.0.0.1:$(($1 + 1))/readyz"
}

# On both of its ports.
nginx_answers() {
    curl --silent --fail --max-time 2 --output /dev/null "http://127.0.0.1:$SHOP_PORT/healthz" &&
        curl --silent --max-time 2 --output /dev/null "http://127.0.0.1:$SHOP_OPERATORS_PORT/"
}

# part_is_up NAME PORT
part_is_up() {
    case $1 in
    redis | lock[0-9] | replica[0-9] | sentinel[0-9]) redis_answers "$2" ;;
    zk[0-9]) zookeeper_answers "$2" ;;
    etcd[0-9]) etcd_answers "$2" ;;
    nginx) nginx_answers ;;
    *) instance_ready "$2" ;;
    esac
}

# await_part NAME PID START PORT: waits until it is ready; fails if it ends or does not become ready.
await_part() {
    local folder
    folder=$(shop_folder)
    if ! wait_until 60 part_is_up_or_gone "$@" || ! process_lives "$2" "$3"; then
        tail -n 5 "$folder/$1.log" >&2
        fail "$1 did not become ready on port $4; its whole log is $folder/$1.log"
    fi
}

part_is_up_or_gone() {
    part_is_up "$1" "$4" || process_is_gone "$2" "$3"
}

# start_redis NAME PORT
start_redis() {
    local folder conf=()
    folder=$(shop_folder)
    mkdir -p "$folder/$1"
    # Without the user's configuration file, nothing is kept on disk. noeviction: an evicted lock key
    # would be a lost lock.
    if [[ -n $SHOP_REDIS_CONF ]]; then
        conf=("$SHOP_REDIS_CONF")
    else
        conf=(--save '' --appendonly no --maxmemory-policy noeviction)
    fi
    start_part "$1" "$2" "$folder/$1.log" redis-server "${conf[@]}" \
        --bind 127.0.0.1 --port "$2" --dir "$folder/$1" --daemonize no
}

start_redis_servers() {
    local port count=0
    if [[ -n $SHOP_SENTINEL_PORT ]]; then
        start_group
    else
        start_redis redis "$SHOP_REDIS_PORT"
    fi
    for port in $(shop_lock_ports); do
        count=$((count + 1))
        start_redis "lock$count" "$port"
    done
    start_ensembles
}

# The instances' URL of lock and stock.
shop_redis_url() {
    if [[ -n $SHOP_SENTINEL_PORT ]]; then
        printf 'sentinel://%s/shop' "$(shop_sentinel_ports | sed 's/^/127.0.0.1:/' | paste --serial --delimiters ,)"
    else
        printf 'redis://127.0.0.1:%s/0' "$SHOP_REDIS_PORT"
    fi
}

# Options that only a group needs. A majority of its servers has each sale before the buyer hears of it. Sales wait for
# the end of a failover, which takes a few seconds. Then the lock is free once it expires: a sale whose reply was lost
# with the master leaves it so, because its write may still arrive.
shop_group_options() {
    [[ -z $SHOP_SENTINEL_PORT ]] || printf '%s\n' --replicas-ack majority --fail-fast-ms 15000 --ttl-ms 5000
}

# instance_command I [OPTION...]: sets COMMAND, which starts the instance with the options of `up` and then
# OPTION. The user's options stand last, so that one without its value does not take an option of the shop's.
instance_command() {
    local port redis locks group
    port=$(shop_instance_port "$1")
    redis=$(shop_redis_url)
    mapfile -t group < <(shop_group_options && ensemble_options)
    locks=$({ shop_lock_ports | sed 's|^|redis://127.0.0.1:|' && ensemble_urls; } | paste --serial --delimiters ,)
    COMMAND=("$LADDER_BUILD/service/inventoryd"
        --instance "$(shop_name "$1")" --listen "127.0.0.1:$port"
        --admin-listen "127.0.0.1:$((port + 1))" --admin-writes
        --admin-token-file "$SHOP_TOKEN_FILE"
        --redis "$redis" --lock-redis "$redis" --stock-redis "$redis" ${locks:+--lock-servers "$locks"} "${group[@]}"
        --history "$(shop_folder)/history/history-$(shop_name "$1").jsonl"
        "${SHOP_OPTIONS[@]}" "${@:2}")
}

# check_instance I [OPTION...]: its program is there and takes its options. Sets SHOP_ANSWER_MS and SHOP_DRAIN_MS.
check_instance() {
    local words
    instance_command "$@"
    [[ -x ${COMMAND[0]} ]] || fail "there is no ${COMMAND[0]}: build it, or unset LADDER_BUILD"
    words=$("${COMMAND[0]}" --print-config "${COMMAND[@]:1}" 2>&1) || {
        [[ $words != *"--lock-servers names none"* ]] ||
            words+="; or let scripts/shop start such servers: --lock-port 7100, and with --lock-on LIST several kinds"
        fail "inventoryd refuses its options: $words"
    }
    set_times "$words"
}

# set_times CONFIG: a sale waits for its lock, does its business, and each command of it may take its whole time.
set_times() {
    local name value="[[:space:]]*\([0-9]*\).*"
    local -A ms=()
    for name in wait_ms work_ms redis_timeout_ms drain_ms; do
        ms[$name]=$(sed -n "s/.*\"$name\":$value/\1/p" <<<"$1")
    done
    SHOP_ANSWER_MS=$((ms[wait_ms] + ms[work_ms] + 10 * ms[redis_timeout_ms]))
    SHOP_DRAIN_MS=${ms[drain_ms]}
}

# How long nginx waits for an answer of an instance, and JMeter for one of nginx. JMeter waits longer: otherwise
# it would end a request that nginx is about to answer.
shop_read_s() {
    printf '%s' $((SHOP_ANSWER_MS / 1000 + 5))
}
shop_response_ms() {
    printf '%s' $(($(shop_read_s) * 1000 + 15000))
}

# start_instance I [OPTION...]
start_instance() {
    local name
    name=$(shop_name "$1")
    instance_command "$@"
    start_part "$name" "$(shop_instance_port "$1")" "$(shop_folder)/$name.log" "${COMMAND[@]}"
}

start_instances() {
    local i folder
    folder=$(shop_folder)
    mkdir -p "$folder/history"
    for ((i = 0; i < SHOP_COUNT; i++)); do
        start_instance "$i"
        printf 'instance=%s=127.0.0.1:%s\n' "$(shop_name "$i")" $(($(shop_instance_port "$i") + 1)) \
            >>"$folder/settings"
    done
}

# is_left_out NAME: nginx may send that instance nothing.
is_left_out() {
    [[ -e $(shop_folder)/left-out/$1 ]]
}

PUT_BACK=() # instances that are left out now, and get requests again with nginx's next configuration

# configure_nginx: instances that are not left out get requests, and those in PUT_BACK.
configure_nginx() {
    local i name port folder servers=()
    folder=$(shop_folder)/nginx
    for ((i = 0; i < SHOP_COUNT; i++)); do
        name=$(shop_name "$i")
        port=$(shop_instance_port "$i")
        servers+=(--upstream "$name=127.0.0.1:$port" --admin "$name=127.0.0.1:$((port + 1))")
        if is_left_out "$name" && [[ " ${PUT_BACK[*]} " != *" $name "* ]]; then
            servers+=(--down "$name")
        fi
    done
    nginx_render --out "$folder/nginx.conf" --listen "127.0.0.1:$SHOP_PORT" \
        --operators "127.0.0.1:$SHOP_OPERATORS_PORT" --log "$folder/access.log" \
        --read-s "$(shop_read_s)" "${servers[@]}"
}

start_nginx() {
    local folder
    folder=$(shop_folder)/nginx
    configure_nginx
    nginx_start "$folder/nginx.conf" 9>&-
    shop_note nginx "$(<"$folder/nginx.pid")" "$SHOP_PORT"
}

need_no_shop() {
    local alive
    alive=$(shop_alive)
    [[ -n $alive ]] || return 0
    shop_each say_remedy
    fail "a shop is up on port $SHOP_PORT already (${alive% }): scripts/shop status --port $SHOP_PORT shows it," \
        "scripts/shop down --port $SHOP_PORT ends it. $(shop_another)"
}

shop_up() {
    local folder
    folder=$(shop_folder)
    need_no_shop
    shop_check # what is refused leaves no folder
    make_folder "$folder"
    exec 9>"$folder/guard"
    flock --nonblock 9 || fail "another command is starting or ending the shop on port $SHOP_PORT"
    need_no_shop
    rm -rf "${folder:?}"/{parts,settings,left-out,redis,lock[0-9],replica[0-9],sentinel[0-9],nginx,history,*.log}
    rm -rf "${folder:?}"/{zk,etcd}[0-9]
    (umask 077 && shop_write_settings >"$folder/settings") # URLs in it may have passwords
    at_exit shop_down_unless_up
    start_redis_servers
    say_raised_limits
    shop_each await_part
    await_group
    start_instances
    shop_each await_part
    start_nginx
    shop_each await_part
    SHOP_IS_UP=yes
    exec 9>&-
}

SHOP_IS_UP=

shop_down_unless_up() {
    [[ -n $SHOP_IS_UP ]] || shop_end_parts
}

# ---- Down and status -----------------------------------------------------------------------------

shop_down() {
    local folder
    folder=$(shop_folder)
    [[ -d $folder ]] || return 0
    exec 9>"$folder/guard"
    flock --wait 60 9 || fail "another command holds the shop on port $SHOP_PORT"
    shop_end_parts
    exec 9>&-
}

# instance_patience_s DRAIN_MS: an instance ends by itself within --drain-ms.
instance_patience_s() {
    printf '%s' $(($1 / 1000 + 15))
}

# end_part NAME PID START
end_part() {
    local words=()
    if [[ $1 == ["$SHOP_NAMES"] ]]; then
        words=(TERM "$(instance_patience_s "$SHOP_DRAIN_MS")" "instance $1, which finishes its sales within --drain-ms")
    fi
    end_process "$2" "$3" "${words[@]}"
}

# nginx first: it stops accepting, and requests under way can finish behind it.
shop_end_parts() {
    local folder name pid start port
    folder=$(shop_folder)
    [[ -f $folder/parts ]] || return 0
    nginx_stop "$folder/nginx/nginx.conf" || true
    SHOP_DRAIN_MS=$(shop_setting drain)
    SHOP_DRAIN_MS=${SHOP_DRAIN_MS:-30000} # an earlier version did not write it
    while read -r name pid start port <&4; do
        end_part "$name" "$pid" "$start" || say "$name (pid $pid, port $port) could not be ended"
        end_orphans "$pid"
    done 4< <(tac "$folder/parts")
    rm -f "$folder/parts"
}

# print_part NAME PID START PORT
print_part() {
    local ready=no ended=''
    process_lives "$2" "$3" || ended=yes
    if is_left_out "$1"; then
        ready=${ended:+ended, }left-out # a restart was not finished
    elif [[ -n $ended ]]; then
        ready=ended
    elif part_is_up "$1" "$4"; then
        ready=yes
    fi
    printf '%-8s %8s %6s  %s\n' "$1" "$2" "$4" "$ready"
    [[ $ready == yes ]] || SHOP_UNREADY=yes
}

# shop_status: 0 every part is ready, 1 one is not, 3 there is no shop.
shop_status() {
    SHOP_UNREADY=
    if [[ ! -s $(shop_folder)/parts ]]; then
        printf 'no shop is up on port %s\n' "$SHOP_PORT"
        return 3
    fi
    shop_read_settings
    printf '%-8s %8s %6s  %s\n' part pid port ready
    shop_each print_part
    shop_each say_remedy
    if ! grep -q '^nginx ' "$(shop_folder)/parts"; then # it is the last one that `up` starts
        SHOP_UNREADY=yes
        say "nginx was not started yet. If scripts/shop up was broken off: scripts/shop down --port $SHOP_PORT, then up"
    fi
    [[ -z $SHOP_UNREADY ]]
}

# shop_claim_load: directs the runs that follow (run.sh) to this shop, and locks it against other loads until
# this script and its JMeter end, or until shop_release_load.
shop_claim_load() {
    local folder who
    folder=$(shop_folder)
    if [[ ! -s $folder/parts ]]; then
        ! who=$(who_listens "$SHOP_PORT") ||
            fail "port $SHOP_PORT is taken by $who, which scripts/shop of this clone did not start." \
                "Name the port of a shop that it started. $(shop_another)"
        fail "no shop is up on port $SHOP_PORT: scripts/shop up --port $SHOP_PORT starts one"
    fi
    exec 7>"$folder/load"
    flock --nonblock 7 ||
        fail "another load runs on the shop on port $SHOP_PORT, and two would spoil each other: wait for its end"
    shop_read_settings
    RUN_HTTP=127.0.0.1:$SHOP_PORT
    RUN_OPERATORS=127.0.0.1:$(shop_setting operators)
    ASK_TOKEN_FILE=$(shop_setting token)
    need_token
    RUN_REDIS=127.0.0.1:$(shop_setting redis)
    [[ -z $SHOP_SENTINEL_PORT ]] || RUN_MASTER=(shop_master)
    RUN_RESPONSE_MS=$(shop_response_ms)
    RUN_KILL=(shop_kill)
    RUN_NGINX_LOG=$folder/nginx/access.log
    RUN_HISTORIES=$folder/history
    mapfile -t RUN_INSTANCES < <(shop_setting instance)
}

# kill_part_on PORT NAME PID START PORT: SIGKILL, if the part has that port.
kill_part_on() {
    [[ $1 != "$5" ]] || ! process_lives "$3" "$4" || kill -s KILL "$3"
}

# shop_minority RUNG: the ports of so many servers of its lock as it can lose, the leader's if there is one.
shop_minority() {
    if [[ " $ENSEMBLES " == *" $1 "* ]]; then
        "$1_minority"
    else
        shop_lock_ports | head -n $(((SHOP_LOCK_SERVERS - 1) / 2))
    fi
}

# shop_kill FAULT RUNG: kills the servers that it names.
shop_kill() {
    local port ports
    case $1 in
    master_killed) ports=$(shop_master) && ports=${ports##*:} ;;
    minority_killed) ports=$(shop_minority "$2") ;;
    esac
    [[ -n $ports ]] || return
    for port in $ports; do
        shop_each kill_part_on "$port"
    done
}

shop_release_load() {
    exec 7>&-
}
