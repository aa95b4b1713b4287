#!/usr/bin/env bash
# Eight processes compile one model with a cold store that they share; then the store is damaged in several ways, made
# read-only, and limited. Every compilation must succeed and give the same bytes.
#   shared_store_test.sh INGOT
set -u
ingot=$1
model=examples/digits/digits.onnx
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
export INGOT_CACHE_DIR=$work/cache
fail() { echo "FAIL: $*"; exit 1; }
compile() { "$ingot" compile $model -o "$1" --target "cpu,x86-64-v2"; }

pids=()
for i in 1 2 3 4 5 6 7 8; do
  compile "$work/$i.ingot" >"$work/log$i" 2>&1 &
  pids+=($!)
done
for i in 1 2 3 4 5 6 7 8; do wait "${pids[$((i - 1))]}" || { cat "$work/log$i"; fail "process $i"; }; done
for i in 2 3 4 5 6 7 8; do cmp "$work/1.ingot" "$work/$i.ingot" || fail "process $i wrote other bytes"; done
[[ $("$ingot" cache verify) == *": 0 damaged entries" ]] || fail "damaged entries"
[[ $("$ingot" cache stats) == *": 18 entries"* ]] || fail "$("$ingot" cache stats)"
ls "$INGOT_CACHE_DIR" | grep -q tmp- && fail "unfinished entries were left"
[[ $("$ingot" cache explain $model --target cpu,x86-64-v2) == *"18 kernels, 0 would be compiled" ]] || fail "explain of hits"
[[ $("$ingot" cache explain $model --target x86-64) == *"target is x86-64, the entry's is x86-64-v2"* ]] || fail "explain of misses"

# One entry cut, one flipped, one emptied, one with a missing file.
mapfile -t objects < <(find "$INGOT_CACHE_DIR" -name kernel.o | sort)
truncate -s 100 "${objects[0]}"
printf 'x' | dd of="${objects[1]}" bs=1 seek=200 conv=notrunc 2>/dev/null
: >"${objects[2]}"
rm "${objects[3]}"
: >"$(dirname "${objects[4]}")/checksums"
compile "$work/again.ingot" >/dev/null || fail "a damaged store"
cmp "$work/1.ingot" "$work/again.ingot" || fail "a damaged store gave other bytes"
truncate -s 50 "${objects[5]}"
[[ $("$ingot" cache verify) == *": 1 damaged entries" ]] || fail "verify did not find the damage"

# A store that cannot be written is read; a folder that is none of ours is left alone. Permissions do not bind root, who gives
# the store to another user and becomes that one.
as_other=()
if ((EUID == 0)) && setpriv --reuid=65534 --clear-groups test -x "$ingot" 2>/dev/null; then
  as_other=(setpriv --reuid=65534 --clear-groups)
  "${as_other[@]}" "$ingot" cache stats >/dev/null 2>"$work/err" && fail "another user uses a store of root"
  chmod a+rx "$work" && chmod a+w "$work" && chown -R 65534 "$INGOT_CACHE_DIR"
  compile "$work/foreign.ingot" >/dev/null || fail "a store of another user"
  cmp "$work/1.ingot" "$work/foreign.ingot" || fail "a store of another user gave other bytes"
  [[ $(INGOT_ASSERT_CACHED=1 compile "$work/y.ingot" 2>&1) == *"belongs to another user"* ]] || fail "a store of another user was read"
fi
chmod -R a-w "$INGOT_CACHE_DIR"
entries=$(find "$INGOT_CACHE_DIR" | wc -l)
"${as_other[@]}" "$ingot" compile $model -o "$work/readonly.ingot" --target "cpu,x86-64-v2" >/dev/null || fail "a read-only store"
cmp "$work/1.ingot" "$work/readonly.ingot" || fail "a read-only store gave other bytes"
"${as_other[@]}" "$ingot" compile $model -o "$work/more.ingot" --target "x86-64-v3" >/dev/null || fail "a read-only store that lacks a kernel"
((${#as_other[@]} == 0 || entries == $(find "$INGOT_CACHE_DIR" | wc -l))) || fail "a read-only store was written"
chmod -R u+w "$INGOT_CACHE_DIR"
INGOT_CACHE_DIR=/proc/1/nothing compile "$work/none.ingot" >/dev/null || fail "no store"
cmp "$work/1.ingot" "$work/none.ingot" || fail "no store gave other bytes"
INGOT_ASSERT_CACHED=1 INGOT_CACHE_DIR=$work/empty compile "$work/x.ingot" 2>"$work/err" && fail "INGOT_ASSERT_CACHED"
# A disk that is full before the first entry is complete, and one that is full later; where a file system can be made.
full_disk() {
  mount -t tmpfs -o "size=$1,mode=700" none "$2" || return 77
  INGOT_CACHE_DIR=$2 "$3" compile "$4" -o "$5" --target cpu,x86-64-v2 >/dev/null || return 1
  [[ $(INGOT_CACHE_DIR=$2 "$3" cache verify) == *": 0 damaged entries" ]] || return 2
  ! compgen -G "$2/tmp-*" >/dev/null
}
for size in 4k 16k 100k; do
  mkdir -p "$work/disk" && chmod 700 "$work/disk"
  unshare -m bash -c "$(declare -f full_disk); full_disk \"\$@\"" - $size "$work/disk" "$ingot" $model "$work/full.ingot" 2>"$work/err"
  status=$?
  if ((status == 1 && EUID != 0 || status == 77)); then
    echo "no file system can be made here: a full disk is tested in store_test only"
    break
  fi
  ((status == 0)) || fail "a full disk of $size: $status $(cat "$work/err")"
  cmp "$work/1.ingot" "$work/full.ingot" || fail "a full disk gave other bytes"
done
echo "one store, eight processes, five kinds of damage"
