# shellcheck shell=bash disable=SC2034 # used by those who source it
# Sourced by the scripts of this folder: the root of the tree, the tools that ci/setup put into build/tools, and helpers.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
logs=$root/build/logs
tools=$root/build/tools
venv=$root/build/peers/venv
export PATH="$tools/bin:$PATH"
export CMAKE_GENERATOR=Ninja # also for the projects that tests make; make need not be there
# clang-format and clang-tidy change their minds from version to version; this is the one the tree is kept with.
readonly clang_tools_version=14.0.6

# clang_tool NAME: the program NAME (clang-format, clang-tidy) in that version; fails if there is none.
clang_tool() {
    local major=${clang_tools_version%%.*} program
    for program in "$1" "$1-$major"; do
        if command -v "$program" >/dev/null 2>&1 && [[ $("$program" --version) == *"version $major."* ]]; then
            printf '%s\n' "$program"
            return
        fi
    done
    return 1
}

# say TEXT...: a line of progress.
say() {
    printf '%s\n' "$*"
}

# version_at_least WANTED FOUND
version_at_least() {
    [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]
}
