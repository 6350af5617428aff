# Two commands matter: `make run` and `make test`. Each installs what it needs and says so; with everything there, neither
# loses time over it.

SHELL := /bin/bash
export CARGO_TARGET_DIR ?= $(HOME)/.cache/dunlin/target

# Where the server that is tested lies, and the programs beside it. TESTED names a folder in which they are built already.
BINARIES := $(or $(TESTED),$(CARGO_TARGET_DIR)/debug)
PORT ?= 8000
SEEDS ?= 1000
RUNS ?= 300
BOTS ?= 300
SITE := $(CARGO_TARGET_DIR)/site
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/dunlin
SITE_TOOLS = $(CACHE)/site-$(shell sed -n 's/^mkdocs-material==//p' site/requirements.txt)/bin/mkdocs
# To which `make test` appends how long its stages took.
TIMES := $(CACHE)/stage-times
# The server that runs in the lab's pods. An optimized one takes more load.
LAB_SERVER ?= $(BINARIES)/dunlin

.DEFAULT_GOAL := help
.PHONY: help run cluster test check times bench bench-peers build release generate lint unit deny vectors sim mutants oracle api hostile web sdk clients recordings browser pictures guides site docs packages workflows platform watching operator gitops lab machines page fuzz autobahn crash chaos jepsen clustered twonodes

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{ printf "  make %-11s %s\n", $$1, $$2 }'

run: page ## Build the server and start it with its demo pages. STORAGE=1 compiles RocksDB as well
	@scripts/need cargo cc
	@exec demo/run $(PORT) $(BOTS)

cluster: page ## Build the server and start the demo on a cluster: three NATS servers, three nodes, one port
	@scripts/need cargo cc python nats
	@demo/build > /dev/null
	@exec demo/cluster/run $(CARGO_TARGET_DIR)/look/dunlin --pages web/dist --port $(PORT)

test: ## Check everything: what CI runs. WITHOUT=lint,workflows leaves stages out
	@scripts/need cargo cc rocksdb python
	@env -u MAKEFLAGS -u MAKELEVEL TESTED=$(CARGO_TARGET_DIR)/debug scripts/stages --limit-s 5100 --without "$(WITHOUT)" --times $(TIMES) tests/stages

check: ## Before a commit: format, lints, and the tests of the crates that changed since COMMIT (HEAD)
	@scripts/need cargo cc rocksdb nats python
	@scripts/check $(or $(COMMIT),HEAD)

times: ## Print the table of CONTRIBUTING.md: how long the stages of `make test` took on this machine
	@scripts/stages --table $(TIMES)

build: ## Build the server and its load generator as they are released
	@scripts/need cargo cc rocksdb
	@cargo build --release --locked --package dunlin --package dunlin-bench

release: ## Write the files that a release publishes, with checksums, into RELEASE=~/.cache/dunlin/target/release-files. ONLY=deb: the Debian package
	@scripts/need cargo cc rocksdb python cargo-deb $(if $(ONLY),,go node mono)
	@packaging/release/run $(if $(ONLY),--only $(ONLY)) $(or $(RELEASE),$(CARGO_TARGET_DIR)/release-files)

generate: ## Write every generated file anew: pages of the reference, lists, schemas
	@scripts/generate

lint: ## Check formatting and lints
	@scripts/need cargo cc rocksdb
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- --deny warnings

unit: ## Run the tests of all crates, and the checks of the tree
	@scripts/need cargo cc rocksdb nats
	cargo test --workspace --locked --no-fail-fast

built: # Compiles what `unit` runs: the server, the programs beside it and the simulator, as all other tests take them, as well.
	@scripts/need cargo cc rocksdb
	cargo test --workspace --locked --no-run

deny: ## Check licences, sources and bans of all dependencies
	@scripts/need cargo cargo-deny
	cargo deny --log-level error check licenses bans sources

vectors: ## Hold the wire vectors against the official SDKs' own encoders, and check the Go servers of bench/peers
	@scripts/need go node python
	tests/vectors/run
	bench/peers/test

sim: ## Simulate SEEDS=1000 worlds of shards, clients and faults, with fresh seeds
	@scripts/need cargo cc rocksdb
	cargo run --release --locked --package dunlin-sim -- --seeds $(SEEDS) --fresh

simulated: # The simulation as CI runs it: the same seeds each time, behind those of `unit`. A fresh one that fails is no fault of the change.
ifndef TESTED
	@scripts/need cargo cc rocksdb
	cargo build --locked --package dunlin-sim
endif
	$(BINARIES)/dunlin-sim --seeds 400 --start 10000

mutants: ## Plant bugs in a copy of the engine and of the cluster's core, and see that the simulator finds each. TEST=NAME: some of them
	@scripts/need cargo cc python
	scripts/mutants $(TEST)

oracle: server-for-tests ## Play the same commands to Dunlin and to the centrifuge library, and compare the answers
	@scripts/need go
	tests/oracle/run $(BINARIES)/dunlin

api: server-for-tests ## Play the HTTP API's cases to the real server, make clients fall behind it, have it tell a backend of them, let an agent ask it, move to it from Centrifugo, place 10,000 tickets, and count what a lobby sends
	@scripts/need python go otel-collector
	tests/api/run $(BINARIES)/dunlin
	tests/migration/run $(BINARIES)/dunlin
	tests/matching/lateness $(BINARIES)/dunlin --placement-only
	tests/matching/lobby $(BINARIES)/dunlin --rooms 500
	tests/insight/run $(BINARIES)/dunlin
	tests/webhooks/run $(BINARIES)/dunlin
	tests/insight/profiles $(BINARIES)/dunlin
	tests/insight/pushed_profiles $(BINARIES)/dunlin
	tests/insight/traces_and_metrics $(BINARIES)/dunlin
	tests/mcp/run $(BINARIES)/dunlin

hostile: server-for-tests ## Play named bad inputs and hostile crowds to the real server, and see that nobody else notices
	@scripts/need python
	tests/hostile/all $(BINARIES)/dunlin

crash: server-for-tests changed-rules ## Kill the real server under load, and see that nothing acknowledged or seen is lost; change the rules of its rooms
	@scripts/need python cc
	tests/crash/all $(BINARIES)/dunlin 6

clustered: server-for-tests changed-rules page ## Kill, pause and part nodes and NATS servers of a cluster under load, and see that nothing acknowledged is lost
	@scripts/need python nats nats_short network node go chromium
	tests/cluster/all $(BINARIES)/dunlin
	tests/cluster/sdks $(BINARIES)/dunlin --rounds 3
	tests/cluster/drain $(BINARIES)/dunlin
	tests/cluster/elections $(BINARIES)/dunlin $(HOME)/.cache/dunlin/nats-short/nats-server
	tests/api/run $(BINARIES)/dunlin --cluster
	tests/browser/cluster $(BINARIES)/dunlin

twonodes: server-for-tests ## Run the API's cases, the oracle and the SDKs on two nodes of a cluster, publisher and subscriber apart
	@scripts/need go node python java nats
	tests/api/run $(BINARIES)/dunlin --cluster
	tests/oracle/run $(BINARIES)/dunlin --cluster
	tests/sdk/run $(BINARIES)/dunlin --cluster

chaos: server-for-tests changed-rules page ## What crash and clustered do, with RUNS=300 crashes, RUNS/3 losses of power, RUNS faults of a cluster and 100 killed hosts of a room (2 to 3 hours)
	@scripts/need python cc nats network node go chromium
	tests/crash/all $(BINARIES)/dunlin $(RUNS)
	tests/cluster/chaos $(BINARIES)/dunlin --rounds $(RUNS)
	tests/cluster/jepsen $(BINARIES)/dunlin
	"$$(tests/sdk/python/install)/bin/python" tests/cluster/rooms $(BINARIES)/dunlin --kills 100
	tests/cluster/sdks $(BINARIES)/dunlin --rounds 30
	tests/cluster/leases $(BINARIES)/dunlin --kills 9 --elections 3
	tests/browser/cluster $(BINARIES)/dunlin --each

jepsen: server-for-tests ## Damage what NATS has stored in each way of Jepsen's report, ROUNDS=5 times, and see that no client recovers over a loss (20 minutes)
	@scripts/need python nats network
	tests/cluster/jepsen $(BINARIES)/dunlin --rounds $(or $(ROUNDS),5)

sdk: server-for-tests ## Run the official SDKs for JavaScript, Go, Python and Java, and the room client, against the real server, on both reactors
	@scripts/need node go python java
	tests/sdk/run $(BINARIES)/dunlin

clients: recorder ## Check the room clients in other languages: vectors, 10,000 recorded snapshots, generated sources, the real server
	@scripts/need python node mono dotnet godot cc c++
	tests/clients/run $(BINARIES)

recordings: recorder ## The same with 100,000 recorded snapshots (a minute)
	@scripts/need python node mono dotnet godot cc c++
	tests/clients/run $(BINARIES) 100000

browser: server-for-tests page ## Check the demo's pages in headless Chromium
	@scripts/need node chromium
	tests/sdk/with-server $(BINARIES)/dunlin --config demo/config.json --demo web/dist -- tests/browser/run

pictures: server-for-tests page ## Record README's moving picture: a node of a cluster is killed under a page
	@scripts/need node chromium nats python
	@tests/browser/install
	node tests/browser/moving_picture.mjs $(BINARIES)/dunlin docs/images/cluster.png

guides: server-for-tests page ## Follow README's quick start, docs/own-game.md, docs/from-*.md and the backup drill as they are written, in headless Chromium; run all other commands of the pages
	@scripts/need cargo cc rocksdb node python chromium
ifndef TESTED
	cargo build --locked --package dunlin-game --example own_game
endif
	tests/commands/run $(BINARIES)/dunlin
	tests/guides/run $(BINARIES)/dunlin

site: ## Build the documentation site
	@scripts/need site
	@site/build "$(SITE_TOOLS)" $(SITE)

docs: site ## Build the documentation site, and check its pages, links, lines and search, also in headless Chromium
	@scripts/need node chromium python
	site/wrap --check
	tests/commands/run --pages
	tests/site/run $(SITE)/html

platform: server-for-tests ## Check Roost: kinds, validation, rendering, encrypted settings, against a real API server
	@scripts/need go nats etcd kube-apiserver skopeo argocd-definitions restic postgresql prometheus kubeconform ansible
	platform/test $(BINARIES)/dunlin

watching: server-for-tests ## Check alerts, routes, the board and the runbook against Prometheus and live nodes
	@scripts/need go nats prometheus
	go build -C platform -o $(BINARIES)/roost ./cmd/roost
	platform/watching/check $(BINARIES)/dunlin $(BINARIES)/roost

operator: server-for-tests ## Check Roost's operator at length: an error at each of its calls, 1,000 apps, failing calls, 50 nodes of kwok (some 30 minutes)
	@scripts/need go nats etcd kube-apiserver kube-controller-manager kube-scheduler kwok
	ROOST_TEST_WHOLE=1 platform/test $(BINARIES)/dunlin -count=1 -v -timeout 60m -run 'TestAnErrorAtEachCall|TestAThousandApps|TestFailingCalls|TestAKilledLeaderIsReplaced|TestManyNodes' ./operator

gitops: server-for-tests ## Have a real Argo CD sync Roost's sample repository (compiles Argo CD, once)
	@scripts/need go nats etcd kube-apiserver argocd-definitions argocd redis
	ROOST_TEST_WHOLE=1 platform/test $(BINARIES)/dunlin -C proof -count=1 -v -timeout 30m -run TestArgoCD .

lab: server-for-tests page ## Boot machines with Kubernetes clusters: check Roost with real pods and traffic; follow the machines' README, lose a worker, restore
	@scripts/need lab machines
	platform/lab/run $(LAB_SERVER)
	platform/machines/test $(LAB_SERVER) web/dist first_run lost_worker restored_server

machines: server-for-tests page ## Boot Debian machines, make them a cluster with platform/machines, lose one, upgrade, rotate, restore: all steps
	@scripts/need machines
	platform/machines/test $(LAB_SERVER) web/dist

workflows: ## Check GitHub's workflows, shell scripts, YAML, the playbook of the machines, and the tree for secrets
	@scripts/need go python shellcheck actionlint zizmor gitleaks ansible restic
	platform/ci/lint
	platform/machines/lint

packages: packaged ## Boot a Debian machine with the package, build the container images, and play in the one of a new game (some 15 minutes)
	@scripts/need machine buildah go node python mono
	tests/packages/run $(BINARIES)/dunlin machine buildah game

packaged: server-for-tests # The short form of `packages`, as CI runs it: no machine is booted, no image built.
	@scripts/need cargo cc rocksdb go node python mono cargo-deb shellcheck proxies
	tests/packages/run $(BINARIES)/dunlin

tools: # What the tests need beside compilers, installed where it is missing.
	@scripts/need cargo cc c++ rocksdb node go python java chromium mono dotnet godot cargo-deb shellcheck proxies

web: page ## Run the unit tests of the room client and the demo pages
	web/test
	web/bundled --check

page: # The demo's pages, bundled.
	@scripts/need node
	@web/build

server-for-tests:
ifndef TESTED
	@scripts/need cargo cc rocksdb
	cargo build --locked --package dunlin --package dunlin-bench --package dunlin-demo
endif

changed-rules: # A game in two versions, with a storage.
ifndef TESTED
	cargo build --locked --package dunlin-game --features storage --example changed_rules
endif

recorder: server-for-tests
ifndef TESTED
	cargo build --locked --package dunlin-games --package dunlin-codegen --example record_snapshots --example write_sources
endif

bench: ## Run a short version of every load scenario on a fresh server, and write bench/runs/report.html. BENCHED names a folder with built programs
ifndef BENCHED
	@scripts/need cargo cc rocksdb
	@cargo build --profile measured --locked --package dunlin --package dunlin-bench
endif
	@$(or $(BENCHED),$(CARGO_TARGET_DIR)/measured)/dunlin bench run --short --page bench/runs/report.html $(basename $(notdir $(wildcard bench/scenarios/*.toml)))

bench-peers: ## Measure Dunlin beside the servers of bench/peers, and print the tables of docs/measurements.md (half an hour). TABLES=market-7000 ROUNDS=1: some. BENCHED as above
	@scripts/need cargo cc rocksdb go node python nats
ifndef BENCHED
	@cargo build --profile measured --locked --package dunlin --package dunlin-bench
endif
	@bench/peers/build
	@bench/peers/compare $(or $(BENCHED),$(CARGO_TARGET_DIR)/measured)/dunlin --rounds $(or $(ROUNDS),3) --tables "$(TABLES)" --json bench/runs/peers.json

fuzz: ## Fuzz every decoder, and sequences of commands, for SECONDS=60 each
	@fuzz/all $(or $(SECONDS),60)

autobahn: ## Play the Autobahn test suite to our WebSocket (half an hour or more; needs Python 2.7; not part of `test`)
	@scripts/need cargo cc rocksdb python
	cargo build --locked --package dunlin-tests --bin dunlin-echo
	tests/autobahn/run $(CARGO_TARGET_DIR)/debug/dunlin-echo

.PHONY: built tools simulated packaged server-for-tests changed-rules recorder
