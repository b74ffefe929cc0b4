# Shared by the scripts of this folder: messages, missing Debian packages, configuring a build folder.
# Knows nothing of tests or benchmarks. Sourced by bash scripts that have set `set -euo pipefail` and `repository`.
# shellcheck shell=bash

# Packages of Debian 12: a build needs these,
needed_packages=(g++ meson ninja-build pkg-config libhwy-dev libfmt-dev nlohmann-json3-dev libsodium-dev libcli11-dev)
# and has less without these (catch2: no tests).
optional_packages=(libhwloc-dev libucx-dev libfabric-dev libcpp-httplib-dev catch2)
build_packages=("${needed_packages[@]}" "${optional_packages[@]}")

say() { printf '== %s\n' "$*"; }

die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# missing_packages PACKAGE...: prints those that are not there. A tool counts, wherever it comes from (pip, a module).
missing_packages() {
  local package program
  for package in "$@"; do
    case $package in
      ninja-build) program=ninja ;;
      g++) program=${CXX:-g++} ;;
      *) program=$package ;;
    esac
    case $package in
      g++ | meson | ninja-build | pkg-config)
        # shellcheck disable=SC2086 # CXX may be two words, such as "ccache g++"
        if command -v ${program%% *} >/dev/null; then continue; fi
        ;;
    esac
    # shellcheck disable=SC2016 # the dollar sign belongs to dpkg-query
    dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || printf '%s\n' "$package"
  done
}

# may_install: is this root, or is there a sudo that asks for nothing?
may_install() {
  command -v apt-get >/dev/null || return 1
  [ "$(id -u)" -eq 0 ] || { command -v sudo >/dev/null && sudo -n true 2>/dev/null; }
}

# install_missing PACKAGE...: installs what is not there yet and touches neither network nor package lists otherwise.
install_missing() {
  local missing privilege=()
  if ! command -v dpkg-query >/dev/null; then
    say "not a Debian system: taking for granted what these Debian packages hold: $*"
    return 0
  fi
  mapfile -t missing < <(missing_packages "$@")
  if [ ${#missing[@]} -eq 0 ]; then return 0; fi
  command -v apt-get >/dev/null || die "these packages are missing and there is no apt-get: ${missing[*]}"
  may_install || die "these packages are missing and only root can install them; run
  sudo apt-get install --no-install-recommends ${missing[*]}
and start this again"
  if [ "$(id -u)" -ne 0 ]; then privilege=(sudo -n); fi
  say "installing ${#missing[@]} packages and those they need, a minute or two: ${missing[*]}"
  "${privilege[@]}" apt-get -qq update || die "apt-get update failed: no package mirror answers.
Look at the network and /etc/apt/sources.list, or install by hand: ${missing[*]}"
  "${privilege[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
    -o Dpkg::Use-Pty=0 "${missing[@]}" >/dev/null || die "apt-get could not install ${missing[*]}; its own message is above"
}

# CPUs that this process may run on; unlike a bare nproc it does not look at OpenMP's variables.
allowed_cpus() { env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc; }

# Is there a ccache that can keep something? One that cannot write fails every compilation.
has_ccache() {
  local folder
  command -v ccache >/dev/null || return 1
  folder=$(ccache --get-config cache_dir 2>/dev/null) || return 1
  mkdir -p "$folder" 2>/dev/null && [ -w "$folder" ]
}

# configure FOLDER OPTION...: sets a build folder up, or gives an existing one these options.
# The compiler is fixed at the first call for a folder, from CXX.
configure() {
  local folder=$1
  shift
  if [ -f "$folder/build.ninja" ]; then
    if [ $# -gt 0 ]; then meson configure "$folder" "$@"; fi
  else
    # Meson looks for ccache only where CXX is not set. Without ccache, headers are compiled once instead, and ten sources of a target together.
    if ! has_ccache; then
      local -x CXX="${CXX:-c++}"
      set -- -Dprecompiled=true -Dunity=on -Dunity_size=10 "$@"
    elif [ -n "${CXX:-}" ]; then
      local -x CXX="ccache $CXX"
    fi
    # Meson asks dpkg-architecture (dpkg-dev) for Debian's folder of libraries. Without it, it takes lib64, where neither Debian's loader nor its
    # CMake looks.
    local multiarch=
    command -v dpkg-architecture >/dev/null || multiarch=$(gcc -print-multiarch 2>/dev/null) || true
    if [ -n "$multiarch" ]; then set -- "-Dlibdir=lib/$multiarch" "$@"; fi
    meson setup "$folder" "$repository" "$@"
  fi
}
