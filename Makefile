# Each target runs one script of .ci/; the scripts also run without make. ARGS goes to the script:
#   make test ARGS="-k wheel"

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' Makefile

demo: ## run an example application with its own server and worker; ARGS=--web: with the page
	@sh .ci/demo $(ARGS)

test: ## run the tests that need no root and cost little (no marker thorough)
	@sh .ci/test $(ARGS)

thorough: ## run the tests that take more than 2 s
	@sh .ci/thorough $(ARGS)

flaky: ## run the tests many times under load and list those that waver: ARGS="--runs 5 --io", "--suite --runs 50"
	@sh .ci/flaky $(ARGS)

coverage: ## check that tests run through every branch of jobwire.protocol
	@sh .ci/coverage $(ARGS)

oldest: ## run the integration tests with the oldest libraries that pyproject.toml allows
	@sh .ci/oldest $(ARGS)

django: ## run the tests of jobwire.django with Django 6 (needs Python 3.12)
	@sh .ci/django $(ARGS)

faults: ## break each command of a process once and count the jobs (minutes)
	@sh .ci/faults $(ARGS)

chaos: ## kill and cut workers at random and count the jobs: SECONDS=180 SEED=any
	@sh .ci/chaos $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED)) $(ARGS)

model: ## check the model of the reliable profile with spin (minutes): ARGS=--write
	@sh .ci/model $(ARGS)

soak: ## run a million jobs through one process and watch its memory and files (Linux)
	@sh .ci/soak $(ARGS)

bench: ## measure each part of the path of a job: ARGS=--benchmark-autosave, ARGS=targets
	@sh .ci/bench $(ARGS)

web-test: ## run the tests of the web page in Chromium (root on Debian or Ubuntu gets it): ARGS=--pictures
	@sh .ci/web-test $(ARGS)

interop: ## run the tests with real Sidekiq (root, Debian or Ubuntu)
	@sh .ci/interop $(ARGS)

peers: ## run the suite on other implementations, and pairs of them: ARGS="--only php"
	@sh .ci/peers $(ARGS)

conformance: ## update docs/conformance: ARGS="--only reference", --pages, --check, --variants
	@sh .ci/conformance $(ARGS)

fixtures: ## record the fixtures again from real Sidekiq (root, Debian or Ubuntu)
	@sh .ci/fixtures $(ARGS)

lint: ## check format, lint, types, the specification and the language
	@sh .ci/lint $(ARGS)

site: ## build the site of the documentation into build/site
	@sh .ci/site $(ARGS)

wheel: ## build sdist and wheel into dist/ and try the wheel in an empty environment
	@sh .ci/wheel $(ARGS)

check: ## run everything that CI runs: test, thorough, oldest, django, coverage, lint, site, demo, web-test, conformance, model, interop, chaos, wheel
	@sh .ci/run $(ARGS)

.PHONY: help demo test thorough web-test flaky oldest django coverage faults chaos model soak bench interop peers conformance fixtures lint site wheel check
