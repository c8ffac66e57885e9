# The front door of kp. `make` alone lists what there is.

CARGO ?= cargo
PORT ?= 8080
TARGET := $(or $(CARGO_TARGET_DIR),target)
DESTDIR ?=
PREFIX ?= /usr
export CARGO PORT TARGET

.DEFAULT_GOAL := help
.PHONY: help build run reload test check bench fuzz install nginx-tests probe clean

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
	@scripts/need cargo cc python3 wrk taskset
	$(CARGO) build --locked --release -p kp
	@scripts/bench

fuzz: ## the property tests, with many more cases (CASES=20000)
	@scripts/need cargo cc
	PROPTEST_CASES=$(or $(CASES),20000) $(CARGO) test --locked -p kp-http -p kp-config -p kp-upstream -p kp-proxy

install: ## the release binary, the example configuration and the directories it needs
	@scripts/need cargo cc
	$(CARGO) build --locked --release -p kp
	install -D -m 755 $(TARGET)/release/kp $(DESTDIR)$(PREFIX)/sbin/kp
	install -d -m 755 $(DESTDIR)/etc/kp $(DESTDIR)/var/log/kp
	test -e $(DESTDIR)/etc/kp/kp.yaml || install -m 644 etc/kp.yaml $(DESTDIR)/etc/kp/kp.yaml

nginx-tests: ## files of the public nginx suite: SUITE=its directory FILES="proxy.t upstream.t"
	@scripts/nginx-tests "$(SUITE)" $(FILES)

probe: ## hostile requests and upstreams: DIR=directory of the probe scripts
	@scripts/probe "$(DIR)"

clean: ## remove everything that was built
	$(CARGO) clean
	rm -rf target
