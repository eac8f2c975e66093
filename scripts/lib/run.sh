# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034  # settings of those who source it
#
# Drives rows, a rung and a way to write each, against a shop that is up, wherever its parts are:
# on this machine or in containers. Needs common.sh, ask.sh, jmeter.sh and break.sh. The caller says:
RUN_HTTP=127.0.0.1:8888     # nginx
RUN_OPERATORS=127.0.0.1:8889 # nginx's for operators, who set the stock
RUN_INSTANCES=()            # name=host:port of each instance's admin listener
RUN_REDIS=127.0.0.1:7000    # read here, never written to
RUN_MASTER=()               # where failover moves it: the command that prints HOST:PORT of it, instead of RUN_REDIS
RUN_KILL=()                 # the command that kills what a fault names: RUN_KILL FAULT
RUN_NGINX_LOG=              # nginx's access log, as this process can read it
RUN_ROOT=$LADDER_ROOT/runs  # where runs are kept
RUN_HISTORIES=              # where the instances write: <there>/<run>/history-<name>.jsonl
RUN_SCENARIO=               # a file of JMeter properties
RUN_PROPERTIES=()           # -Jname=value, which go before the file's
RUN_RESPONSE_MS=            # how long JMeter waits for an answer, unless the user says it; "": as the plan does
RUN_EXPECT=                 # results by comma that replace the judge's table, for experiments
RUN_POLICY=                 # more members of PUT /lock, as in ,"on_conflict":"fail"; "": none. See take_policy
RUN_TRIES=3                 # how often, at most, a row is fired whose runs are spoiled
RUN_AWAY_S=10               # so long instances are awaited that are away when the lock is switched
RUN_SHOWS_JMETER=           # yes: JMeter's progress is shown, not kept in jmeter.out

# What drive_row says back of the latest run:
RUN_FOLDER=
RUN_CODE=                   # the judge's exit code: 0 as expected, 1 not, 2 inconclusive

# ---- What is asked for ---------------------------------------------------------------------------

# run_property NAME DEFAULT: what the plan will see.
run_property() {
    jmeter_value "$1" "$2" "$RUN_SCENARIO" "${RUN_PROPERTIES[@]}"
}

run_items() {
    jmeter_items "$(run_property items phone)"
}

# How many requests; with loops=-1 nobody knows before: "".
run_requests() {
    local loops
    loops=$(run_property loops 1)
    ((loops < 0)) || printf '%s' $(($(run_property threads 1500) * loops))
}

# What parse_options reads of the shop's policies; then take_policy says what they ask for.
policy_options() {
    OPTIONS+=([--on-conflict]=on_conflict [--admit]=admit [--segments]=segments [--local-first]=local_first)
}

on_conflict='' admit='' segments='' local_first=''

policy_usage() {
    cat <<'USAGE'
  --on-conflict W switch to this first: wait, fail at once, or queue (default: what the shop has now). It stays so
  --admit A       and to this: off, RATE[,BURST] or window:RATE, in sales a second (default: what the shop has now)
  --segments S    and to this: N or naive:N, over how many keys a stock lies (default: what the shop has now)
  --local-first L and to this: on or off (default: what the shop has now)
USAGE
}

# take_policy: what the instances are switched to beside rung and way to write, into RUN_POLICY.
take_policy() {
    [[ -z $on_conflict ]] || one_of --on-conflict "$on_conflict" wait fail queue
    [[ -z $admit || $admit =~ ^(off|(window:)?[0-9]+(,[0-9]+)?)$ ]] ||
        fail "--admit: \"$admit\" is not off, RATE[,BURST] or window:RATE, as in 100,50"
    [[ -z $segments || $segments =~ ^(naive:)?[1-9][0-9]?$ ]] ||
        fail "--segments: \"$segments\" is not N or naive:N, as in 16"
    [[ -z $local_first ]] || one_of --local-first "$local_first" on off
    RUN_POLICY=${on_conflict:+,\"on_conflict\":\"$on_conflict\"}${admit:+,\"admit\":\"$admit\"}
    RUN_POLICY+=${segments:+,\"segments\":\"$segments\"}
    case $local_first in
    on) RUN_POLICY+=',"local_first":true' ;;
    off) RUN_POLICY+=',"local_first":false' ;;
    esac
}

# take_properties ARG...: -Jname=value into RUN_PROPERTIES; anything else is refused.
take_properties() {
    local arg
    for arg; do
        [[ $arg == -J?*=* ]] || refuse_rest "$arg"
        [[ ${arg%%=*} != -J@(host|port|admin_host|admin_port|admin_token_file) ]] ||
            fail "$arg: the load goes to the shop that --port names"
        RUN_PROPERTIES+=("$arg")
    done
}

run_auditor() {
    if [[ -x $LADDER_BUILD/audit/ladder-audit ]]; then
        printf '%s' "$LADDER_BUILD/audit/ladder-audit"
    else
        command -v ladder-audit ||
            fail "the judge, ladder-audit, is neither in $LADDER_BUILD/audit nor on PATH: build it first"
    fi
}

# check_expect: each word of RUN_EXPECT is one of the judge's results.
check_expect() {
    local auditor word results
    [[ -n $RUN_EXPECT ]] || return 0
    auditor=$(run_auditor)
    mapfile -t results < <("$auditor" --results)
    while read -r word; do
        one_of --expect "$word" "${results[@]}"
    done <<<"${RUN_EXPECT//,/$'\n'}"
}

# ---- What Redis holds ----------------------------------------------------------------------------

redis_ask() {
    local at=$RUN_REDIS
    ((${#RUN_MASTER[@]} == 0)) || at=$("${RUN_MASTER[@]}") || return
    timeout 20 redis-cli -h "${at%:*}" -p "${at##*:}" "$@"
}

redis_commands() {
    redis_ask info stats | sed -n 's/^total_commands_processed:\([0-9]*\).*/\1/p'
}

# One line of JSON: the stock, as a number, in a hash (--write cas) or over segments (--segments), what each of these
# has, its locks, and the entries of its queue. KEYS: those of stock and lock; ARGV[1]: how the others' keys begin.
REDIS_STOCK_LUA="local s, parts, locks = redis.pcall('GET', KEYS[1]), nil, {} if type(s) == 'table' then \
local n = tonumber(redis.pcall('HGET', KEYS[1], 'segments') or '') s = redis.pcall('HGET', KEYS[1], 'stock') \
if n then s, parts = 0, {} for i = 1, n do parts[i] = redis.pcall('GET', ARGV[1] .. ':segment:' .. i) \
s = s and tonumber(parts[i] or '') and s + parts[i] end s = s and string.format('%.0f', s) end end \
for i = 1, parts and #parts or 1 do local key = KEYS[2] .. (i > 1 and ':' .. i or '') \
locks[i] = {type = redis.call('TYPE', key).ok, pttl_ms = redis.call('PTTL', key)} end \
local queue = redis.pcall('XLEN', ARGV[1] .. ':queue') return cjson.encode({parts = parts, locks = locks, \
stock = type(s) == 'string' and s or '', queue = type(queue) == 'number' and queue or nil})"

# redis_state KEYS ITEM...: {"stock":{...},"locks":{...},"queues":{...}}, in one go. Of a stock over segments each has
# its lock; and "parts" tells what each has.
redis_state() {
    local keys=$1 item stock lock segments lines refused
    shift
    lines=$(for item; do
        stock="inventory:{$item}" lock="lock:{$item}" segments=$stock
        [[ $keys != article ]] || stock=inventory lock=redisLock segments='{inventory}'
        printf 'EVAL "%s" 2 %s %s %s\n' "$REDIS_STOCK_LUA" "$stock" "$lock" "$segments"
    done | redis_ask) || return
    if refused=$(grep --invert-match --max-count=1 '^{' <<<"$lines"); then
        say "Redis on $RUN_REDIS refuses to tell it: $refused"
        return 1
    fi
    jq --null-input --raw-input --compact-output '[inputs | fromjson] as $line
        | [$ARGS.positional | to_entries[]
           | {item: .value} + ($line[.key] // error("Redis gave too few answers"))]
        | {stock: map({(.item): (.stock | tonumber? // null)}) | add,
           queues: map({(.item): .queue}) | add,
           locks: map({(.item): (.locks | if length == 1 then .[0] else . end)}) | add}
          + (map(select(.parts) | {(.item): (.parts | map(tonumber? // null))}) | add
             | if . then {parts: .} else {} end)' \
        --args "$@" <<<"$lines"
}

# The commands that look are not counted: last before the load, first after it. Both fail when Redis
# does not answer; the caller says so.
redis_before() {
    local state commands
    state=$(redis_state "$@") && commands=$(redis_commands) || return
    with_commands "$commands" <<<"$state"
}

redis_after() {
    local state commands
    commands=$(redis_commands) && state=$(redis_state "$@") || return
    with_commands "$commands" <<<"$state"
}

with_commands() {
    jq --compact-output --argjson commands "$1" '.commands = $commands'
}

# write_redis_json FAULT BEFORE KEYS ITEM...: without `after` when Redis has ended: the judge says what is missing.
# Commands are not counted if another server may have served some of them.
write_redis_json() {
    local fault=$1 before=$2 after
    shift 2
    after=$(redis_after "$@") ||
        say "what Redis on $RUN_REDIS held after the run is not known"
    jq --null-input --compact-output --argjson before "$before" --argjson after "${after:-null}" --arg fault "$fault" \
        '{$before} + if $after then {$after} else {} end
            | if $fault == "none" then . else del(.[].commands) end' >"$RUN_FOLDER/redis.json"
}

# ---- One row -------------------------------------------------------------------------------------

# new_folder RUNG WRITE: makes runs/<time>-<rung>-<write>; two in one second wait for the next. If the
# script fails before something is in it, it does not stay; if it is told to stop, it says what stays.
new_folder() {
    [[ -n $RUN_FOLDER ]] || at_exit look_at_last_folder
    make_folder "$RUN_ROOT"
    wait_until 10 try_new_folder "$@" || fail "no new folder can be made in $RUN_ROOT"
}

try_new_folder() {
    RUN_FOLDER=$RUN_ROOT/$(date +%Y%m%d-%H%M%S)-$1-$2
    mkdir "$RUN_FOLDER" 2>/dev/null
}

# `code` is that of leave().
look_at_last_folder() {
    rmdir "$RUN_FOLDER" 2>/dev/null && return
    if ((code > 128)) && [[ -d $RUN_FOLDER && ! -e $RUN_FOLDER/verdict.json ]]; then
        say "the run was broken off and has no verdict: $RUN_FOLDER"
    fi
}

# switch_instance NAME=HOST:PORT RUNG WRITE RUN: sales in flight finish first.
switch_instance() {
    ask PUT "http://${1#*=}/lock" \
        "{\"rung\":\"$2\",\"write\":\"$3\",\"run\":\"$4\"$RUN_POLICY}" >/dev/null
}

# answer_s CONFIG: how long a switch may take: it waits for the sales in flight.
answer_s() {
    jq '[60, ((.wait_ms + .work_ms + 10 * .redis_timeout_ms) / 1000 | ceil) + 15] | max' <<<"$1"
}

# switch_lock RUNG WRITE RUN: on every instance.
switch_lock() {
    local instance ASK_AWAY_UNTIL=$((SECONDS + RUN_AWAY_S))
    for instance in "${RUN_INSTANCES[@]}"; do
        switch_instance "$instance" "$@" || fail "instance ${instance%%=*} did not switch to $1, $2"
    done
}

# set_stock STOCK ITEM...: by the operators' door, so that `before` shows what the load will find.
set_stock() {
    local stock=$1 item
    shift
    for item; do
        ask PUT "http://$RUN_OPERATORS/inventory/$item" "{\"stock\":$stock}" >/dev/null ||
            fail "the stock of $item could not be set"
    done
}

# write_env PROGRAM ADMIN_HOST:PORT
write_env() {
    printf 'commit %s\n' "${LADDER_COMMIT:-$(git -C "$LADDER_ROOT" describe --always --dirty \
        2>/dev/null || printf unknown)}"
    printf 'kernel %s\n' "$(uname -srm)"
    printf 'system %s\n' "$(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' /etc/os-release)"
    printf 'cores %s\n' "$(nproc)"
    printf 'memory %s\n' "$(sed -n 's/^MemTotal: *//p' /proc/meminfo)"
    printf '%s %s\n' "$1" "$(ask GET "http://$2/version" | tr -d '\n')"
    printf 'redis %s\n' "$(redis_ask info server | sed -n 's/^redis_version:\([^\r]*\).*/\1/p')"
    printf 'java %s\n' "$(java -version 2>&1 | head -n 1)"
    printf 'load %s\n' "$(cut -d ' ' -f 1-3 /proc/loadavg)"
}

# The clock of JMeter's samples, for the judge. They are off by a rounding to milliseconds and what
# JMeter's own clock drifts between two looks at the system's.
clients_clock() {
    jq --null-input --compact-output --arg boot "$(</proc/sys/kernel/random/boot_id)" \
        --arg namespace "$(readlink /proc/self/ns/time || printf none)" \
        '{boot_id: $boot, clock: "CLOCK_REALTIME", time_namespace: $namespace, slack_ms: 5}'
}

# write_run_json RUNG WRITE FAULT ITEMS_JSON: what was asked for; what the instances were told comes from
# themselves.
write_run_json() {
    local requests restocked=false
    requests=$(run_requests)
    [[ -n $requests ]] || requests=$(jmeter_sales "$RUN_FOLDER/sale.jtl")
    [[ $(run_property restock_every 0) == 0 ]] || restocked=true
    jq --compact-output --arg run "$(basename "$RUN_FOLDER")" --arg rung "$1" --arg write "$2" \
            --arg fault "$3" --argjson items "$4" --arg instances "${RUN_INSTANCES[*]%%=*}" \
            --argjson requests "$requests" --argjson quantity "$(run_property quantity 1)" \
            --arg scenario "$(basename "$RUN_SCENARIO" .properties)" --arg expect "$RUN_EXPECT" \
            --argjson setting "$RUN_SETTING" --argjson retries "$(run_property retries 0)" \
            --argjson restocked "$restocked" --argjson clients "$(clients_clock)" \
            '{run: $run, rung: $rung, write: $write, fault: $fault,
              on_conflict: ($setting.on_conflict // "wait"), local_first: ($setting.local_first // false),
              admit: ($setting.admit // "off"), segments: ($setting.segments // "1"),
              retries: $retries,
              instances: ($instances | split(" ")),
              workers: .workers, ttl_ms: .ttl_ms, work_ms: .work_ms, wait_ms: .wait_ms,
              keys: .keys, guard: "lock", items: $items, requests: $requests,
              quantity: $quantity, scenario: $scenario, min_share: 0.5,
              expect: (if $expect == "" then null else $expect | split(",") end),
              restocked: $restocked, fresh_keys: true, clients: $clients}' <<<"$RUN_CONFIG" >"$RUN_FOLDER/run.json"
}

# nginx writes a line after its answer: the last ones may come a moment after JMeter's end.
nginx_has_logged() {
    local lines
    lines=$(tail -c +"$1" "$RUN_NGINX_LOG" | wc -l)
    ((lines >= $2))
}

# take_histories RUNG WRITE: ends them by a switch to the run "idle", and puts them into the run's
# folder where they are not there already; those too that were moved aside, as history-a.jsonl.1. One
# that has died wrote no end: what it wrote is evidence all the same.
take_histories() {
    local run instance file ASK_AWAY_UNTIL=$((SECONDS + RUN_AWAY_S))
    run=$(basename "$RUN_FOLDER")
    for instance in "${RUN_INSTANCES[@]}"; do
        switch_instance "$instance" "$1" "$2" idle ||
            say "instance ${instance%%=*} did not end its history: the run is judged by what it wrote"
    done
    for instance in "${RUN_INSTANCES[@]}"; do
        for file in "$RUN_HISTORIES/$run/history-${instance%%=*}.jsonl"*; do
            if [[ -f $file && ! $file -ef $RUN_FOLDER/$(basename "$file") ]]; then
                mv "$file" "$RUN_FOLDER/"
            fi
        done
    done
    [[ $RUN_HISTORIES -ef $RUN_ROOT ]] || rmdir "$RUN_HISTORIES/$run" 2>/dev/null || true
}

# drive_row RUNG WRITE [FAULT]: one run; FAULT names the servers that are killed meanwhile. Sets RUN_FOLDER and
# RUN_CODE; ends the script when there is nothing to judge. Call it plainly, not in a condition, where bash would not
# stop at what fails in it.
drive_row() {
    local rung=$1 write=$2 fault=${3:-none} keys items before from
    run_auditor >/dev/null
    check_expect
    jmeter_check "$RUN_SCENARIO" "${RUN_PROPERTIES[@]}"
    [[ $(run_property keys false) != true || $write == atomic || $write == fenced ]] ||
        fail "keys=true needs a way to write that keeps keys, atomic or fenced; $write refuses them"
    mapfile -t items < <(run_items)
    RUN_CONFIG=$(ask GET "http://${RUN_INSTANCES[0]#*=}/config") ||
        fail "instance ${RUN_INSTANCES[0]%%=*} does not tell its settings"
    ASK_MAX_S=$(answer_s "$RUN_CONFIG")
    keys=$(jq --raw-output .keys <<<"$RUN_CONFIG")
    # Still under the old lock: the last load may have left a key of that type, and this waits for it.
    set_stock "$(run_property stock 1000)" "${items[@]}"
    new_folder "$rung" "$write"
    switch_lock "$rung" "$write" "$(basename "$RUN_FOLDER")"
    RUN_SETTING=$(ask GET "http://${RUN_INSTANCES[0]#*=}/lock") ||
        fail "instance ${RUN_INSTANCES[0]%%=*} does not tell its lock"
    before=$(redis_before "$keys" "${items[@]}") || fail "Redis on $RUN_REDIS does not tell what it holds"
    write_env inventoryd "${RUN_INSTANCES[0]#*=}" >"$RUN_FOLDER/env.txt"
    from=$(($(wc -c <"$RUN_NGINX_LOG") + 1))
    start_break "$fault" "$rung" "$keys" "${items[0]}" "$(run_property stock 1000)"
    fire
    end_break
    write_run_json "$rung" "$write" "$fault" "$(jq --compact-output .stock <<<"$before")"
    wait_until 3 nginx_has_logged "$from" $(($(wc -l <"$RUN_FOLDER/sale.jtl") - 1)) || true
    tail -c +"$from" "$RUN_NGINX_LOG" >"$RUN_FOLDER/nginx.log"
    take_histories "$rung" "$write"
    write_redis_json "$fault" "$before" "$keys" "${items[@]}"
    ln -sfn "$(basename "$RUN_FOLDER")" "$RUN_ROOT/latest"
    RUN_CODE=0
    "$(run_auditor)" "$RUN_FOLDER" >"$RUN_FOLDER/audit.out" 2>&1 || RUN_CODE=$?
    ((RUN_CODE <= 2)) || fail "the judge ended with $RUN_CODE: $(tail -n 3 "$RUN_FOLDER/audit.out")"
}

# JMeter's part of a run. The script's own words, if it is told to stop, go where they always go.
fire() {
    local code=0 limit=()
    [[ -z $RUN_RESPONSE_MS || -n $(run_property response_ms '') ]] || limit=("-Jresponse_ms=$RUN_RESPONSE_MS")
    attend fire_into "$RUN_FOLDER/jmeter.out" --scenario "$RUN_SCENARIO" --out "$RUN_FOLDER" --host "${RUN_HTTP%:*}" \
        --port "${RUN_HTTP##*:}" --operators "$RUN_OPERATORS" --token-file "$ASK_TOKEN_FILE" \
        "${limit[@]}" "${RUN_PROPERTIES[@]}" || code=$?
    if ((code != 0)); then
        [[ -n $RUN_SHOWS_JMETER ]] || tail -n 5 "$RUN_FOLDER/jmeter.out" >&2
        fail "there is nothing to judge. What JMeter left is in $RUN_FOLDER"
    fi
}

fire_into() {
    if [[ -n $RUN_SHOWS_JMETER ]]; then
        exec >&2
    else
        exec >"$1" 2>&1
    fi
    jmeter_run "${@:2}"
}

# ---- Several rows --------------------------------------------------------------------------------

# said_of_rungs SED: what rungs.json says, which has a line for each rung and each way to write. By sed, since
# --help and a slip are answered before anything is installed.
said_of_rungs() {
    sed --quiet "$1" "$LADDER_ROOT/docs/reference/rungs.json"
}

# The rungs, in learning order, a line each.
ladder_rungs() {
    said_of_rungs '/^"writes"/q; s/^{"name": "\([^"]*\)".*/\1/p'
}

# The ways to write, a line each.
ladder_writes() {
    said_of_rungs '1,/^"writes"/d; s/^{"name": "\([^"]*\)".*/\1/p'
}

# The names that mean a rung and a way to write together, a line each: NAME RUNG.
ladder_pairs() {
    said_of_rungs 's/^{"name": "\([^"]*\)".*"rung": "\([^"]\+\)".*/\1 \2/p'
}

# The rungs that give tokens, a line each.
ladder_tokens() {
    said_of_rungs 's/^{"name": "\([^"]*\)".*"tokens": true.*/\1/p'
}

# The rungs that a majority of several servers grants, a line each.
ladder_quorums() {
    said_of_rungs 's/^{"name": "\([^"]*\)".*"quorum": true.*/\1/p'
}

# The rungs of other engines, a line each: the engine has the rung's name.
ladder_engines() {
    said_of_rungs 's/^{"name": "\([^"]*\)".*"engine": "\1".*/\1/p'
}

# lock_servers_of RUNG:WRITE...: which servers beside the shop's Redis they keep their locks on, by comma: redis, for a
# majority of them; or an ensemble of an engine. "": none.
lock_servers_of() {
    local row quorums engines found=()
    quorums=$(ladder_quorums)
    engines=$(ladder_engines)
    for row; do
        row=${row%%:*}
        ! grep --quiet --line-regexp --fixed-strings "$row" <<<"$quorums" || found+=(redis)
        ! grep --quiet --line-regexp --fixed-strings "$row" <<<"$engines" || found+=("$row")
    done
    ((${#found[@]} == 0)) || printf '%s\n' "${found[@]}" | sort --unique | paste --serial --delimiters ,
}

# What --lock takes, a line each.
ladder_locks() {
    ladder_rungs
    ladder_pairs | cut -d ' ' -f 1
}

# rows_of LOCKS WRITES DEFAULT: RUNG:WRITE, a line each, of lists by comma. WRITES "": DEFAULT with a
# rung, its own with a name that means both.
rows_of() {
    local lock rung write ways known_locks known_writes with_tokens
    local -A rung_of=()
    mapfile -t known_locks < <(ladder_locks)
    mapfile -t known_writes < <(ladder_writes)
    mapfile -t with_tokens < <(ladder_tokens)
    while read -r write rung; do
        rung_of[$write]=$rung
    done < <(ladder_pairs)
    for lock in ${1//,/ }; do
        one_of --lock "$lock" "${known_locks[@]}"
        rung=${rung_of[$lock]:-}
        ways=${2:-${rung:+$lock}}
        ways=${ways:-$3}
        for write in ${ways//,/ }; do
            one_of --write "$write" "${known_writes[@]}"
            [[ -z $rung || $write == "$lock" ]] ||
                fail "--lock $lock is --lock $rung --write $lock: leave --write $write out, or take" \
                    "--lock $rung"
            [[ -z ${rung_of[$write]-} || " ${with_tokens[*]} " == *" ${rung:-$lock} "* ]] ||
                fail "--write $write needs a lock that gives tokens; $lock gives none, these do: ${with_tokens[*]}"
            printf '%s:%s\n' "${rung:-$lock}" "$write"
        done
    done
}

# The machine disturbed the run: nothing can be said of it. (Code 2 alone says so, too, of a rung of
# which nobody has written down what is expected.)
run_is_spoiled() {
    jq --exit-status '.result == "inconclusive"' "$RUN_FOLDER/verdict.json" >/dev/null
}

# drive_rows RUNG:WRITE[:FAULT]...: one run each, again when it was spoiled, then their table. What a fault has killed
# stays dead, so a row with one is fired once. Sets RUN_CODE: 0 each row did what the ladder says, 1 one did not, 2 one
# is inconclusive. Call it plainly, as drive_row.
drive_rows() {
    local row rung write fault try requests folders=() agreed=0 worst=0
    requests=$(run_requests)
    for row; do
        IFS=: read -r rung write fault <<<"$row"
        say "row $((${#folders[@]} + 1)) of $#: $rung, $write${fault:+, $fault}" \
            "${requests:+($requests requests, about $((6 + requests / 150)) s)}"
        drive_row "$rung" "$write" "$fault"
        for ((try = 1; try < RUN_TRIES && RUN_CODE == 2; try++)); do
            [[ -z $fault ]] || break
            run_is_spoiled || break
            say "    try $try of $RUN_TRIES was spoiled: $(tail -n 20 "$RUN_FOLDER/audit.out")"
            drive_row "$rung" "$write"
        done
        say "    $(tail -n $((RUN_CODE == 0 ? 1 : 20)) "$RUN_FOLDER/audit.out")"
        folders+=("$RUN_FOLDER")
        # A row that is wrong weighs more than one that cannot be judged.
        case $RUN_CODE/$worst in
        0/*) agreed=$((agreed + 1)) ;;
        1/* | 2/0) worst=$RUN_CODE ;;
        esac
    done
    print_table "${folders[@]}"
    print_folders "${folders[@]}"
    printf '\n%s of %s rows did what the ladder says.\n' "$agreed" "$#"
    RUN_CODE=$worst
}

print_table() {
    local folder
    "$(run_auditor)" --head
    for folder; do
        "$(run_auditor)" --row "$folder" || true
    done
}

print_folders() {
    local folder
    printf '\nEach folder holds the picture (timeline.svg) and JMeter'\''s dashboard/index.html:\n'
    for folder; do
        printf '  %s\n' "$(realpath --relative-base=. "$folder")"
    done
}
