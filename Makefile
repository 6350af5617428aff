# Two commands matter: `make run` and `make test`. Each installs what it needs and says so; with everything there, neither
# loses time over it.

SHELL := /bin/bash
export CARGO_TARGET_DIR ?= $(HOME)/.cache/dunlin/target

SERVER := $(CARGO_TARGET_DIR)/release/dunlin
PORT ?= 8000
SEEDS ?= 1000
BOTS ?= 300

.DEFAULT_GOAL := help
.PHONY: help run test build lint unit deny vectors sim oracle api hostile web sdk browser page fuzz autobahn

help: ## Show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{ printf "  make %-9s %s\n", $$1, $$2 }'

run: page ## Build everything and start the server with its demo page
	@scripts/need cargo cc
	@cargo build --release --locked --package dunlin
	@echo "Dunlin's demo pages: http://localhost:$(PORT)/   (Ctrl-C ends it)"
	@exec $(SERVER) serve --config demo/config.json --port $(PORT) --demo web/dist --demo-bots $(BOTS)

test: lint unit deny vectors simulated oracle api hostile web sdk browser ## Check everything: what CI runs

build: ## Build the server as it is released
	@scripts/need cargo cc
	@cargo build --release --locked --package dunlin

lint: ## Check formatting and lints
	@scripts/need cargo cc
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- --deny warnings

unit: ## Run the tests of all crates, and the checks of the tree
	@scripts/need cargo cc
	cargo test --workspace --locked

deny: ## Check licences, sources and bans of all dependencies
	@scripts/need cargo cargo-deny
	cargo deny --log-level error check licenses bans sources

vectors: ## Hold the wire vectors against the official SDKs' own encoders
	@scripts/need go node
	tests/vectors/run

sim: ## Simulate SEEDS=1000 worlds of shards, clients and faults
	@scripts/need cargo cc
	cargo run --release --locked --package dunlin-sim -- --seeds $(SEEDS)

simulated: # The simulation as CI runs it: fixed seeds are in `unit`, these are fresh.
	@scripts/need cargo cc
	cargo run --locked --package dunlin-sim -- --seeds 300 --fresh

oracle: server-for-tests ## Play the same commands to Dunlin and to the centrifuge library, and compare the answers
	@scripts/need go
	tests/oracle/run $(CARGO_TARGET_DIR)/debug/dunlin

api: server-for-tests ## Play the HTTP API's cases to the real server, and move to it from Centrifugo
	@scripts/need python
	tests/api/run $(CARGO_TARGET_DIR)/debug/dunlin
	tests/migration/run $(CARGO_TARGET_DIR)/debug/dunlin

hostile: server-for-tests ## Play named bad inputs and hostile crowds to the real server, and see that nobody else notices
	@scripts/need python
	tests/hostile/all $(CARGO_TARGET_DIR)/debug/dunlin

sdk: server-for-tests ## Run the official SDKs for JavaScript, Go and Python, and the room client, against the real server, on both reactors
	@scripts/need node go python
	tests/sdk/run $(CARGO_TARGET_DIR)/debug/dunlin

browser: server-for-tests page ## Check the demo's pages in headless Chromium
	@scripts/need node chromium
	tests/sdk/with-server $(CARGO_TARGET_DIR)/debug/dunlin --config demo/config.json --demo web/dist -- tests/browser/run

web: page ## Run the unit tests of the room client and the arena page
	web/test

page: # The demo's pages, bundled.
	@scripts/need node
	@web/build

server-for-tests:
	@scripts/need cargo cc
	cargo build --locked --package dunlin

fuzz: ## Fuzz every decoder, and sequences of commands, for SECONDS=60 each
	@fuzz/all $(or $(SECONDS),60)

autobahn: ## Play the Autobahn test suite to our WebSocket (half an hour or more; needs Python 2.7; not part of `test`)
	@scripts/need cargo cc python
	cargo build --locked --package dunlin-tests --bin dunlin-echo
	tests/autobahn/run $(CARGO_TARGET_DIR)/debug/dunlin-echo

.PHONY: simulated server-for-tests
