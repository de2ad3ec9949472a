# Every target does its own set-up: a virtual environment with pinned packages, then the build. `make help` lists them.
#
#   make test VENV=~/envs/warpalign              another virtual environment than .venv
#   make test WARPALIGN_CUDA_ARCHITECTURES=80    another architecture than this machine's GPU
#   make test PYTEST_ARGS="-k alignment"         arguments for pytest; DEMO_ARGS, BENCH_ARGS, GPU_CHECK_ARGS, ARM_ARGS and RELEASE_ARGS likewise
#   make release RELEASE_FILES="wheel-cpu sdist" a release without the wheel of all GPU architectures

PYTHON ?= python3
VENV ?= .venv
BUILD ?= build
JOBS ?= $(shell nproc)
SANITIZE ?= address,undefined
RELEASE_FILES ?= wheel wheel-cpu sdist

# The GPU's own architecture; without a GPU the CUDA sources are still compiled, for one architecture. There is no PTX in a
# build for one machine.
gpu_arch := $(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | grep -Ex '[0-9]+\.[0-9]+' | head -n 1 | tr -d .)
# A wheel is for other machines too: every architecture, unless they are named on the command line or in the environment.
wheel_cuda := $(if $(WARPALIGN_CUDA_ARCHITECTURES),cmake.define.WARPALIGN_CUDA_ARCHITECTURES=$(WARPALIGN_CUDA_ARCHITECTURES))
WARPALIGN_CUDA_ARCHITECTURES ?= $(or $(gpu_arch),90)-real

# A stamp names the contents of the requirements that were installed: changing them installs again.
requirements_hash := $(shell cat requirements/*.txt | sha256sum | cut -c 1-16)
demo_stamp = $(VENV)/.demo-$(requirements_hash)
dev_stamp = $(VENV)/.dev-$(requirements_hash)

python = $(abspath $(VENV))/bin/python
tool = $(abspath $(VENV))/bin
cmake = cmake -S . -G Ninja -DCMAKE_MAKE_PROGRAM=$(tool)/ninja -DPython_EXECUTABLE=$(python) \
  -DWARPALIGN_WARNINGS_AS_ERRORS=ON --log-level=WARNING -Wno-dev
cuda = "-DWARPALIGN_CUDA_ARCHITECTURES=$(WARPALIGN_CUDA_ARCHITECTURES)"
cxx_files = $(shell find include src bindings tests benchmarks examples \( -name '*.h' -o -name '*.inl' -o -name '*.cpp' -o -name '*.cuh' -o -name '*.cu' \) 2>/dev/null)
# The CUDA library's own source needs a CUDA torch, which the lint build does without.
tidy_files = $(shell find src bindings -name '*.cpp' -not -name '*_cuda.cpp' 2>/dev/null)
export PYTHONPATH := $(CURDIR)/python

# $(1): whether the C++ tests are built too. $(2): ON prints each CUDA kernel's registers and spills.
define build_libraries
$(cmake) -B $(BUILD)/dev -DWARPALIGN_BUILD_TORCH=ON -DWARPALIGN_BUILD_JAX=AUTO -DWARPALIGN_BUILD_TESTS=$(1) -DWARPALIGN_PTXAS_VERBOSE=$(or $(2),OFF) $(cuda)
cmake --build $(BUILD)/dev -j $(JOBS)
cmake --install $(BUILD)/dev --component python --prefix python
endef

.PHONY: help demo test test-arm test-clang lint format sanitize docs wheel wheel-cpu sdist release bench gpu-check tune tuning build clean
.DEFAULT_GOAL := help
.NOTPARALLEL:  # each step is parallel inside, and two would fight over the virtual environment

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## */\1 /p' Makefile | awk '{ name = $$1; $$1 = ""; printf "  make %-10s %s\n", name, $$0 }'

demo: build  ## the main jobs on real series, words, speech and point sets; plots under out/
	$(python) examples/demo.py $(DEMO_ARGS)
	$(python) examples/transport.py --quick
	$(python) examples/gromov.py --quick
	$(python) examples/pronounce.py --quick
	$(python) examples/align_speech.py --quick
	$(python) examples/recognise_speech.py --quick --device cpu

test: $(dev_stamp)  ## every test that can run on this machine
	$(call build_libraries,ON)
	$(python) tools/run_tests.py $(BUILD)/dev $(PYTEST_ARGS)

# Debian: g++-aarch64-linux-gnu, qemu-user, libgtest-dev. ARM_ARGS: arguments for ctest.
test-arm: $(dev_stamp)  ## the C++ tests of the CPU path, cross-compiled for 64-bit Arm, in qemu
	$(cmake) -B $(BUILD)/arm --toolchain cmake/aarch64-linux-gnu.cmake -DWARPALIGN_CUDA=OFF -DWARPALIGN_BUILD_TESTS=ON
	cmake --build $(BUILD)/arm -j $(JOBS)
	ctest --test-dir $(BUILD)/arm -j $(JOBS) --output-on-failure --no-tests=error $(ARM_ARGS)

test-clang: $(dev_stamp)  ## the C++ tests of the CPU path, compiled with clang++, warnings as errors
	$(cmake) -B $(BUILD)/clang -DCMAKE_CXX_COMPILER=clang++ -DWARPALIGN_CUDA=OFF -DWARPALIGN_BUILD_TESTS=ON
	cmake --build $(BUILD)/clang -j $(JOBS)
	ctest --test-dir $(BUILD)/clang -j $(JOBS) --output-on-failure --no-tests=error

lint: $(dev_stamp)  ## formatting, static analysis, types, dependency direction, sizes
	$(tool)/clang-format --dry-run -Werror $(cxx_files)
	$(tool)/ruff format --check .
	$(tool)/ruff check .
	$(python) tools/make_tuning.py --check
	$(python) tools/check_layers.py
	$(python) tools/check_sizes.py
	$(python) tools/check_python_layers.py
	$(cmake) -B $(BUILD)/lint -DWARPALIGN_CUDA=OFF -DWARPALIGN_BUILD_TORCH=ON -DWARPALIGN_BUILD_JAX=AUTO
	$(MAKE) -f tools/lint.mk -j $(JOBS) -k -O tool=$(tool) build=$(BUILD)/lint files="$(tidy_files)"

format: $(dev_stamp)  ## rewrites the sources as `make lint` wants them
	$(tool)/clang-format -i $(cxx_files)
	$(tool)/ruff format .
	$(tool)/ruff check --fix .

sanitize: $(dev_stamp)  ## the C++ tests under AddressSanitizer and UndefinedBehaviorSanitizer; SANITIZE=thread: for races
	$(cmake) -B $(BUILD)/sanitize -DCMAKE_BUILD_TYPE=RelWithDebInfo -DWARPALIGN_CUDA=OFF -DWARPALIGN_BUILD_TESTS=ON \
	  -DWARPALIGN_SANITIZE=$(SANITIZE)
	cmake --build $(BUILD)/sanitize -j $(JOBS)
	ctest --test-dir $(BUILD)/sanitize -j $(JOBS) --output-on-failure --no-tests=error

docs: $(dev_stamp) build  ## the documentation site, with warnings as errors, in build/site (Python 3.11)
	NO_MKDOCS_2_WARNING=1 $(tool)/mkdocs build --strict

wheel: $(dev_stamp)  ## the wheel for other machines, in dist/, with its platform tag checked
	$(python) tools/make_wheel.py dist build-dir=$(abspath $(BUILD))/wheel-all $(wheel_cuda)

wheel-cpu: $(dev_stamp)  ## the wheel without CUDA, in dist/cpu/
	$(python) tools/make_wheel.py dist/cpu build-dir=$(abspath $(BUILD))/wheel-cpu cmake.define.WARPALIGN_CUDA=OFF

sdist: $(dev_stamp)  ## the source distribution, in dist/
	$(python) tools/make_sdist.py dist

# RELEASE_ARGS: --glibc, --python, --torch (tools/check_release.py). A release is built in a manylinux_2_28 container.
release: $(dev_stamp)  ## all files of a release in dist/, each checked, installed, run and uninstalled
	rm -rf dist
	$(MAKE) $(RELEASE_FILES)
	$(python) -m pip install --no-compile -r requirements/release.txt
	$(python) tools/check_release.py dist --build-sdist $(RELEASE_ARGS)

bench: $(dev_stamp)  ## the C++ benchmarks of the CPU path
	$(cmake) -B $(BUILD)/bench -DWARPALIGN_BUILD_BENCHMARKS=ON -DWARPALIGN_CUDA=OFF
	cmake --build $(BUILD)/bench -j $(JOBS)
	set -e; for program in $(BUILD)/bench/benchmarks/*benchmark*; do \
	  if [ -f $$program ] && [ -x $$program ]; then $$program $(BENCH_ARGS); fi; done

gpu-check: $(dev_stamp)  ## on a GPU machine: GPU tests and the timing table, into benchmarks/results/
	$(call build_libraries,ON,ON)
	$(python) -m benchmarks.gpu_check --no-build $(GPU_CHECK_ARGS)

# OPERATOR is one of tuning/*.json. ONLY=name,...: these thresholds. TUNE_ARGS: --dry-run, --device (benchmarks/tune.py)
tune: $(dev_stamp)  ## derives an operator's thresholds again on this machine, into tuning/OPERATOR.json
	@test -n "$(OPERATOR)" || { echo "make tune needs OPERATOR, one of: $(basename $(notdir $(wildcard tuning/*.json)))"; exit 2; }
	$(call build_libraries,OFF)
	$(python) -m benchmarks.tune --operator $(OPERATOR) $(if $(ONLY),--only $(ONLY)) $(TUNE_ARGS)

tuning:  ## the sources that are generated from tuning/*.json
	$(PYTHON) tools/make_tuning.py

# The PyTorch libraries for this machine, put beside the Python sources.
build: $(demo_stamp)
	$(call build_libraries,OFF)

clean:  ## removes what was built, but not the virtual environment
	rm -rf $(BUILD) dist out python/warpalign/lib

$(VENV)/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.10 or later is needed") if sys.version_info < (3, 10) else None'
	$(PYTHON) -m venv $(VENV)

# Python compiles a package's files when they are first imported; all of them at once take a minute of one core.
$(demo_stamp): | $(VENV)/bin/pip
	$(python) -m pip install --no-compile -r requirements/demo.txt
	@rm -f $(VENV)/.demo-* && touch $@

$(dev_stamp): | $(VENV)/bin/pip
	$(python) -m pip install --no-compile -r requirements/dev.txt
	@rm -f $(VENV)/.demo-* $(VENV)/.dev-* && touch $(demo_stamp) $@
