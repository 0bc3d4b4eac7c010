# Each target runs one script of .ci/; the scripts also run without make. ARGS goes to the script:
#   make test ARGS="-k wheel"

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' Makefile

demo: ## run an example application with its own server and worker; ARGS=--web: with the page
	@sh .ci/demo $(ARGS)

test: ## run the tests that work in one process or with one server: two minutes
	@sh .ci/test $(ARGS)

check: ## run the gate, all that CI runs: tests, lint, demo, wheel, site, conformance: 15 minutes
	@sh .ci/run $(ARGS)

release-check: ## run the rest, an hour or more; one step: ARGS="chaos --seconds 180"
	@sh .ci/release-check $(ARGS)

flaky: ## run tests many times under load and list those that waver: those of the last run, or ARGS
	@sh .ci/flaky $(ARGS)

bench: ## measure each part of the path of a job: ARGS=--benchmark-autosave, ARGS=targets
	@sh .ci/bench $(ARGS)

interop: ## run the tests with real Sidekiq (root, Debian or Ubuntu)
	@sh .ci/interop $(ARGS)

conformance: ## update docs/conformance: ARGS="--only reference", --pages, --check, --variants
	@sh .ci/conformance $(ARGS)

fixtures: ## record the fixtures again from real Sidekiq (root, Debian or Ubuntu)
	@sh .ci/fixtures $(ARGS)

generate: ## write the committed files that are made from others
	@sh .ci/generate $(ARGS)

lint: ## check format, lint, types, the specification and the language
	@sh .ci/lint $(ARGS)

site: ## build the site of the documentation into build/site
	@sh .ci/site $(ARGS)

wheel: ## build sdist and wheel into dist/ and try the wheel in an empty environment
	@sh .ci/wheel $(ARGS)

.PHONY: help demo test check release-check flaky bench interop conformance fixtures generate lint site wheel
