# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Asks the instances' admin listeners. Needs common.sh. The caller says:
ASK_MAX_S=60    # how long an answer may take
ASK_TOKEN_FILE= # its first line is the operators' token; "": they need none
ASK_AWAY_UNTIL=0 # until these SECONDS one that is away is asked again: scripts/shop restart may be replacing it

# need_token: the file can be read, before anything is asked.
need_token() {
    [[ -z $ASK_TOKEN_FILE || -f $ASK_TOKEN_FILE && -r $ASK_TOKEN_FILE ]] ||
        fail "the operators' token is not in $ASK_TOKEN_FILE: it is no file that can be read"
}

# bearer: the operators' token as a header, for curl --header @FILE: as an argument it would be visible in ps.
bearer() {
    local token=
    [[ -n $ASK_TOKEN_FILE ]] || return 0
    IFS= read -r token <"$ASK_TOKEN_FILE" || [[ -n $token ]] || fail "there is no token in $ASK_TOKEN_FILE"
    printf 'Authorization: Bearer %s\n' "${token%$'\r'}"
}

# is_away CODE: curl's exit code says that nobody listens, or that who listened has just ended.
is_away() {
    [[ $1 == @(7|52|55|56) ]]
}

# reason_in ANSWER: the detail of the problem in it (RFC 9457); without one all of it.
reason_in() {
    grep '^{' <<<"$1" | jq --exit-status --raw-output '.detail // empty' 2>/dev/null || printf '%s' "$1"
}

# ask METHOD URL [BODY]: of operators; prints the answer. A refusal is told with its reason.
ask() {
    local body code
    until body=$(curl --silent --show-error --fail-with-body --max-time "$ASK_MAX_S" --request "$1" \
        --header @<(bearer) ${3:+--data-binary "$3" --header 'Content-Type: application/json'} "$2" 2>&1); do
        code=$?
        if ! is_away "$code" || ((SECONDS >= ASK_AWAY_UNTIL)); then
            say "$1 $2${3:+ $3}: $(reason_in "$body")"
            return 1
        fi
        sleep 0.2
    done
    printf '%s' "$body"
}
