# Everything a contributor does. `make` alone lists the targets.
# Needs python3 (3.11 or newer) and make; the control plane for tests and the tour also needs Go, see testbed/go.mod.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
PY := .venv/bin/python
# Used only where no uv is installed: it is then put into the environment itself.
UV_REQUIREMENT := uv>=0.13,<1
ARGS ?=
# All tests are done in five parts side by side: tests/parts.py.
IN_PARTS := -n 5 --dist each
# Attacks mostly wait, so several processes do a module each, on a control plane of their own, the longest modules first.
# So do tests of operators: the tests of one operator each.
OPERATORS_AT_ONCE := -n 3 --dist loadgroup
ATTACKS_AT_ONCE := -n 3 --dist loadfile --no-loadscope-reorder

# Where this is set each start of Turnstile compiles all that it imports: almost a second, in a hundred starts of a run.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## List the targets
	@echo "usage: make TARGET [ARGS=...]"
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

.PHONY: venv
venv: .venv/.synced ## Make .venv with the locked dependencies (with or without uv on this machine)

.venv/.synced: uv.lock pyproject.toml
	@if uv --version >/dev/null 2>&1; then \
	  uv sync --frozen; \
	else \
	  if [ ! -x .venv/bin/uv ]; then \
	    $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	      { echo "error: $(PYTHON) is older than 3.11: install a newer Python, or name one with PYTHON=..." >&2; exit 1; }; \
	    $(PYTHON) -m venv .venv || \
	      { echo "error: $(PYTHON) cannot make a virtual environment: install its venv module (Debian: python3-venv)" >&2; exit 1; }; \
	    $(PY) -m pip install --quiet --disable-pip-version-check '$(UV_REQUIREMENT)'; \
	  fi; \
	  .venv/bin/uv sync --frozen --inexact --python $(PY); \
	fi
	@touch $@

.PHONY: build
build: venv ## Build the control plane of the test bed (minutes the first time, then nothing)
	@$(PY) -m testbed build

.PHONY: run
run: venv ## See it work: a control plane, Turnstile, example queues and Jobs, a live table, the page (ARGS=--once ends by itself)
	@$(PY) -m testbed.tour $(ARGS)

.PHONY: test
test: build ## Run all tests but those of the targets test-*, in five parts side by side (ARGS="tests/unit -k quota" for some)
	@$(PY) -m pytest $(or $(ARGS),$(IN_PARTS))

# The suites of the targets test-*, which nobody runs with every change, still import what they test.
.PHONY: collect
collect: venv ## Import the tests of all suites without running them
	@$(PY) -m pytest --collect-only -qq $(addprefix tests,/ /attacks /browser /clusters /faults /image /node /operators /peers /submitters) >/dev/null || \
	  { echo "error: a test cannot be imported: $(PY) -m pytest --collect-only tests/SUITE says which" >&2; exit 1; }

.PHONY: test-attacks
test-attacks: build ## Run the attacks of a tenant on the quota, several at once (ARGS="-k orphan" for some)
	@$(PY) -m pytest tests/attacks $(ATTACKS_AT_ONCE) $(ARGS)

.PHONY: test-faults
test-faults: build ## Run the tests of outages, lost answers, kills, an API server in trouble, and three minutes of the soak (ARGS="-k etcd" for some)
	@$(PY) -m pytest tests/faults -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

.PHONY: test-clusters
test-clusters: build ## Run the tests of MultiKueue with a manager and its workers, each a control plane (ARGS="-k profile" for some)
	@$(PY) -m pytest tests/clusters -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

.PHONY: soak
soak: build ## Run the soak for half an hour (SOAK_SECONDS=600 SOAK_SEED=7 for ten minutes of another seed)
	@SOAK_SECONDS=$${SOAK_SECONDS:-1800} $(PY) -m pytest tests/faults/test_soak.py -s $(ARGS)

.PHONY: build-operators
build-operators: build ## Build the job operators of the test bed (a minute or two each the first time, then nothing; NAMES="jobset lws" for some)
	@$(PY) -m testbed build --operators $(NAMES)

.PHONY: test-operators
test-operators: build ## Run the tests with real job operators, which are built on demand, several at once (ARGS="-k jobset" for some)
	@$(PY) -m pytest tests/operators $(OPERATORS_AT_ONCE) $(ARGS)

.PHONY: test-versions
test-versions: build ## Run what depends on the release of Kubernetes on the oldest one supported, built on demand, and on the newest
	@$(PY) -m tests.versions $(ARGS)

.PHONY: test-peers
test-peers: build ## Run the tests with Kueue itself, which is built on demand: kueuectl, moving over and back (MOVE_JOBS=60 for a smaller move)
	@$(PY) -m pytest tests/peers -n 2 --dist loadfile $(ARGS)

.PHONY: test-submitters
test-submitters: build ## Run the pages about Airflow, Argo Workflows and others with these programs, installed on demand
	@$(PY) -m pytest tests/submitters $(ARGS)

.PHONY: test-image
test-image: build ## Build the image twice and run the chart from it on the test bed (root, buildah and mmdebstrap; else it says why not)
	@$(PY) -m pytest tests/image $(ARGS)

.PHONY: test-node
test-node: build ## Run the chart from the image on a real node, built on demand (root, Debian's containerd and others; else it says why not)
	@$(PY) -m tests.node $(ARGS)

.PHONY: test-browser
test-browser: browser ## Run the tests of the page in a real Chromium (Debian's chromium; else they say why not)
	@$(PY) -m pytest tests/browser $(ARGS)

.PHONY: docs
docs: venv ## Build a site with search of all pages into .site (python -m http.server -d .site/site shows it)
	@if uv --version >/dev/null 2>&1; then uv=uv; else uv=.venv/bin/uv; fi; $$uv sync --quiet --frozen --inexact --group docs
	@$(PY) -m tests.site .site

.PHONY: screenshots
screenshots: browser ## Take the pictures of the page in docs/images (Debian's chromium)
	@$(PY) -m tests.browser.screenshots docs/images

# Playwright and axe-core, besides what .venv has; the next `make venv` may take them out again.
.PHONY: browser
browser: venv
	@if uv --version >/dev/null 2>&1; then uv=uv; else uv=.venv/bin/uv; fi; $$uv sync --quiet --frozen --inexact --group browser

.PHONY: image
image: ## Build the image with buildah or docker (IMAGE=REGISTRY/turnstile:0.1.0, BASE=another base; docs/install.md)
	@bash charts/image.sh "$(IMAGE)" $(if $(BASE),--build-arg BASE=$(BASE)) $(ARGS)

.PHONY: release
release: build ## Make the files of a release into dist (VERSION=0.1.0, IMAGE=REGISTRY/turnstile, URL=https://..., HOMEPAGE; DRY_RUN=1 needs none)
	@$(PY) -m distribution "$(VERSION)" $(if $(IMAGE),--image $(IMAGE)) $(if $(URL),--url $(URL)) $(if $(HOMEPAGE),--homepage $(HOMEPAGE)) $(if $(DRY_RUN),--dry-run) $(ARGS)

.PHONY: bench
bench: build ## Measure; docs/performance.md explains the figures
	@$(PY) -m tests.bench $(ARGS)

.PHONY: conformance
conformance: venv ## Run the recorded decisions of Kueue (SUITES='webhooks.* apis.*' for some, CASES_DIR=another directory)
	@$(if $(CASES_DIR),CASES_DIR=$(CASES_DIR)) $(PY) -m tests.conformance $(foreach suite,$(SUITES),'$(suite)') $(ARGS)

.PHONY: lint
lint: venv ## Lint and check the format
	@$(PY) -m ruff check
	@$(PY) -m ruff format --check

.PHONY: types
types: venv ## Check the types (mypy, strict)
	@$(PY) -m mypy

.PHONY: floors
floors: venv ## Check that imports go one way
	@.venv/bin/lint-imports

.PHONY: generate
generate: venv ## Write what is made from code: CRDs and job kinds of the chart, docs/reference, tables of attacks, golden reviews
	@$(PY) -m turnstile.api.crd charts/turnstile/crds
	@$(PY) -m turnstile.api.reference docs/reference/api.md
	@$(PY) -m turnstile.cli.reference docs/reference/cli.md
	@$(PY) -m turnstile.wording.reference docs/reference/reasons.md
	@$(PY) -m turnstile.client.reference docs/reference/client.md
	@$(PY) -m turnstile.api.config.schema docs/reference/configuration.schema.json
	@$(PY) -m turnstile.jobs.generate charts/turnstile/files/kinds.yaml \
	  charts/turnstile/files/customkind.yaml docs/reference/kinds.md app/turnstile/api/config/kinds.py
	@$(PY) -m tests.modules
	@$(PY) -m tests.attacks.page
	@$(PY) -m tests.operators.page
	@$(PY) -m tests.unit.webhooks.golden

.PHONY: changelog
changelog: venv ## Show what the next release changes; with VERSION=0.2.0 write it into CHANGELOG.md and remove the fragments
	@$(PY) -m towncrier build $(if $(VERSION),--version $(VERSION) --yes,--version next --draft) $(ARGS)

.PHONY: certs
certs: venv ## Make a CA and a webhook certificate for development (certs/README.md)
	@$(PY) certs/make_certs.py $(if $(OUT),--out $(OUT)) $(HOSTS) $(ARGS)

.PHONY: ci
ci: ## What continuous integration does for each change (ARGS=--all for what it does every night)
	@bash .ci/run $(ARGS)

.PHONY: clean
clean: ## Remove what was made here; the built control plane in the user's cache stays
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
