# The front door of kp. `make` alone lists what there is.

CARGO ?= cargo
PORT ?= 8080
TARGET := $(or $(CARGO_TARGET_DIR),target)
DESTDIR ?=
PREFIX ?= /usr/local
BIN ?= $(TARGET)/release/kp
export CARGO PORT TARGET DESTDIR PREFIX BIN

.DEFAULT_GOAL := help
.PHONY: help build run reload test check bench fuzz install install-files deb deb-test nginx-tests probe clean bench-reload brownout experiments soak scale cost

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

build: ## the binary of `make run` and of the tests: $(TARGET)/quick/kp
	@scripts/need cargo cc
	$(CARGO) build --locked --profile quick -p kp

run: ## build, then kp and two demo upstreams on 127.0.0.1:PORT, files in target/run
	@scripts/run

reload: ## check the edited target/run/kp.yaml and let the running kp take it over
	@scripts/run reload

test: ## install what the tests need (as root), then run all of them
	@scripts/need cargo cc
	@scripts/test-packages
	@scripts/test

check: ## what the CI runs: format, lints, documents, all tests
	@scripts/need cargo cc
	@scripts/test-packages
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps
	@scripts/test

bench: ## compare kp with the proxies installed here and write docs/benchmarks.md
	@scripts/need cargo cc python3 wrk taskset openssl
	$(CARGO) build --locked --release -p kp
	@scripts/bench

bench-reload: ## what a reload under load costs clients, beside nginx; writes into docs/benchmarks.md
	@scripts/need cargo cc python3
	$(CARGO) build --locked --profile quick -p kp
	program=$$($(CARGO) test --locked -p kp-tests --test reload_cost --no-run --message-format json 2>/dev/null \
	    | sed -n 's/.*"executable":"\([^"]*reload_cost[^"]*\)".*/\1/p') && \
	scripts/bench-reload "$$program" "$$(realpath $(TARGET)/quick/kp)"

cost: ## instructions of a request with and without `metrics`, by valgrind
	@scripts/need cargo cc python3 valgrind
	$(CARGO) build --locked --profile quick -p kp
	@BIN=$$(realpath $(TARGET)/quick/kp) scripts/cost

brownout: ## a slow, a refusing and a healthy server under load, beside nginx; writes into docs/resilience.md
	@scripts/need cargo cc python3
	$(CARGO) build --locked --profile quick -p kp
	program=$$($(CARGO) test --locked -p kp-tests --test brownout --no-run --message-format json 2>/dev/null \
	    | sed -n 's/.*"executable":"\([^"]*brownout[^"]*\)".*/\1/p') && \
	scripts/brownout "$$program" "$$(realpath $(TARGET)/quick/kp)"

scale: ## as many idle connections as CONNECTIONS=60000 on 4 workers, then a request on each
	@scripts/need cargo cc
	$(CARGO) build --locked --profile quick -p kp
	KP_BIN=$$(realpath $(TARGET)/quick/kp) $(CARGO) test --locked -p kp-tests --test scale -- $(or $(CONNECTIONS),60000)

soak: ## reloads, kills, upgrades, rotations in random order under load (SEED= MINUTES=6)
	@scripts/need cargo cc
	$(CARGO) build --locked --profile quick -p kp
	KP_BIN=$$(realpath $(TARGET)/quick/kp) $(CARGO) test --locked -p kp-tests --test soak -- $(or $(SEED),$$(date +%s)) $(or $(MINUTES),6)

experiments: ## what a proxy adds, a loop that stands still, slow readers, kept connections; writes docs/experiments.md
	@scripts/need cargo cc python3 wrk taskset openssl
	$(CARGO) build --locked --release -p kp
	@scripts/experiments

fuzz: ## the property tests, with many more cases from a random seed (CASES=20000 SEED=)
	@scripts/need cargo cc
	@CASES="$(CASES)" SEED="$(SEED)" scripts/fuzz

install: ## kp, manual pages, examples, init files: PREFIX=/usr/local DESTDIR=
	@scripts/need cargo cc
	$(CARGO) build --locked --release -p kp
	@scripts/install

install-files: ## the same with a binary that is there: BIN=file
	@scripts/install

deb: ## a Debian package in $(TARGET)/debian
	@scripts/need cargo cc
	$(CARGO) build --locked --release -p kp
	@scripts/deb

deb-test: ## as root: install, use, upgrade and purge the package in a Debian of its own
	@scripts/need cargo cc
	$(CARGO) build --locked --release -p kp
	@set -e; DEB=$$(scripts/deb) DEB_NEXT=$$(DEB_VERSION=9999 scripts/deb); export DEB DEB_NEXT; scripts/deb-test

nginx-tests: ## files of the public nginx suite: SUITE=its directory FILES="proxy.t upstream.t"
	@scripts/nginx-tests "$(SUITE)" $(FILES)

probe: ## hostile requests and upstreams: DIR=directory of the probe scripts
	@scripts/probe "$(DIR)"

clean: ## remove everything that was built
	$(CARGO) clean
	rm -rf target
