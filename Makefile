# Sluice: every command a person needs. The building itself is Meson's (meson.build).
#
#   make run      install what is missing, build, run the daemon with the embedded configuration
#   make test     install what is missing, build with sanitizers, run all tests
#   make build    the programs, in build/
#   make demo     a minute of a newsletter, password resets and sites that misbehave, with the dashboard
#   make demo-cluster    three nodes over one PostgreSQL under load; a node and the primary are killed
#   make bench    measure (see bench/README.md)    make fuzz    long fuzzing
#   make install  DESTDIR= PREFIX=/usr/local SENDMAIL=auto|yes|no       make format  clang-format

PREFIX ?= /usr/local
DESTDIR ?=
SENDMAIL ?= auto
FUZZ_SECONDS ?= 600
# Trees for tests, which start thousands of processes: at a fixed address each has a quarter fewer page faults. Where behaviour is
# undefined it stops, and its line is told: to say what was undefined takes a description at each check, which are most of a
# program. What a sanitizer reports needs lines, no variables. The system's 140 authorities are a third of what a process does that
# delivers in a test.
UNDEFINED = -fsanitize-undefined-trap-on-error
SANITIZED = -Doptimization=1 -Db_sanitize=address,undefined -Db_lundef=false -Db_pie=false -Db_staticpic=false \
	-Dc_args='-g1 -fno-pie $(UNDEFINED)' -Dc_link_args='-Wl,-no-pie $(UNDEFINED)' \
	-Dsystem_trust=$(CURDIR)/tests/support/authority.pem
export PATH := /usr/bin:/bin:/usr/sbin:/sbin:$(PATH)

# Prints nothing unless it fails.
quietly = said=$$($(1) 2>&1) || { echo "$$said"; exit 1; }

.PHONY: demo demo-cluster run build tools build-test build-clang test bench bench-relay fuzz soak format install clean

run: build
	@exec build/sluiced

demo: build
	@exec scripts/demo

demo-cluster: build
	@scripts/setup test
	@scripts/tools build/tools
	@exec scripts/demo-cluster

build: build/build.ninja
	@$(call quietly,ninja -C build --quiet)

build/build.ninja:
	@scripts/setup build
	@meson setup build --buildtype=debugoptimized -Dtests=false >/dev/null

test:
	@scripts/setup test
	@$(MAKE) --no-print-directory -j2 build-clang tools build build-test
	@python3 tests/run.py

tools:
	@scripts/tools build/tools

build-test: build-test/build.ninja
	@$(call quietly,ninja -C build-test --quiet)

build-test/build.ninja:
	@CC_LD=lld meson setup build-test $(SANITIZED) >/dev/null

build-clang: build-clang/build.ninja
	@$(call quietly,ninja -C build-clang --quiet fuzz_targets)

build-clang/build.ninja:
	@CC=clang CC_LD=lld meson setup build-clang -Dfuzz=true $(SANITIZED) >/dev/null

bench: build
	@scripts/setup test
	@scripts/tools build/tools
	@meson configure build -Dtests=false >/dev/null
	@$(call quietly,ninja -C build --quiet bench_core bench_spool bench_fill bench_sink bench_source ta_instant)
	build/bench_core
	build/bench_spool
	bench/memory
	bench/relay
	bench/inject
	bench/overtake
	bench/clog
	bench/slow
	bench/backlog
	bench/zmailer
	bench/postfix

fuzz:
	@scripts/setup test
	@$(MAKE) --no-print-directory build-clang
	@python3 tests/run.py --fuzz-seconds $(FUZZ_SECONDS) --only fuzz

soak: build
	@scripts/setup test
	@scripts/tools build/tools
	@$(MAKE) --no-print-directory build-test/build.ninja
	@$(call quietly,ninja -C build-test --quiet tests/pg_proxy)
	@SLUICE_BUILD=$(CURDIR)/build python3 tests/run.py --only soak

format:
	@scripts/setup format
	@git ls-files 'src/*.[ch]' 'tests/*.[ch]' 'bench/*.[ch]' | xargs clang-format -i

install: build
	@meson configure build --prefix=$(PREFIX) >/dev/null
	@$(call quietly,ninja -C build --quiet)
	@scripts/install build "$(PREFIX)" "$(DESTDIR)" "$(SENDMAIL)"

clean:
	rm -rf build build-test build-clang
