#!/usr/bin/env bash
# Runs one libFuzzer executable for TUTTI_FUZZ_SECONDS (default 30) from a seed corpus that it does not change.
# usage: run_fuzzer.sh EXECUTABLE CORPUS
set -euo pipefail

executable=$(realpath "$1")
corpus=$(realpath "$2")
found=$(mktemp -d)
trap 'rm -rf "$found"' EXIT
cd "$found" # a crashing input would otherwise be written to the source tree
if ! "$executable" -max_total_time="${TUTTI_FUZZ_SECONDS:-30}" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
  -verbosity=0 -artifact_prefix="$found/" "$found" "$corpus"; then
  for input in "$found"/crash-* "$found"/timeout-* "$found"/oom-* "$found"/leak-*; do
    [ -e "$input" ] || continue
    echo "failing input $(basename "$input"), base64:"
    base64 "$input"
  done
  exit 1
fi
