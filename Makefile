# On a fresh Debian 12 or Ubuntu 24.04 (or later) with a Rust toolchain, each of these alone installs the packages that it needs.
SHELL := /bin/bash
.DEFAULT_GOAL := help
WEIR := $(or $(CARGO_TARGET_DIR),target)/release/weir
# The binary that the scripts of the tests and of the bench start.
export WEIR_BIN ?= $(abspath $(WEIR))
PYTEST := .venv/bin/python -m pytest

.PHONY: help build demo test lint test-rust test-clients test-peer bench bench-clients bench-security fuzz sim soak deb wheel image clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

build: ## the binary, target/release/weir (or under CARGO_TARGET_DIR), man pages and completions, build/man and build/completions
	cargo build --release --locked -p weir
	$(WEIR) generate build

demo: ## install, build, and watch a cluster lose a disk server while it records
	scripts/setup.sh run
	cargo build --release --locked -p weir
	$(WEIR) demo

test: ## everything that must pass before a change goes in (CI runs this)
	scripts/test.sh

lint: ## format, lints, dependency policy, scripts
	cargo fmt --all --check
	rustfmt --check --edition 2024 fuzz/fuzz_targets/*.rs
	cargo clippy --locked --workspace --all-targets -- -D warnings
	scripts/check_dependencies.py
	scripts/setup.sh test
	.venv/bin/ruff check

test-rust: ## the crates' own tests
	cargo test --locked --workspace

test-clients: build ## stock clients against the real binary; ARGS="-k recovery" picks some
	scripts/setup.sh test
	$(PYTEST) tests $(ARGS)

test-peer: ## the client tests against a stock xrootd: proves the tests, not weir
	scripts/setup.sh test
	$(PYTEST) tests --peer $(ARGS)

bench: build ## measure beside peers by campaigns of `weir bench`, and write bench/CAMPAIGNS.md (needs root); ARGS="small streams" or ARGS=cluster for a part
	scripts/setup.sh bench
	.venv/bin/python bench/campaigns.py $(ARGS)

bench-clients: build ## measure what stock clients' own programs and libraries see, and write bench/RESULTS.md; ARGS="--only stat --runs 3" for a part
	scripts/setup.sh bench
	.venv/bin/python bench/run.py $(ARGS)

bench-database: build ## measure a manager on PostgreSQL beside the embedded engine, and write bench/DATABASE.md; ARGS="--only phases" for a part
	scripts/setup.sh bench
	scripts/setup.sh test
	.venv/bin/python bench/database.py $(ARGS)

bench-security: build ## measure what TLS, logins, permissions, quotas and the audit log cost, and write bench/SECURITY.md; ARGS="--only gsi" for a part
	scripts/setup.sh bench
	scripts/setup.sh test
	.venv/bin/python bench/security.py $(ARGS)

fuzz: ## each fuzz target, and random sessions against the real binary, each for a minute
	fuzz/run.sh

sim: ## the crash and model tests over many more seeds than `make test` (WEIR_SEEDS, default 5000)
	WEIR_SEEDS=$${WEIR_SEEDS:-5000} cargo test --locked --release --workspace -- --nocapture

soak: build ## an hour (SOAK_MINUTES) of ordinary, slow and stuck clients, full disks and kill -9: nothing lost, no drift (build/soak/report.txt); then two million files (also on PostgreSQL), minutes of kill -9 on a cluster of one manager and of three, stock clients on three managers, of a cluster from packages, and of users with quotas and permissions
	scripts/setup.sh test
	cd tests && ../.venv/bin/python -m soak $(ARGS)
	cd tests && ../.venv/bin/python -m soak.files $(FILES)
	cd tests && ../.venv/bin/python -m soak.files --managers 3 $(FILES)
	cd tests && ../.venv/bin/python -m soak.packages
	CLUSTER_SECONDS=$${CLUSTER_SECONDS:-300} CLUSTER_SEED=$${CLUSTER_SEED:-$$RANDOM} $(PYTEST) tests -s -k kills_at_random --timeout 3600
	MANAGERS_SEED=$${MANAGERS_SEED:-$$RANDOM} $(PYTEST) tests -m long -k "not kills_at_random" -rP --timeout 3600
	$(PYTEST) tests --managers --timeout 3600
	IDENTITY_SECONDS=$${IDENTITY_SECONDS:-300} IDENTITY_SEED=$${IDENTITY_SEED:-$$RANDOM} $(PYTEST) tests/test_identity_kills.py -s

deb: build ## the Debian package, build/weir_VERSION_ARCH.deb
	scripts/deb.sh $(WEIR)

wheel: ## the Python package, build/weir-VERSION-cp39-abi3-PLATFORM.whl
	scripts/wheel.sh

image: deb ## a container image of the package, weir:latest, with podman, buildah or docker
	scripts/image.sh "$$(ls -t build/weir_*.deb | head -1)"

clean: ## remove what was built
	cargo clean
	rm -rf build .venv
