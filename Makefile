# Short names for the common jobs. Everything real is in CMake and scripts/.
.DEFAULT_GOAL := help
.PHONY: help build demo test unit lint fmt asan tsan fuzz fuzz-replay bench bench-kernels eval soak install clean

BUILD ?= build
JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 60

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Build the library and the command into build/ (installs what is missing)
	@scripts/bootstrap.sh build
	@./build.sh

demo: build ## Build, then let the bundled model speak
	@printf 'She was'
	@$(BUILD)/apps/deepinfer run --model models/tiny --prompt "She was" --seed 4 --temperature 0.7 --max-tokens 120 --stats

test: ## Build, run the unit tests and the tests against independent implementations
	@scripts/bootstrap.sh build test
	@DEEPINFER_TESTS=1 ./build.sh
	ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS)
	.venv/bin/python -m pytest -q tests/python tests/lint

lint: ## Format, layer rule, sizes, forbidden calls, spelling, clang-tidy
	@scripts/bootstrap.sh build lint
	@scripts/lint.sh

fmt: ## Format all C files in place
	@scripts/bootstrap.sh lint
	clang-format-19 -i $$(git ls-files '*.c' '*.h')

asan: ## Unit tests under the address and undefined-behaviour sanitizers (clang)
	@scripts/bootstrap.sh build lint
	@scripts/sanitize.sh address,undefined

tsan: ## Unit tests under the thread sanitizer (clang)
	@scripts/bootstrap.sh build lint
	@scripts/sanitize.sh thread

fuzz: ## Fuzz every parser for FUZZ_SECONDS (60) each
	@scripts/bootstrap.sh build lint
	@scripts/fuzz.sh $(FUZZ_SECONDS)

fuzz-replay: ## Run the committed fuzz corpora once
	@scripts/bootstrap.sh build lint
	@scripts/fuzz.sh replay

bench: build ## Speed of the bundled model on this machine
	@scripts/bench.sh $(BUILD)/apps/deepinfer

bench-kernels: ## Speed of every operation against the limits of this machine (ARGS, see bench/README.md)
	@scripts/bootstrap.sh build
	@cmake -S . -B build-bench -G Ninja -DDEEPINFER_BENCH=ON -DDEEPINFER_TESTS=OFF >/dev/null
	@cmake --build build-bench --target deepinfer-bench-kernels
	@build-bench/bench/kernels/deepinfer-bench-kernels $(ARGS)

eval: build ## What the bundled model can do, on frozen sets (table, build/eval.json, build/recall.svg)
	@scripts/bootstrap.sh build test
	@.venv/bin/python -c 'import matplotlib' 2>/dev/null || .venv/bin/pip install -q matplotlib
	@PYTHONPATH=python DEEPINFER_BUILD_DIR=$(BUILD) .venv/bin/python eval/run.py models/tiny \
	    --json $(BUILD)/eval.json --plot $(BUILD)/recall.svg

soak: build ## Long checks: every chunk size on the larger golden set, a million traces, ten minutes under load
	@scripts/bootstrap.sh test
	DEEPINFER_SOAK=1 .venv/bin/python -m pytest -q tests/python
	@DEEPINFER_TESTS=1 ./build.sh
	DI_TRACES=1000000 $(BUILD)/tests/unit_api_traces
	DI_SOAK_MODEL=models/tiny DI_SOAK_REQUESTS=2000 DI_SOAK_SECONDS=600 $(BUILD)/tests/unit_api_soak

install: build ## Install the library, headers and command (PREFIX, DESTDIR)
	cmake --install $(BUILD) $(if $(PREFIX),--prefix $(PREFIX))

clean: ## Remove build folders
	rm -rf build build-*
