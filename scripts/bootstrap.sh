#!/usr/bin/env bash
# Installs what is missing for the given jobs: build, test, lint (none: build). A second run finds everything and
# touches neither apt nor the network.
set -euo pipefail
cd "$(dirname "$0")/.."

packages_for() {
    case "$1" in
    build) echo "gcc libc6-dev cmake ninja-build make pkg-config libjansson-dev libpcre2-dev libutf8proc-dev libxxhash-dev libcmocka-dev" ;;
    test) echo "python3 python3-venv" ;;
    lint) echo "clang-19 clang-format-19 clang-tidy-19 libclang-rt-19-dev codespell shellcheck git python3" ;;
    *)
        echo "bootstrap.sh: unknown job \"$1\"; jobs are build, test, lint" >&2
        exit 2
        ;;
    esac
}

missing=()
for job in "${@:-build}"; do
    for package in $(packages_for "$job"); do
        if ! dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed'; then
            missing+=("$package")
        fi
    done
done

if [ ${#missing[@]} -gt 0 ]; then
    echo "bootstrap.sh: installing ${missing[*]}"
    as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        as_root=(sudo)
    fi
    export DEBIAN_FRONTEND=noninteractive
    "${as_root[@]}" apt-get update -qq
    "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

# The Python packages of the tests, renewed when the list changes.
for job in "${@:-build}"; do
    if [ "$job" = test ] && ! cmp -s tests/requirements.txt .venv/requirements.txt; then
        echo "bootstrap.sh: making .venv"
        rm -rf .venv
        /usr/bin/python3 -m venv .venv
        .venv/bin/python -m pip install -q --disable-pip-version-check -r tests/requirements.txt
        cp tests/requirements.txt .venv/requirements.txt
    fi
done
