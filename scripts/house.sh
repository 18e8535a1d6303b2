#!/usr/bin/env bash
# House rules that no linter knows: a list of short greps over the files of the checkout, each with its reason.
set -euo pipefail
# The last part of a pipe runs in this shell, so that rule can remember a find.
shopt -s lastpipe
cd "$(dirname "${BASH_SOURCE[0]}")/.."

broken=0

# rule REASON: prints the reason and the finds that come in, if any.
rule() {
  local finds
  finds=$(cat)
  [[ -z $finds ]] && return
  broken=1
  printf 'house: %s\n%s\n' "$1" "$finds" >&2
}

# search PATTERN FILE...: the matches, and no failure where there are none.
search() { [[ $# -lt 2 ]] || grep -nHE "$@" || true; }

mapfile -t all < <(git ls-files --cached --others --exclude-standard | grep -v '^scripts/house\.sh$' | while read -r f; do [[ -f $f ]] && echo "$f"; done)
mapfile -t code < <(printf '%s\n' "${all[@]}" | grep '\.go$')
mapfile -t tests < <(printf '%s\n' "${code[@]}" | grep '_test\.go$')
mapfile -t shipped < <(printf '%s\n' "${code[@]}" | grep -v '_test\.go$')
mapfile -t modules < <(printf '%s\n' "${all[@]}" | grep 'go\.mod$')

search '(^|[^[:alnum:]_.$}])/(home|root|Users)/' "${all[@]}" |
  rule "a path of one machine is wrong on every other"
search '\b(TODO|FIXME|XXX)\b' "${code[@]}" | { grep -vE 'TODO\(#[0-9]+\): ' || true; } |
  rule "a TODO names its issue, TODO(#123): ..., or is done now"
printf '%s\n' "${code[@]}" | { grep -E '(^|/)(utils?|types|common|helpers?|interfaces|misc)(_test)?\.go$' || true; } |
  rule "a file is named for its subject"
search '^replace ' "${modules[@]}" |
  rule "what we ship is what its authors released"
search '"(github\.com/stretchr/testify|gotest\.tools)' "${code[@]}" |
  rule "tests are plain testing and go-cmp"
for f in "${tests[@]}"; do grep -q '"testing/synctest"' "$f" || search '\btime\.Sleep\(' "$f"; done |
  rule "a test waits for an event, or sleeps in a synctest bubble"
for f in "${shipped[@]}"; do n=$(wc -l <"$f"); [[ $n -le 500 ]] || echo "$f: $n lines"; done |
  rule "a file of more than 500 lines has more than one subject"
for f in "${tests[@]}"; do n=$(wc -l <"$f"); [[ $n -le 800 ]] || echo "$f: $n lines"; done |
  rule "a test file of more than 800 lines has more than one subject"
for f in "${all[@]}"; do [[ $(wc -c <"$f") -le 1000000 ]] || echo "$f"; done |
  rule "a file of more than a million bytes is no source"
for f in .ci/run scripts/*.sh; do bash -n "$f" && [[ -x $f ]] || echo "$f"; done |
  rule "a script parses and can be executed"

exit "$broken"
