#!/bin/bash
# Makes a virtual environment with the real Mooncake engine in it, the peer that the tests of this folder talk to.
#
#   install.sh [--check] [DIR]        DIR defaults to build/peers/venv below the current folder
#
# Prints "mooncake VERSION DIR/bin/python" as its last line. Safe to run again: what is there is kept. With --check it
# changes and prints nothing; its status says whether all is there. The system
# libraries that the wheel loads (libibverbs1, libnuma1, libcurl4) and python3-venv are installed by ci/setup peers.
# PYTHON chooses the interpreter (3.10 to 3.13 have wheels).
set -euo pipefail

readonly package=mooncake-transfer-engine-non-cuda version=0.3.13.post1 numpy='numpy>=1.23,<3'
check=0
if [ "${1:-}" = --check ]; then
    check=1
    shift
fi
dir=${1:-build/peers/venv}
python=${PYTHON:-python3}
stamp="$package==$version $numpy"

is_there() {
    [ "$(cat "$dir/.installed" 2>/dev/null)" = "$stamp" ] && "$dir/bin/python" -c '' 2>/dev/null
}

if [ $check = 1 ]; then
    is_there
    exit
fi
if ! is_there; then
    echo "installing $package $version into $dir" >&2
    rm -rf "$dir"
    "$python" -m venv "$dir"
    "$dir/bin/python" -m pip install --quiet --disable-pip-version-check "$package==$version" "$numpy" >&2
    "$dir/bin/python" -c 'import mooncake.engine, numpy' >/dev/null
    echo "$stamp" >"$dir/.installed"
fi
echo "mooncake $version $dir/bin/python"
