# `make demo` and `make test` are all that a newcomer needs; both make their own environment.
PYTHON ?= python3
VENV := .venv
OLD_RAY := .venv-old-ray
BIN := $(VENV)/bin
# What the test cluster needs, installed as root when it is missing.
PACKAGES := slurm-wlm munge iproute2 procps slurmdbd mariadb-server debootstrap
PACKAGES += gcc libc6-dev libslurm-dev charliecloud-runtime # for containers
.PHONY: demo test matrix soak check bench picture cluster golden clean packages

DEMO := slurm-launch rehearse --exp-name demo --command "python examples/pi.py" --num-nodes 3
demo: $(VENV)/.ready
	@echo '$$ $(DEMO)'
	@PATH="$(CURDIR)/$(BIN):$$PATH" SLAUNCH_RUN_DIR=runs $(DEMO)

# Two at a time: many tests on the cluster wait for a timer of Slurm's, and each worker has a cluster of its own.
# Tests that share something else are of one xdist_group, which runs in one worker.
test: check packages $(OLD_RAY)/.ready $(VENV)/.examples
	$(BIN)/python -m pytest -n 2 --dist loadgroup --durations=25 --cov=slurm_launch --cov-report=
	@echo "coverage of slurm_launch by these tests: $$($(BIN)/coverage report --format=total) %"

# The core of the tests on a newer Slurm, in a folder that debootstrap makes once (SUITE=sid for the newest).
SUITE ?= trixie
CORE := bring_up limits out_of_memory by_hand exit_codes shared_nodes faults teardown rehearsal_is_true after_launch control heterogeneous requeue
matrix: packages $(OLD_RAY)/.ready $(VENV)/.ready
	$(BIN)/python -m tests.testbed --prepare $(SUITE)
	TESTBED_SUITE=$(SUITE) $(BIN)/python -m pytest -n 2 --dist loadgroup $(CORE:%=tests/slurm/test_%.py)

# Ten rounds of jobs that start at the same moment on the same nodes.
soak: packages $(VENV)/.ready
	SOAK_ROUNDS=10 $(BIN)/python -m pytest tests/slurm/test_shared_nodes.py -k same_moment

SHELL_FILES := tests/golden/*.sh templates/attach.sh benchmarks/ways/*.sh .ci/run tests/testbed/*.sh tests/testbed/enter
check: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/shfmt -d -i 2 -ci $(SHELL_FILES) templates/parts/*.sh
	$(BIN)/shellcheck --shell=bash $(SHELL_FILES)
	$(BIN)/shellcheck --shell=bash --exclude=SC2004,SC2034,SC2154,SC2329 templates/parts/*.sh # one sets what another reads

# All that is measured, side by side; the table and the plot go to benchmarks/results/ (PARTS="launcher runs" for some only).
# PARTS=against AGAINST=REV compares the script with that of an earlier commit.
PARTS ?=
export AGAINST
bench: packages $(VENV)/.ready
	$(BIN)/python -m benchmarks $(PARTS)

# The terminal in the README, recorded anew.
picture: $(VENV)/.ready
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python docs/record.py docs/rehearsal.svg $(DEMO)

# A Slurm cluster of N nodes on this machine to try things on; Ctrl-C ends it.
N ?= 3
cluster: $(VENV)/.ready packages
	$(BIN)/python -m tests.testbed --nodes $(N) --venv $(CURDIR)/$(VENV) --bind $(CURDIR)

golden: $(VENV)/.ready
	$(BIN)/python -m pytest -q tests/unit/test_golden.py --update-golden

# constraints.txt pins what development installs, so that a new release of a tool does not turn `make test` red.
$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,ray]'
	@touch $@

# What the examples need beside Ray.
$(VENV)/.examples: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[examples]'
	@touch $@

# The last kind of Ray without tokens and without a temporary directory for each node.
$(OLD_RAY)/.ready:
	$(PYTHON) -m venv $(OLD_RAY)
	$(OLD_RAY)/bin/python -m pip install --quiet 'ray==2.40.0' 'click<8.3'
	@touch $@

packages:
	@if [ "$$(id -u)" != 0 ]; then echo 'not root: the tests on the real cluster will be skipped'; \
	elif ! command -v apt-get >/dev/null; then echo 'no apt-get: install Slurm yourself, or the tests on the real cluster will be skipped'; \
	elif ! (for tool in slurmctld slurmd slurmdbd munged ip mariadbd debootstrap gcc ch-run /usr/include/slurm/spank.h; do \
	  command -v $$tool >/dev/null || [ -e $$tool ] || exit 1; done); then \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $(PACKAGES) >/dev/null; fi

clean:
	rm -rf $(VENV) $(OLD_RAY) dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
