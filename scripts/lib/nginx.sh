# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# nginx in front of instances: makes its configuration from deploy/nginx/, starts and ends it. It
# runs as any user; all it writes is in the folder of its configuration. Needs common.sh.

NGINX_READ_S=35 # as in the template
NGINX_END_S=25  # what worker_shutdown_timeout is longer

# Debian keeps nginx where only root looks.
PATH=$PATH:/usr/sbin

# nginx_servers OPTION LIMITS DOWN NAME=HOST:PORT...: the lines of an upstream. DOWN: the names of those
# that get no request, each with a space on both sides.
nginx_servers() {
    local option=$1 limits=$2 down=$3 upstream servers=
    for upstream in "${@:4}"; do
        [[ $upstream =~ ^[A-Za-z0-9_-]+=[A-Za-z0-9.:_-]+:[0-9]+$ ]] ||
            fail "$option is \"$upstream\": it must be NAME=HOST:PORT"
        servers+="server ${upstream#*=} $limits"
        [[ $down != *" ${upstream%%=*} "* ]] || servers+=' down'
        servers+='; '
    done
    printf '%s' "${servers% }"
}

# nginx_service NAME: the sed commands that put the paths of another service than the shop into the template. nginx
# sends no request again, not even one that reads: it would be accepted twice. It answers /healthz itself.
nginx_service() {
    local open doors path
    case $1 in
    menu) open='GET /menus/{name}' doors='PUT /menus/{name}' ;;
    account)
        open='GET /accounts/{name}, POST /accounts/{name}/add, POST /transfers'
        doors='PUT /accounts/{name}'
        ;;
    tasks) open='GET /lists/{name}, POST /lists/{name}/work' doors='PUT /lists/{name}' ;;
    *) fail "--service: there is no service \"$1\"; there are menu, account, tasks" ;;
    esac
    path=${doors#* }
    printf '%s\n' "s|'there are: .*'|'there are: GET /healthz, $open'|" \
        "s|'operators have .*'|'operators have $doors here, and nothing else'|" \
        "s|\^/inventory/.*\\\$ {|^${path%/*}/[^/]+\$ {|" \
        's|proxy_next_upstream error timeout|proxy_next_upstream off|' \
        '0,/location \/ {/s||location = /healthz { return 200 "ok\\n"; }\n\n        location / {|'
}

# nginx_render --out FILE --listen ADDRESS:PORT --operators ADDRESS:PORT --log FILE
#              --upstream NAME=HOST:PORT ... --admin NAME=HOST:PORT ... [--profile proof|failover]
#              [--down NAME ...] [--read-s SECONDS] [--service NAME]
# --read-s: how long it waits for an answer. After a reload it cuts off what takes NGINX_END_S longer.
# FILE is the old one or the new one, wherever this is cut short.
nginx_render() {
    local out='' listen='' operators='' log='' profile=proof down=' ' upstreams=() admins=() limits servers
    local admin_servers read_s=$NGINX_READ_S service='' paths=''
    while (($#)); do
        case $1 in
        --out) out=$(option_value "$@") ;;
        --listen) listen=$(option_value "$@") ;;
        --operators) operators=$(option_value "$@") ;;
        --log) log=$(option_value "$@") ;;
        --profile) profile=$(option_value "$@") ;;
        --read-s) read_s=$(option_value "$@") ;;
        --service) service=$(option_value "$@") ;;
        --down) down+="$(option_value "$@") " ;;
        --upstream) upstreams+=("$(option_value "$@")") ;;
        --admin) admins+=("$(option_value "$@")") ;;
        *) fail "nginx_render: \"$1\" is not understood" ;;
        esac
        shift 2
    done
    if [[ -z $out || -z $listen || -z $operators || -z $log ]] ||
        ((${#upstreams[@]} == 0 || ${#admins[@]} == 0)); then
        fail "nginx_render needs --out, --listen, --operators, --log and at least one --upstream" \
            "and one --admin"
    fi
    one_of --profile "$profile" proof failover
    [[ -z $service ]] || paths=$(nginx_service "$service")
    limits='max_fails=0'
    [[ $profile == proof ]] || limits='max_fails=3 fail_timeout=2s'
    servers=$(nginx_servers --upstream "$limits" "$down" "${upstreams[@]}")
    admin_servers=$(nginx_servers --admin "$limits" "$down" "${admins[@]}")
    # The words end up inside sed's and nginx's own syntax.
    [[ $out$listen$operators$log != *[\|\;\{\}\"\'\\\&\$[:space:]]* ]] ||
        fail "paths for nginx must be free of spaces and of | ; { } \" ' \\ & \$:" \
            "\"$out\", \"$listen\", \"$operators\", \"$log\""
    mkdir -p "$(dirname "$out")"
    sed -e '/^#/d' -e "s|@LISTEN@|$listen|" -e "s|@OPERATORS@|$operators|" -e "s|@LOG@|$log|" \
        -e "s|\(proxy_read_timeout\) [0-9]*s|\1 ${read_s}s|" \
        -e "s|\(worker_shutdown_timeout\) [0-9]*s|\1 $((read_s + NGINX_END_S))s|" \
        -e 's|@ERROR_LOG@|error.log|' -e "s|@SERVERS@|$servers|" \
        -e "s|@ADMIN_SERVERS@|$admin_servers|" -e "$paths" "$LADDER_ROOT/deploy/nginx/nginx.conf.in" >"$out.new"
    mv "$out.new" "$out"
}

# nginx_words CONF: the command that nginx is asked with, in NGINX_WORDS. A variable NGINX would be the sockets
# that it inherits: it would stay in the foreground, for ever.
nginx_words() {
    local conf
    conf=$(realpath "$1")
    NGINX_WORDS=(env --unset NGINX nginx -e "$(dirname "$conf")/error.log" -p "$(dirname "$conf")/" -c "$conf")
}

# nginx_test CONF: fails with nginx's own words.
nginx_test() {
    local words
    need nginx
    nginx_words "$1"
    words=$("${NGINX_WORDS[@]}" -t -q 2>&1) || fail "nginx refuses $1: $words"
}

# nginx_start CONF: returns when it listens; its pid is in nginx.pid beside CONF.
nginx_start() {
    local words pid_file
    nginx_test "$1"
    pid_file=$(dirname "$1")/nginx.pid
    words=$("${NGINX_WORDS[@]}" 2>&1) || fail "nginx does not start: $words"
    wait_until 10 test -s "$pid_file" || fail "nginx wrote no $pid_file within 10 s"
}

# nginx_workers CONF: pid and start of each, in turn.
nginx_workers() {
    local master pid start pids
    master=$(<"$(dirname "$1")/nginx.pid")
    read -ra pids <<<"$(cat "/proc/$master/task/$master/children")"
    for pid in "${pids[@]}"; do
        if start=$(process_start "$pid"); then
            printf '%s %s ' "$pid" "$start"
        fi
    done
}

# Fails while one of those lives.
all_are_gone() {
    while (($#)); do
        process_is_gone "$1" "$2" || return 1
        shift 2
    done
}

# nginx_shutdown_s CONF: after so many seconds it cuts off what is left of an old configuration.
nginx_shutdown_s() {
    sed -n 's/^worker_shutdown_timeout \([0-9]*\)s;.*/\1/p' "$1"
}

# nginx_patience_s CONF: how long it may take to end what is under way.
nginx_patience_s() {
    printf '%s' $(($(nginx_shutdown_s "$1") + 30))
}

# nginx_reload CONF: returns when the last request under the old configuration was answered, or cut off
# (worker_shutdown_timeout, of the configuration before this one: it is the same).
nginx_reload() {
    local words old patience_s
    nginx_test "$1"
    process_start "$(<"$(dirname "$1")/nginx.pid")" >/dev/null || fail "nginx of $1 has ended"
    read -ra old <<<"$(nginx_workers "$1")"
    words=$("${NGINX_WORDS[@]}" -s reload 2>&1) || fail "nginx does not reload: $words"
    patience_s=$(nginx_patience_s "$1")
    wait_until "$patience_s" all_are_gone "${old[@]}" ||
        fail "nginx's old workers live on, $patience_s s after a reload"
}

# nginx_stop CONF: what is under way is finished first. Not running is fine.
nginx_stop() {
    local pid_file pid start
    pid_file=$(dirname "$1")/nginx.pid
    [[ -s $pid_file ]] || return 0
    pid=$(<"$pid_file")
    # A pid file that a crash left may name another's process by now.
    [[ $(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null) == *"$(realpath "$1")"* ]] || return 0
    start=$(process_start "$pid") || return 0
    end_process "$pid" "$start" QUIT "$(nginx_patience_s "$1")" 'nginx, which finishes the requests under way'
}
