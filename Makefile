# One target for each job; `make help` lists them. Scripts do the work.
CARGO   ?= cargo
PREFIX  ?= /usr/local
DESTDIR ?=

.DEFAULT_GOAL := help
.PHONY: help build demo test lint bench test-gpu bench-gpu soak replay install clean

help:           ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 20

build:          ## the command and the library, in target/release
	$(CARGO) build --release --workspace

demo: build     ## a program that leaks, and the report that says so
	tests/demo/run

test:           ## everything that needs no GPU; STEPS="a b" picks steps
	scripts/test $(STEPS)

lint:           ## formatting, clippy, shellcheck
	scripts/test lint

bench: build    ## the pool alone, and under a program on the simulated driver
	$(CARGO) bench --bench pool
	tests/sim-driver/scripts/sim-lib.sh release >/dev/null
	scripts/bench

bench-gpu:      ## nanoseconds of an allocation and its free on a GPU, beside other pools
	scripts/bench --gpu

soak: build     ## ten minutes (or SECONDS=n) of random work by 8 threads, checked
	tests/sim-driver/scripts/sim-lib.sh release >/dev/null
	scripts/soak $(SECONDS)

replay: build   ## the recorded traces against the pool and PyTorch's rules
	scripts/replay

test-gpu:       ## everything that needs a GPU; PARTS="a b" picks parts
	scripts/test-gpu $(PARTS:%=--part %)

install: build  ## bin/cushion and lib/libcushion.so under PREFIX
	install -Dm755 target/release/cushion '$(DESTDIR)$(PREFIX)/bin/cushion'
	install -Dm755 target/release/libcushion.so '$(DESTDIR)$(PREFIX)/lib/libcushion.so'

clean:          ## what was built, .venv included
	$(CARGO) clean
	rm -rf .venv out
	for folder in conformance gpu properties simcudart; do $(MAKE) -C tests/$$folder clean; done
