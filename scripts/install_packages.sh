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
case "${1:---build}" in
  --build) ;;
  --tests) packages+=("${test_packages[@]}") ;;
  -h | --help) usage && exit 0 ;;
  *) usage >&2 && exit 2 ;;
esac

# Prints the packages of the list that are not installed, on one line.
missing_packages() {
  local installed
  installed=" $(dpkg-query -W -f='${db:Status-Status}:${Package} ' "${packages[@]}" 2>/dev/null || true) "
  for package in "${packages[@]}"; do
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

read -r -a missing <<<"$(missing_packages)" || true
if ((${#missing[@]} == 0)); then
  echo "install_packages: all ${#packages[@]} packages are installed"
  note_catch2
  exit 0
fi

as_root=()
if ((EUID != 0)); then
  command -v sudo >/dev/null || fail "not root and no sudo here; as root run: apt-get install ${missing[*]}"
  as_root=(sudo)
  [[ -t 0 ]] || as_root+=(-n) # nobody is there to type a password
  "${as_root[@]}" true || fail "sudo was refused; as root run: apt-get install ${missing[*]}"
fi

echo "install_packages: installing ${missing[*]}"
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300)
"${apt[@]}" update || echo "install_packages: apt-get update failed; trying with the lists at hand" >&2

unknown=()
for package in "${missing[@]}"; do
  apt-cache show --no-all-versions "$package" >/dev/null 2>&1 || unknown+=("$package")
done
((${#unknown[@]} == 0)) ||
  fail "apt knows no ${unknown[*]}; Debian 12 and Ubuntu 24.04 (with universe) have them, elsewhere see apt.llvm.org"

"${apt[@]}" install -y --no-install-recommends "${missing[@]}" >/dev/null </dev/null ||
  fail "apt-get could not install ${missing[*]}"
note_catch2
