#!/usr/bin/env bash
# What `ingot bench` reports: every kind of request, the best batch, and a profile as a table, JSON, CSV and a trace.
#   bench_test.sh INGOT
set -u
ingot=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export INGOT_CACHE_DIR=$work/cache
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
"$ingot" compile examples/digits/digits.onnx -o "$work/digits.ingot" >/dev/null || exit 1
bench() { "$ingot" bench "$work/digits.ingot" --device cpu --duration 0.05 "$@"; }

bench --batch 3 --json >"$work/run.json" || exit 1
bench --batch 3 --io device --graph off --streams 1 --json >"$work/device.json" || exit 1
bench --batch 3 --io host --depth 2 --json >"$work/host.json" || exit 1
bench --find-batch --json >"$work/batches.json" || exit 1
bench --batch 3 --profile --csv "$work/p.csv" --trace "$work/p.trace" --json >"$work/profile.json" || exit 1
"$ingot" inspect "$work/digits.ingot" --json >"$work/inspect.json" || exit 1
bench --profile --io device >"$work/table.txt" || exit 1
bench --io nowhere >"$work/out" 2>&1 && { echo "FAIL: --io nowhere"; exit 1; }

python3 - "$work" <<'PYTHON'
import csv, json, pathlib, sys

work = pathlib.Path(sys.argv[1])
load = lambda name: json.loads((work / name).read_text())

for name, io in (("run.json", "run"), ("device.json", "device"), ("host.json", "host")):
    j = load(name)
    assert j["io"] == io and j["batch"] == 3 and j["ms"] > 0 and j["kernels"] == 9 and j["runs"] >= 5, j
    assert abs(j["per_second"] - 3000 / j["ms"]) < 1e-6 * j["per_second"], j
run, device = load("run.json"), load("device.json")
assert run["load_ms"] > 0 and run["first_ms"] > 0 and run["p50_ms"] <= run["p90_ms"] <= run["p99_ms"], run
assert run["counters"]["plans_made"] == 1 and run["counters"]["runs"] >= run["runs"], run["counters"]
assert {"recordings_made", "recordings_dropped", "replays", "arena_bytes", "arena_growths"} <= run["counters"].keys()
assert device["host_enqueue_us"] > 0, device
assert load("host.json")["depth"] == 2

batches = load("batches.json")
assert [b["batch"] for b in batches["batches"]][:3] == [1, 2, 4], batches
assert batches["best_batch"] in [b["batch"] for b in batches["batches"]]
assert all(b["plan_us"] > 0 and b["per_second"] > 0 for b in batches["batches"])

launches = load("profile.json")["profile"]
assert len(launches) == 9
for k in launches:
    assert k["name"].startswith("fused_") and k["nodes"] and k["ms"] > 0 and k["bytes"] > 0, k
    assert k["share_of_roofline"] == max(k["share_of_memory_roof"], k["share_of_arithmetic_roof"]) > 0, k
assert any(k["flops"] > 0 and k["share_of_arithmetic_roof"] > 0 for k in launches)
nodes = {n for k in launches for n in k["nodes"]}
built = {n for k in load("inspect.json")["programs"][0]["kernels"] for n in k["nodes"]}
assert nodes == built, nodes ^ built
assert load("inspect.json")["weight_bytes"] > 1000

rows = list(csv.DictReader((work / "p.csv").read_text().splitlines()))
assert [r["kernel"] for r in rows] == [k["name"] for k in launches]
assert all(float(r["ms"]) >= 0 and int(r["bytes"]) > 0 and r["nodes"] for r in rows)
events = load("p.trace")["traceEvents"]
assert len(events) == 9 and all(e["ph"] == "X" and e["dur"] >= 0 and e["args"]["nodes"] for e in events)
assert all(a["ts"] <= b["ts"] for a, b in zip(events, events[1:]))
table = (work / "table.txt").read_text()
for word in ("bytes", "memory%", "roof%", "in 9 kernels", "an enqueue costs the host"):
    assert word in table, table
print("requests, batches and profiles say what they should")
PYTHON
