#!/usr/bin/env bash
# Builds the programs of go-hep, the Go client, that the tests run, into build/gohep, unless they are up to date. Uses the modules
# that tests/gohep/go.sum pins, and the system's compiler.
set -euo pipefail
cd "$(dirname "$0")/../tests/gohep"

out=../../build/gohep
made_of=$(/usr/bin/go version; cat go.mod go.sum ./*.go)
[[ -f $out/made-of.txt && $made_of == "$(<$out/made-of.txt)" ]] && exit
echo "gohep: building the Go client's programs into build/gohep"
rm -rf "$out"
mkdir -p "$out"
GOTOOLCHAIN=local GOFLAGS=-mod=readonly CGO_ENABLED=0 /usr/bin/go build -trimpath -buildvcs=false -o "$out/" \
    . go-hep.org/x/hep/xrootd/cmd/xrd-ls go-hep.org/x/hep/xrootd/cmd/xrd-cp
echo "$made_of" >"$out/made-of.txt"
