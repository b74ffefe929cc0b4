# Shared by the scripts of this folder: messages, missing Debian packages, configuring a build folder.
# Knows nothing of tests or benchmarks. Sourced by bash scripts that have set `set -euo pipefail` and `repository`.
# shellcheck shell=bash

# Packages of Debian 12 for building tutti and configuring its tests.
build_packages=(g++ meson ninja-build pkg-config libhwy-dev libfmt-dev nlohmann-json3-dev libsodium-dev
  libhwloc-dev libucx-dev libfabric-dev libcpp-httplib-dev libcli11-dev catch2)

say() { printf '== %s\n' "$*"; }

die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# install_missing PACKAGE...: installs what is not there yet and touches neither network nor package lists otherwise.
install_missing() {
  local missing=() package privilege=()
  if ! command -v dpkg-query >/dev/null; then
    say "not a Debian system: taking for granted what these Debian packages hold: $*"
    return 0
  fi
  for package in "$@"; do
    # shellcheck disable=SC2016 # the dollar sign belongs to dpkg-query
    dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
  done
  if [ ${#missing[@]} -eq 0 ]; then return 0; fi
  if [ "$(id -u)" -ne 0 ]; then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
      privilege=(sudo -n)
    else
      die "these packages are missing and only root can install them; run
  sudo apt-get install --no-install-recommends ${missing[*]}
and start this again"
    fi
  fi
  command -v apt-get >/dev/null || die "these packages are missing and there is no apt-get: ${missing[*]}"
  say "installing ${missing[*]}"
  "${privilege[@]}" apt-get -qq update || die "apt-get update failed; is there a package mirror?"
  "${privilege[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
    -o Dpkg::Use-Pty=0 "${missing[@]}" >/dev/null || die "apt-get could not install ${missing[*]}"
}

# CPUs that this process may run on; unlike a bare nproc it does not look at OpenMP's variables.
allowed_cpus() { env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc; }

# configure FOLDER OPTION...: sets a build folder up, or gives an existing one these options.
# The compiler is fixed at the first call for a folder, from CXX.
configure() {
  local folder=$1
  shift
  if [ -f "$folder/build.ninja" ]; then
    if [ $# -gt 0 ]; then meson configure "$folder" "$@"; fi
  else
    # Meson looks for ccache only where CXX is not set. Without ccache, headers are compiled once instead.
    if ! command -v ccache >/dev/null; then
      set -- -Dprecompiled=true "$@"
    elif [ -n "${CXX:-}" ]; then
      local -x CXX="ccache $CXX"
    fi
    meson setup "$folder" "$repository" "$@"
  fi
}
