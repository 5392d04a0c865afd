# A thin front for CMake and scripts/: `make help` says what there is.
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 60

BUILD := build
CONFIGURE_OPTIONS := $(if $(shell command -v ccache),-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
SENTENCE := The chicken didn't cross the road because it was too tired
SOURCES = $(shell git ls-files '*.h' '*.cc')

.DEFAULT_GOAL := help
.PHONY: help look test test-python build models setup arm64 asan tsan fuzz soak format tidy install clean
.NOTPARALLEL:

help:             ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1 \t/p' $(MAKEFILE_LIST) | expand -t 14

look: setup $(BUILD)/build.ninja  ## set up, build, and show what `it` attends to in a sentence
	@scripts/models
	@cmake --build $(BUILD) --target qkv_cli
	$(BUILD)/qkv look "$(SENTENCE)" --token it --output look.png --output look.html

test: setup build ## set up, build everything, run the tests
	@scripts/models minilm smollm2
	ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS)

test-python: build ## set up, build and test the Python package, beside PyTorch too, and the pages in a browser
	@scripts/python-test --peers

build: $(BUILD)/build.ninja  ## build everything, without set-up
	@cmake --build $(BUILD)

models:           ## fetch every known model, not the default one alone
	@scripts/models minilm smollm2

setup:            ## install the packages that are missing
	@scripts/setup

# Ninja runs CMake again by itself when a CMake file changes.
$(BUILD)/build.ninja:
	cmake --preset release $(CONFIGURE_OPTIONS)

asan: setup       ## the tests under AddressSanitizer and UBSan
	@scripts/models minilm smollm2
	cmake --preset asan $(CONFIGURE_OPTIONS)
	cmake --build --preset asan
	ctest --preset asan -j $(JOBS)

# oneDNN's runtime is not instrumented, so the threads of our own code are what can be checked.
tsan:             ## the tests of the threaded layers under ThreadSanitizer
	@scripts/setup clang
	cmake --preset tsan $(CONFIGURE_OPTIONS)
	cmake --build --preset tsan --target test_runtime test_attention
	TSAN_OPTIONS=ignore_noninstrumented_modules=1 ctest --preset tsan -R '^(runtime|attention)$$'

# What an emulated processor has time for: the grids of edges and options, without random sets and without death tests,
# which start processes.
arm64:            ## the operator built for arm64 and tested under qemu-user
	@scripts/setup arm64
	cmake --preset arm64 $(CONFIGURE_OPTIONS)
	cmake --build --preset arm64
	ctest --preset arm64 -j $(JOBS)

fuzz:             ## each fuzz target for FUZZ_SECONDS
	@scripts/setup clang
	cmake --preset fuzz $(CONFIGURE_OPTIONS)
	cmake --build --preset fuzz
	scripts/fuzz $(BUILD)/fuzz $(FUZZ_SECONDS)

soak: build       ## kill training runs at 50 moments and resume them, some minutes
	QKV_COMMAND=$(CURDIR)/$(BUILD)/qkv python3 tests/cli/train_soak.py

format:           ## lay out the sources with clang-format
	@scripts/setup clang
	clang-format-14 -i $(SOURCES)

tidy: build       ## clang-tidy over the sources
	@scripts/setup clang
	run-clang-tidy-14 -quiet -p $(BUILD) $(filter %.cc,$(SOURCES))

install: build    ## install under PREFIX
	cmake --install $(BUILD) --prefix $(PREFIX)

clean:            ## remove what was built
	rm -rf $(BUILD) look.png look.html
