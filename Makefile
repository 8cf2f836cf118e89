# `make demo` and `make test` are all that a newcomer needs; both make their own environment.
PYTHON ?= python3
VENV := .venv
OLD_RAY := .venv-old-ray
BIN := $(VENV)/bin
# What the test cluster needs, installed as root when it is missing.
PACKAGES := slurm-wlm munge iproute2 procps slurmdbd mariadb-server
.PHONY: demo test check bench cluster golden clean packages

demo: $(VENV)/.ready
	@echo '== slurm-launch --exp-name demo --command "python train.py" --num-nodes 3 --num-gpus 4 --time 1:00:00 --dry-run'
	@$(BIN)/slurm-launch --exp-name demo --command "python train.py" --num-nodes 3 --num-gpus 4 --time 1:00:00 --dry-run

test: check packages $(OLD_RAY)/.ready
	$(BIN)/python -m pytest -n 2 -m "not slurm"
	$(BIN)/python -m pytest -m slurm --durations=10

# Every template and golden script goes through bash -n and shellcheck in tests/unit/test_golden.py as well.
check: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/shellcheck --shell=bash templates/parts/*.sh tests/golden/*.sh tests/testbed/*.sh tests/testbed/enter .ci/run

bench: $(VENV)/.ready
	$(BIN)/python -m benchmarks.launcher

# A Slurm cluster of N nodes on this machine to try things on; Ctrl-C ends it.
N ?= 3
cluster: $(VENV)/.ready packages
	$(BIN)/python -m tests.testbed --nodes $(N) --venv $(CURDIR)/$(VENV) --bind $(CURDIR)

golden: $(VENV)/.ready
	$(BIN)/python -m pytest -q tests/unit/test_golden.py --update-golden

$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev,ray]'
	@touch $@

# The last kind of Ray without tokens and without a temporary directory for each node.
$(OLD_RAY)/.ready:
	$(PYTHON) -m venv $(OLD_RAY)
	$(OLD_RAY)/bin/python -m pip install --quiet 'ray==2.40.0' 'click<8.3'
	@touch $@

packages:
	@if [ "$$(id -u)" != 0 ]; then echo 'not root: the tests on the real cluster will be skipped'; \
	elif ! command -v slurmctld slurmd slurmdbd munged ip mariadbd >/dev/null; then \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $(PACKAGES) >/dev/null; fi

clean:
	rm -rf $(VENV) $(OLD_RAY) dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
