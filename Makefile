# Each target wraps one script of .ci/, which also runs without make. ARGS goes to it as it is:
#   make test ARGS="-k wheel"

help: ## print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' Makefile

demo: ## see jobs run: an example application with a server and a worker of its own
	@sh .ci/demo $(ARGS)

test: ## run every test that needs no root, on servers of its own
	@sh .ci/test $(ARGS)

faults: ## break every command of a process and count the jobs, for some minutes
	@sh .ci/faults $(ARGS)

chaos: ## run workers under fire and count the jobs: SECONDS=180 SEED=any
	@sh .ci/chaos $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED)) $(ARGS)

soak: ## run a million jobs through one process and watch what it uses (Linux)
	@sh .ci/soak $(ARGS)

bench: ## measure the parts that jobs go through: ARGS=--benchmark-autosave, ARGS=targets
	@sh .ci/bench $(ARGS)

interop: ## run the tests with real Sidekiq (root, Debian or Ubuntu)
	@sh .ci/interop $(ARGS)

peers: ## run other implementations through the suite and in pairs: ARGS="--only php"
	@sh .ci/peers $(ARGS)

conformance: ## bring docs/conformance up to date: ARGS="--only reference", --pages, --check
	@sh .ci/conformance $(ARGS)

fixtures: ## record the fixtures again from real Sidekiq (root, Debian or Ubuntu)
	@sh .ci/fixtures $(ARGS)

lint: ## check format, lint and types
	@sh .ci/lint $(ARGS)

wheel: ## build sdist and wheel into dist/ and try the wheel in an empty environment
	@sh .ci/wheel $(ARGS)

check: ## what the CI runs: test, lint, demo, conformance, interop, chaos for 30 seconds, wheel
	@sh .ci/run $(ARGS)

.PHONY: help demo test faults chaos soak bench interop peers conformance fixtures lint wheel check
