# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# JMeter: which one, how to fetch one, how to run the plan. Needs common.sh.
#
#   JMETER_HOME, when set, is used or refused; else the one that scripts/setup fetched; else a
#   `jmeter` of JMETER_LEAST or later on PATH.

JMETER_PLAN=$LADDER_ROOT/jmeter/sale.jmx
JMETER_LEAST=5.6
JMETER_FETCHED=$LADDER_CACHE/jmeter
# Small stacks for 1500 threads. The quick compiler alone: a burst is over before the thorough one
# pays, which doubled JMeter's share of the machine. Preferences that JMeter would leave in the
# user's home stay in the cache.
JMETER_JVM=(-Xss256k -XX:TieredStopAtLevel=1 "-Djava.util.prefs.userRoot=$LADDER_CACHE/java")
JMETER_HEAP=(-Xms256m -Xmx1g)

# What the plan knows, and which values make sense.
JMETER_PROPERTIES='host port admin_host admin_port admin_token_file items stock threads loops
    quantity look_first meet_every_loop pace duration restock_every keys repeat_percent retries retry_ms
    retry_random_ms outcome_wait outcome_asks response_ms'

# ---- Which one -----------------------------------------------------------------------------------

# jmeter_command: prints the command that runs JMeter, a word a line; fails with a sentence.
jmeter_command() {
    local words
    if [[ -n ${JMETER_HOME:-} ]]; then
        [[ -f $JMETER_HOME/bin/ApacheJMeter.jar ]] ||
            fail "JMETER_HOME is $JMETER_HOME, but there is no bin/ApacheJMeter.jar in it: name the" \
                "folder of a JMeter of $JMETER_LEAST or later, or unset it"
        words=$(jmeter_words_of_home "$JMETER_HOME")
        jmeter_serves "$words" ||
            fail "JMETER_HOME is $JMETER_HOME, which is not a JMeter of $JMETER_LEAST or later that" \
                "runs: name another, or unset it"
    elif [[ -f $JMETER_FETCHED/bin/ApacheJMeter.jar ]]; then
        words=$(jmeter_words_of_home "$JMETER_FETCHED")
    elif command -v jmeter >/dev/null && words=$(jmeter_words_of_path) && jmeter_serves "$words"; then
        :
    else
        fail "there is no JMeter: scripts/setup --for run fetches it, or set JMETER_HOME"
    fi
    printf '%s\n' "$words"
}

jmeter_words_of_home() {
    printf '%s\n' java "${JMETER_HEAP[@]}" "${JMETER_JVM[@]}" -jar "$1/bin/ApacheJMeter.jar"
}

jmeter_words_of_path() {
    printf '%s\n' env "HEAP=${JMETER_HEAP[*]}" "JVM_ARGS=${JMETER_JVM[*]}" "$(command -v jmeter)"
}

# jmeter_is_there: nothing needs fetching. A JMETER_HOME that does not serve is refused; before Java
# is there it cannot be asked.
jmeter_is_there() {
    if [[ -n ${JMETER_HOME:-} ]]; then
        ! command -v java >/dev/null || jmeter_command >/dev/null
    elif [[ -e $JMETER_FETCHED ]]; then
        jmeter_is_whole "$JMETER_FETCHED"
    else
        (jmeter_command >/dev/null 2>&1)
    fi
}

# jmeter_serves WORDS: it runs and is not older than JMETER_LEAST. It stays in the group that a signal ends.
jmeter_serves() {
    local words version
    mapfile -t words <<<"$1"
    version=$(timeout --foreground 180 "${words[@]}" --version --jmeterlogfile /dev/null 2>/dev/null |
        grep -oE '[0-9]+\.[0-9]+(\.[0-9]+)*' | head -n 1) || return 1
    printf '%s\n' "$JMETER_LEAST" "$version" | sort --version-sort --check=quiet
}

# ---- Fetching ------------------------------------------------------------------------------------

# jmeter_is_whole HOME: every file that jmeter/pom.xml gathers is there, byte for byte.
jmeter_is_whole() {
    [[ -d $1 ]] && (cd "$1" && sha256sum --check --quiet --strict "$LADDER_ROOT/jmeter/SHA256SUMS") \
        >/dev/null 2>&1
}

# jmeter_fetch HOME: from Maven Central. It appears under its name when it is complete and checked.
# What was loaded before a failure is kept beside it, so that the next try goes on from there.
jmeter_fetch() {
    local home=$1 part=$1.part log=$1.log version
    need java mvn sha256sum flock
    version=$(sed -n 's|.*<jmeter>\(.*\)</jmeter>.*|\1|p' "$LADDER_ROOT/jmeter/pom.xml")
    mkdir -p "$(dirname "$home")"
    exec 8>"$home.guard"
    flock --wait 600 8 || fail "another fetch of JMeter has held $home.guard for ten minutes"
    if ! jmeter_is_whole "$home"; then
        say "fetching JMeter $version from Maven Central into $home (75 MB, about half a minute)"
        rm -rf "$part"
        attend jmeter_gather "$part" "$home.maven" "$log" || jmeter_explain_fetch "$log"
        mkdir -p "$part/lib/junit"
        if ! jmeter_is_whole "$part"; then
            rm -rf "$part" "$home.maven"
            fail "JMeter was fetched, but is not what jmeter/SHA256SUMS says. It was thrown away:" \
                "try again, or, after a change of jmeter/pom.xml, make that file anew"
        fi
        rm -rf "$home"
        mv "$part" "$home"
        rm -rf "$home.maven" "$log"
        say "JMeter $version is complete and checked"
    fi
    exec 8>&-
}

# jmeter_gather HOME REPOSITORY LOG: strict checksums; no wait for a silent server is longer than a
# minute (Maven's own limit is half an hour).
jmeter_gather() {
    mvn --batch-mode --strict-checksums --update-snapshots --file "$LADDER_ROOT/jmeter/pom.xml" \
        "-Dhome=$1" "-Dmaven.repo.local=$2" -Daether.connector.connectTimeout=20000 \
        -Daether.connector.requestTimeout=60000 package 2>&1 8>&- |
        tee "$3" | jmeter_show_progress
}

jmeter_show_progress() {
    local line jars=0
    while IFS= read -r line; do
        [[ $line == *"Downloaded from "*.jar\ * ]] || continue
        jars=$((jars + 1))
        ((jars % 30)) || say "  $jars jars"
    done
}

jmeter_explain_fetch() {
    local why
    why=$(grep -m 1 'Could not .* -> \[Help' "$1" |
        sed -e 's/^\[ERROR\] *//' -e 's/ -> \[Help.*//' -e 's/.* column [0-9]*: //') || why="see $1"
    fail "JMeter could not be fetched from Maven Central: $why." \
        "Is there a network? A proxy or a mirror is told to Maven in ~/.m2/settings.xml. Without" \
        "one, set JMETER_HOME to a JMeter of $JMETER_LEAST or later. The whole log is $1"
}

# ---- Running the plan ----------------------------------------------------------------------------

# jmeter_items VALUE: the names that the property `items` stands for, a line each. A number is
# short for so many phones: 1 is phone, 20 is phone-01 ... phone-20.
jmeter_items() {
    local names name
    [[ -n $1 ]] || fail 'items is empty: it must be a number, or names by comma'
    if [[ $1 =~ ^[0-9]+$ ]]; then
        whole_number items "$1" 1 999
        if (($1 == 1)); then
            printf 'phone\n'
        else
            seq --format "phone-%0$((${#1} > 2 ? ${#1} : 2))g" 1 "$1"
        fi
        return
    fi
    IFS=, read -ra names <<<"$1"
    for name in "${names[@]}"; do
        [[ $name =~ ^[a-z0-9_-]{1,64}$ ]] ||
            fail "items is \"$1\": it must be a number, or names by comma, each 1 to 64 of a-z 0-9 _ -"
        printf '%s\n' "$name"
    done
}

# jmeter_value NAME DEFAULT SCENARIO [-Jname=value ...]: what JMeter will see; the last one counts.
jmeter_value() {
    local name=$1 value=$2 scenario=$3 word found
    shift 3
    found=$(sed -n "s/^[ ]*${name}[ ]*=[ ]*//p" "$scenario" | tail -n 1 | tr -d '\r')
    value=${found:-$value}
    for word; do
        [[ $word != "-J$name="* ]] || value=${word#*=}
    done
    printf '%s' "$value"
}

# jmeter_check SCENARIO [-Jname=value ...]: JMeter takes any text and makes 0 of what is no number,
# so what does not fit is refused here.
jmeter_check() {
    local name names value word
    names=$(sed -n 's/^[ ]*\([^#!= ][^= ]*\)[ ]*=.*/\1/p' "$1")
    for word in "${@:2}"; do
        names+=" ${word:2}"
    done
    for name in $names; do
        name=${name%%=*}
        # A name with a dot is one of JMeter's own.
        [[ $name == *.* || " ${JMETER_PROPERTIES//$'\n'/ } " == *" $name "* ]] ||
            fail "the plan has no property \"$name\". It has:" \
                "$(tr --squeeze-repeats ' \n' ' ' <<<"$JMETER_PROPERTIES")"
    done
    jmeter_items "$(jmeter_value items phone "$@")" >/dev/null
    jmeter_number stock 0 999999999 1000 "$@"
    jmeter_number threads 1 20000 1500 "$@"
    jmeter_number quantity 1 1000000 1 "$@"
    jmeter_number pace 0 600000 0 "$@"
    jmeter_number duration 1 86400 3600 "$@"
    jmeter_number restock_every 0 3600 0 "$@"
    jmeter_number repeat_percent 0 100 0 "$@"
    jmeter_number retries 0 1000000 0 "$@"
    jmeter_number retry_ms 0 60000 50 "$@"
    jmeter_number retry_random_ms 0 60000 100 "$@"
    jmeter_number outcome_wait 0 30 10 "$@"
    jmeter_number outcome_asks 0 100000 60 "$@"
    jmeter_number response_ms 1000 3600000 50000 "$@"
    one_of look_first "$(jmeter_value look_first true "$@")" true false
    one_of keys "$(jmeter_value keys false "$@")" true false
    [[ $(jmeter_value keys false "$@") == true || $(jmeter_value repeat_percent 0 "$@") == 0 ]] ||
        fail "repeat_percent sends sales again with their keys: it needs keys=true"
    one_of meet_every_loop "$(jmeter_value meet_every_loop false "$@")" true false
    value=$(jmeter_value loops 1 "$@")
    if [[ $value == -1 ]]; then
        [[ -n $(jmeter_value duration '' "$@") ]] ||
            fail "loops is -1, for as long as \"duration\" says: give a duration in seconds"
    else
        [[ $value != -* ]] || fail "loops is \"$value\": it must be a whole number from 1, or -1"
        whole_number loops "$value" 1 1000000
        [[ $(jmeter_value restock_every 0 "$@") == 0 ]] ||
            fail "restock_every goes on until \"duration\" is over: it needs loops=-1"
    fi
}

# jmeter_number NAME MIN MAX DEFAULT SCENARIO [-Jname=value ...]
jmeter_number() {
    whole_number "$1" "$(jmeter_value "$1" "$4" "${@:5}")" "$2" "$3"
}

# jmeter_fire PLAN RESULTS SCENARIO -Jname=value...: JMeter's exit code; without a JMeter the script ends. It leaves the
# file RESULTS, and jmeter.log and dashboard/ beside it. Its progress goes to standard error.
jmeter_fire() {
    local plan=$1 results=$2 scenario=$3 out words
    out=$(dirname "$results")
    words=$(jmeter_command) || exit 2
    mapfile -t words <<<"$words"
    mkdir -p "$out" "$LADDER_CACHE/java/.java/.userPrefs" # Java would tell that it made it
    "${words[@]}" --nongui --testfile "$plan" \
        --jmeterlogconf "$LADDER_ROOT/jmeter/log4j2.xml" --jmeterlogfile "$out/jmeter.log" \
        --addprop "$LADDER_ROOT/jmeter/user.properties" --addprop "$scenario" "${@:4}" \
        --forceDeleteResultFile --logfile "$results" \
        --reportatendofloadtests --reportoutputfolder "$out/dashboard" >&2
}

# jmeter_run --scenario FILE --out DIR --host H --port P [--operators HOST:PORT] [--token-file FILE]
#            [-Jname=value ...]
# Leaves DIR/sale.jtl, DIR/jmeter.log and DIR/dashboard/; JMeter's progress goes to standard error.
# Fails with a sentence when JMeter broke or the load was not what was asked for; whether the shop
# sold rightly is the judge's to say.
jmeter_run() {
    local scenario='' out='' host='' port='' operators=127.0.0.1:8889 token_file='' extra=()
    local items code=0
    while (($#)); do
        case $1 in
        --scenario) scenario=$(option_value "$@") ;;
        --out) out=$(option_value "$@") ;;
        --host) host=$(option_value "$@") ;;
        --port) port=$(option_value "$@") ;;
        --operators) operators=$(option_value "$@") ;;
        --token-file) token_file=${2-} ;;
        -J?*=*)
            extra+=("$1")
            shift
            continue
            ;;
        *) fail "jmeter_run: \"$1\" is not understood" ;;
        esac
        shift 2
    done
    [[ -n $out && -n $host && -n $port ]] || fail "jmeter_run needs --scenario, --out, --host, --port"
    [[ -r $scenario ]] || fail "the scenario \"$scenario\" cannot be read; there are:" \
        "$(cd "$LADDER_ROOT/jmeter/scenarios" && printf '%s ' *.properties)"
    whole_number --port "$port" 1 65535
    whole_number "--operators' port" "${operators##*:}" 1 65535
    [[ -z $token_file || -r $token_file ]] || fail "--token-file: $token_file cannot be read"
    jmeter_check "$scenario" "${extra[@]}"
    items=$(jmeter_items "$(jmeter_value items phone "$scenario" "${extra[@]}")" | paste -s -d ,)
    jmeter_fire "$JMETER_PLAN" "$out/sale.jtl" "$scenario" "${extra[@]}" \
        "-Jitems=$items" "-Jhost=$host" "-Jport=$port" "-Jadmin_host=${operators%:*}" \
        "-Jadmin_port=${operators##*:}" "-Jadmin_token_file=${token_file:-/dev/null}" || code=$?
    jmeter_judge_run "$code" "$out" "$scenario" "${extra[@]}"
}

# jmeter_sales FILE: how many sales were asked for. One that was sent again with its key is the
# same.
jmeter_sales() {
    grep --count --extended-regexp '^[0-9]+,[0-9]+,POST sale,' "$1"
}

# jmeter_say_counts DIR: what JMeter's last summary adds up, by request. A buyer looks and then buys, so it counts
# about twice as many requests as buyers. An error is no answer, or another status than the plan expects.
jmeter_say_counts() {
    local statistics=$1/dashboard/statistics.json
    [[ -f $statistics ]] || return 0
    say "JMeter's summary counts every request: $(jq --raw-output '
        [to_entries | sort_by(-.value.sampleCount, .key)[] | select(.key != "Total") |
         "\(.value.sampleCount) \(.key) (\(.value.errorCount) errors)"] | join(", ")' "$statistics")"
}

# jmeter_judge_run CODE DIR SCENARIO [-Jname=value ...]: was it the load that was asked for?
jmeter_judge_run() {
    local code=$1 out=$2 asked loops rows first
    shift 2
    rows=0
    [[ ! -f $out/sale.jtl ]] || rows=$(jmeter_sales "$out/sale.jtl") || true
    if ((rows == 0)); then
        first=$(awk -F , 'NR > 1 && $8 != "true" {print $3 ": " $4 ", " $5; exit}' "$out/sale.jtl" 2>/dev/null |
            sed 's/Non HTTP response code: [^,]*, Non HTTP response message: //') || true
        say "$PROGRAM: JMeter (exit code $code) sent no sale${first:+: $first}. See $out/jmeter.log"
        return 1
    fi
    if ((code != 0)); then
        say "$PROGRAM: JMeter ended with code $code. See $out/jmeter.log"
        return 1
    fi
    loops=$(jmeter_value loops 1 "$@")
    asked=$(($(jmeter_value threads 1500 "$@") * loops))
    if ((loops > 0 && rows != asked)); then
        say "$PROGRAM: JMeter sent $rows sales, asked for were $asked. See $out/jmeter.log"
        return 1
    fi
}
