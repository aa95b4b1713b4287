#!/usr/bin/env bash
# Installs the apt packages that Ingot needs, on Debian 12 and Ubuntu 24.04 (both have LLVM 19 in their own archives).
# Does nothing, and asks no server, when all of them are there. The CUDA Toolkit is not among them: it is optional.
#   bash scripts/install_packages.sh [--build | --tests]
set -euo pipefail

build_packages=(
  build-essential cmake ninja-build ccache  # the compiler and the build
  llvm-19-dev lld-19                        # CPU code generation; lld links the static LLVM in a second
  libprotobuf-dev protobuf-compiler         # ONNX files
  libflatbuffers-dev flatbuffers-compiler   # .ingot files
  libfmt-dev libcli11-dev nlohmann-json3-dev libxxhash-dev zlib1g-dev libzstd-dev
  catch2                                    # unit tests
)
test_packages=(clang-19 libclang-rt-19-dev clang-format-19 zstd python3)  # fuzzing, style, archives of test cases
# A test that wants one of these is skipped without it: Ubuntu has no such package, and 98 MB may be too much to fetch.
wanted_packages=(chromium-headless-shell)  # the page of `ingot inspect --html`

usage() {
  sed -n '2,4s/^# \{0,1\}//p' "$0"
  echo "  --build   what building needs (default)"
  echo "  --tests   that, and what tests/run.sh needs"
}

fail() {
  echo "install_packages: $*" >&2
  exit 1
}

packages=("${build_packages[@]}")
wanted=()
case "${1:---build}" in
  --build) ;;
  --tests) packages+=("${test_packages[@]}") wanted=("${wanted_packages[@]}") ;;
  -h | --help) usage && exit 0 ;;
  *) usage >&2 && exit 2 ;;
esac

# Prints those of the given packages that are not installed, on one line.
missing_of() {
  local installed
  installed=" $(dpkg-query -W -f='${db:Status-Status}:${Package} ' "$@" 2>/dev/null || true) "
  for package in "$@"; do
    [[ $installed == *" installed:$package "* ]] || printf '%s ' "$package"
  done
}

# Debian 12 has Catch2 2 and Ubuntu 24.04 has Catch2 3, whose header has another name.
note_catch2() {
  local version
  version=$(dpkg-query -W -f='${Version}' catch2 2>/dev/null || true)
  if [[ $version == 3* ]]; then
    echo "install_packages: catch2 is version 3 here; its header is <catch2/catch_all.hpp>, not <catch2/catch.hpp>"
  fi
}

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  fail "this system has no apt; install by its own means what Debian calls: ${packages[*]}"
fi

apt_knows() { apt-cache show --no-all-versions "$1" >/dev/null 2>&1; }

read -r -a missing <<<"$(missing_of "${packages[@]}")" || true
absent=()
if ((${#wanted[@]})); then
  for package in $(missing_of "${wanted[@]}"); do
    # Without its lists apt knows nothing; they are fetched below if anything else is missing.
    if ((${#missing[@]})) || apt_knows "$package"; then absent+=("$package"); fi
  done
fi
if ((${#missing[@]} + ${#absent[@]} == 0)); then
  echo "install_packages: all ${#packages[@]} packages are installed"
  note_catch2
  exit 0
fi

# Ends the script: in failure if something is missing that is needed.
cannot_install() {
  ((${#missing[@]} == 0)) || fail "$1; as root run: apt-get install ${missing[*]}"
  echo "install_packages: $1; what needs ${absent[*]} is skipped"
  exit 0
}

as_root=()
if ((EUID != 0)); then
  command -v sudo >/dev/null || cannot_install "not root and no sudo here"
  as_root=(sudo)
  [[ -t 0 ]] || as_root+=(-n) # nobody is there to type a password
  "${as_root[@]}" true || cannot_install "sudo was refused"
fi

all=("${missing[@]}" "${absent[@]}")
echo "install_packages: installing ${all[*]}"
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300)
"${apt[@]}" update || echo "install_packages: apt-get update failed; trying with the lists at hand" >&2

unknown=()
for package in "${missing[@]}"; do
  apt_knows "$package" || unknown+=("$package")
done
((${#unknown[@]} == 0)) ||
  fail "apt knows no ${unknown[*]}; Debian 12 and Ubuntu 24.04 (with universe) have them, elsewhere see apt.llvm.org"

((${#missing[@]} == 0)) || "${apt[@]}" install -y --no-install-recommends "${missing[@]}" >/dev/null </dev/null ||
  fail "apt-get could not install ${missing[*]}"
for package in "${absent[@]}"; do
  if ! apt_knows "$package"; then
    echo "install_packages: apt has no $package; what needs it is skipped"
  elif ! timeout 180 "${apt[@]}" -o Acquire::Retries=0 install -y --no-install-recommends "$package" >/dev/null </dev/null; then
    echo "install_packages: $package could not be installed; what needs it is skipped"
  fi
done
note_catch2
