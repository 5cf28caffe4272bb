//go:build tools

package main

// go-hep's own commands, so that go.sum has all that they need.
import (
	_ "go-hep.org/x/hep/xrootd/cmd/xrd-cp"
	_ "go-hep.org/x/hep/xrootd/cmd/xrd-ls"
)
