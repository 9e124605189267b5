# `make` alone prints what there is. Everything is set up in the tree: .venv*, target/, build/, dist/.
SHELL := /bin/sh
.SHELLFLAGS := -eu -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

DURATION ?= 30m
FUZZ_SECONDS ?= 60
# Words of the names of those steps of the soak that run; without, all do.
STEPS ?=
# Part of a test's name, for the targets that run one part.
K ?=
# Which tests of a part run, by the markers of pyproject.toml. A tier sets it; a part by itself runs all of its tests.
MARKS ?=

python = $(shell .ci/python)
say = @printf '\n==> %s\n'
step = @.ci/step
bin = .venv/bin
# Results stand in build/junit and what a tier left out in build/left, for .ci/summary. $(1): name of the part. $(2): interpreter.
pytest = env OFFSETLOG_LEFT=build/left/$(1) $(2) -m pytest -q --junitxml=build/junit/$(1).xml $(if $(MARKS),-m "$(MARKS)") $(if $(K),-k "$(K)")
# The tests of a file stay together: some sum up those above them. A process that dies ends the run: with these words pytest-xdist would
# wait for its tests without end.
by_file := -n 2 --max-worker-restart 0 --dist loadfile
# pyo3 asks the interpreter it is told about, not the first `python` on a fresh machine's path.
export PYO3_PYTHON = $(python)
export PIP_DISABLE_PIP_VERSION_CHECK = 1

rust_sources := $(shell find rust -name '*.rs' -o -name Cargo.toml) Cargo.toml Cargo.lock
python_sources := $(shell find python -name '*.py' -o -name '*.pyi' -o -name py.typed) pyproject.toml README.md LICENSE

.PHONY: help demo check test proof lint bench bench-scale soak mutants fuzz miri docs wheel dist dist-check clean lock
.PHONY: test-rust test-python test-oracle test-spark test-spark40 test-broker test-net test-reliability
.PHONY: net-clients begin-check begin-test begin-proof ready-test ready-proof checked-python part-spark part-spark40 part-broker part-net part-rest brokers

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' Makefile

demo: .venv-demo/installed ## read a real broker's directories with Spark (under five minutes the first time)
	$(say) "examples/demo.py"
	@mkdir -p build/demo
	@.venv-demo/bin/python examples/demo.py

check: begin-check ## format, clippy, Rust tests, fast Python tests on a development build: 3 minutes (Rust, Python)
	$(step) "cargo fmt" cargo fmt --all --check
	$(step) "clippy" cargo clippy --locked --quiet --workspace --all-targets -- -D warnings
	@$(MAKE) test-rust checked-python MARKS="not slow and not proof"
	@.ci/summary check

test: begin-test ## the wheel, all Python tests, histories beside Kafka, a part of Spark's, promises in small: 12 minutes (+ Java, Maven)
	@$(MAKE) -j2 --output-sync=target ready-test
	@$(MAKE) -j3 --output-sync=target test-spark test-python test-reliability test-oracle test-net MARKS="not proof" OFFSETLOG_SCALE=0.1
	@OFFSETLOG_SCALE=0.1 .ci/rows --tier test
	@.ci/summary test

proof: begin-proof ## all that test leaves out: Rust tests, Spark on 4.0 too, brokers, promises in full, coverage: 25 minutes more
	@$(MAKE) -j2 --output-sync=target ready-proof
	@$(MAKE) -j3 --output-sync=target part-broker part-rest part-spark part-spark40 part-net
	@.ci/rows
	@.ci/summary proof

lint: ## formatting, lints, types, layers, features, shape of the tree
	@.ci/need rust rustfmt cc python
	@.ci/begin
	@$(MAKE) .venv/ready
	@.ci/lint

bench: $(if $(COMPARE),.venv/ready,.venv/installed .venv-spark40/installed .venv-clients/ready) ## figures beside Kafka's, or COMPARE=commit: is it slower? (ROWS=1-5,20 for some of them)
	$(say) "benches/python/run.py"
	@$(bin)/python benches/python/run.py $(if $(ROWS),--rows $(ROWS)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(COMPARE),--compare '$(COMPARE)')

bench-scale: .venv/installed .venv-bench/ready ## curves: how cost grows with size (CURVES=scan,open for some; SCALE="--gb 4 --minutes 5" for smaller ones)
	$(say) "benches/python/scale.py"
	@$(bin)/python benches/python/scale.py $(if $(CURVES),--curves $(CURVES)) $(SCALE)
	@.venv-bench/bin/python benches/python/scale_charts.py build/bench/scale build/bench/scale

# Without a JVM unless proof runs too: Kafka's message schemas are in the oracle's jars.
net_quick := .venv/installed .venv-clients/ready .venv-clients-old/ready build/oracle/oracle.jar
net_all := .venv-spark40/ready build/spark-jars/.complete brokers net-clients build/net-suites/.complete

soak_spark := .venv-spark40/installed build/spark-jars/.complete .venv-spark41/installed .venv-spark42/installed
soak_bench := .venv-bench/ready build/ours.stamp
soak: begin-test $(net_quick) $(net_all) build/drivers.stamp $(if $(STEPS),$(if $(findstring spark,$(STEPS)),$(soak_spark)) $(if $(findstring bench,$(STEPS)),$(soak_bench)),$(soak_spark) $(soak_bench)) ## the random tests at length, and every PySpark: DURATION=30m (STEPS=mirror,serve for some of them)
	@.ci/soak $(DURATION) '$(STEPS)'

mutants: begin-proof .venv/installed build/oracle/oracle.jar ## plants one bug after the other: each must make a row of promises fail (over two hours; .ci/mutants NAME ... for some)
	$(say) ".ci/mutants"
	@.ci/mutants

fuzz: ## hostile bytes against every parser: FUZZ_SECONDS=60 each (needs nightly)
	@.ci/need rust cc python
	@$(python) .ci/fuzz $(FUZZ_SECONDS)

miri: .venv/installed ## row 23 alone: the format crate under miri, a Python session under valgrind (installs them where it can)
	@.ci/power
	@cargo +nightly miri --version && valgrind --version
	@$(bin)/python -m pytest -q tests/reliability/test_undefined_behaviour.py

docs: .venv-docs/ready ## the site, into site/
	$(say) "mkdocs build"
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict --quiet
	@echo "site/index.html"

wheel: build/wheel.stamp ## one abi3 wheel for Python 3.11 and later, into dist/
	@ls dist/*.whl

dist: .venv-dist/ready ## a release, into build/release: wheels for glibc 2.17 on x86-64 and aarch64, the sdist, checksums, bills of materials
	@.ci/need rust cc python
	$(say) ".ci/dist"
	@.ci/dist

dist-check: .venv-dist/ready ## shows that they work: the crates, on glibc 2.23, on aarch64 under qemu, from the sdist (Debian or Ubuntu, root)
	@.ci/dist-check

clean: ## remove all that make made
	rm -rf .venv .venv-* target build dist site fuzz/target fuzz/corpus fuzz/artifacts
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache spark-warehouse metastore_db derby.log
	rm -f python/offsetlog/*.so
	find python tests benches examples -name __pycache__ -prune -exec rm -rf {} +

# A tier begins: its tools are there, and what the last one left is gone. Proof goes on where test ended.
begin-check:
	@.ci/need rust rustfmt cc python
	@.ci/begin
begin-test:
	@.ci/need rust cc python java maven
	@.ci/begin
begin-proof:
	@.ci/need rust cc python java maven
	@.ci/begin
	@.ci/power

test-rust: ## a part of it: tests of the crates, on a development build
	$(step) "cargo test" cargo test --locked --quiet $(if $(K),-- $(K))

test-python: .venv/installed ## K=name: those whose name has it
	$(step) "pytest tests/tidy tests/python" $(call pytest,python,$(bin)/python) $(by_file) tests/tidy tests/python

test-oracle: .venv/installed build/oracle/oracle.jar ## the same: beside Kafka's own storage layer
	$(step) "pytest tests/oracle: beside Kafka's own storage layer" $(call pytest,oracle,$(bin)/python) -n 2 tests/oracle

test-reliability: .venv/installed build/oracle/oracle.jar build/drivers.stamp ## the same: faulty disks, lost power, kills, forks, signals
	$(step) "promises: faulty disks, lost power, kills, forks, signals" .ci/lanes "$(MARKS)" "$(K)"

test-spark: .venv/installed ## the same: the newest PySpark
	$(step) "pytest tests/spark, the newest PySpark" $(call pytest,spark,$(bin)/python) tests/spark

test-spark40: .venv-spark40/installed build/spark-jars/.complete build/brokers/4.3.0/.complete ## the same: PySpark 4.0
	$(step) "pytest tests/spark, PySpark 4.0" $(call pytest,spark40,.venv-spark40/bin/python) tests/spark

test-broker: .venv/installed brokers ## the same: real brokers
	$(step) "pytest tests/broker: real brokers, $(broker_versions)" $(call pytest,broker,$(bin)/python) $(by_file) tests/broker

test-net: $(net_quick) $(if $(MARKS),,$(net_all)) ## the same: clients of others read what serve answers
	$(step) "pytest tests/net: clients of others" $(call pytest,net,$(bin)/python) -n 2 tests/net

# On a development build: what stands in python/ is what runs.
checked-python: .venv-check/ready
	$(step) "development build" .ci/develop .venv-check
	$(step) "pytest tests/tidy tests/python: those that are quick" env PYTHONPATH=$(abspath python) $(call pytest,python,.venv-check/bin/python) $(by_file) tests/tidy tests/python

ready-test: .venv/installed .venv-clients/ready .venv-clients-old/ready build/oracle/oracle.jar build/drivers.stamp
ready-proof: .venv/installed .venv/classes .venv-spark40/installed .venv-clients/ready .venv-clients-old/ready build/spark-jars/.complete build/oracle/oracle.jar brokers net-clients build/net-suites/.complete build/drivers.stamp

# Tests wait for disks and other processes more than they compute: three parts at a time, the longest first, each one's words when it is
# done.
part-rest:
	@$(MAKE) test-reliability MARKS=
	@$(MAKE) test-python test-oracle MARKS="proof and not newest"
part-spark:
	@$(MAKE) test-spark MARKS=proof
part-spark40:
	@$(MAKE) test-spark40 MARKS="not newest"
part-broker:
	@$(MAKE) test-broker MARKS=
part-net:
	@$(MAKE) test-net MARKS="proof and not newest"

# What is killed and has its power cut, what writes logs that lost power for Kafka to open, and the tests of lane A. On a development
# build: it also checks its assertions, and the soak runs the same on a release.
build/drivers.stamp: $(rust_sources)
	$(step) "tests of promises and their drivers" cargo test --locked --quiet --no-run -p offsetlog-faults
	@touch $@

# The program of `make bench-scale`, whose curves a test measures with few and small sizes: a development build is enough for that.
build/ours.stamp: $(rust_sources) $(shell find benches -name '*.rs' -o -name Cargo.toml)
	$(step) "the program of the benches" cargo build --locked --quiet -p offsetlog-benches --bin ours
	@touch $@

environments := .venv .venv-bench .venv-check .venv-clients .venv-clients-old .venv-spark40 .venv-spark41 .venv-spark42 .venv-demo .venv-build .venv-docs .venv-dist

# Environments: `ready` holds the locked packages, `installed` the wheel too. A lock file that changes brings its packages up to date.
.venv/ready: requirements/dev.txt
.venv-check/ready: requirements/check.txt
.venv-spark40/ready: requirements/spark40.txt
.venv-spark41/ready: requirements/spark41.txt
.venv-spark42/ready: requirements/spark42.txt
.venv-clients/ready: requirements/clients.txt
.venv-clients-old/ready: requirements/clients-old.txt
.venv-demo/ready: requirements/demo.txt
.venv-bench/ready: requirements/bench.txt
.venv-build/ready: requirements/build.txt
.venv-docs/ready: requirements/docs.txt
.venv-dist/ready: requirements/dist.txt

$(environments:%=%/ready):
	@.ci/need python
	$(say) "$(@D): packages of $<"
	@[ -x $(@D)/bin/python ] || $(python) -m venv $(@D)
	@$(@D)/bin/python -m pip install --quiet --require-hashes -r $<
	@touch $@

$(environments:%=%/installed): %/installed: %/ready build/wheel.stamp
	$(say) "$(@D): the wheel"
	@$(@D)/bin/python -m pip install --quiet --no-deps --no-index --force-reinstall dist/*.whl
	@touch $@

build/wheel.stamp: $(rust_sources) $(python_sources) | .venv-build/ready
	@.ci/need rust cc python
	$(say) "release wheel (one to four minutes from nothing)"
	@rm -rf dist
	@mkdir -p build
	@.venv-build/bin/maturin build --quiet --release --locked --compression-level 9 --interpreter $(abspath .venv-build/bin/python) --out dist
	@touch $@

# The versions of tests/broker/conftest.py.
broker_versions := 4.3.0 3.9.2 2.8.2
brokers: $(broker_versions:%=build/brokers/%/.classes)

# Rules for named files, not for any that match: make deletes what it makes on its way to such a one.
$(broker_versions:%=build/brokers/%/.complete): build/brokers/%/.complete: tests/broker/java/pom.xml
	@.ci/need java maven
	$(say) "Kafka $*: a broker's jars, by Maven"
	@rm -rf $(@D)
	@mvn -q -B -Dstyle.color=never -f $< dependency:copy-dependencies -Dkafka.version=$* -DoutputDirectory=$(abspath $(@D))
	@touch $@

# What brokers and tools that tests start by the hundred load, so that they start in half the time.
$(broker_versions:%=build/brokers/%/.classes): build/brokers/%/.classes: build/brokers/%/.complete tests/broker/broker_classes.py
	$(say) "Kafka $*: an archive of its classes"
	@$(python) tests/broker/broker_classes.py $* || echo "    did not work: brokers start without it"
	@touch $@

# Each version's Java client is the one of its broker's jars.
net-clients: $(broker_versions:%=build/net-clients/%/.complete)

$(broker_versions:%=build/net-clients/%/.complete): build/net-clients/%/.complete: tests/net/java/ClientProgram.java build/brokers/%/.complete
	$(say) "Kafka $*: a client program"
	@mkdir -p $(@D)
	@javac -proc:none -nowarn -Xlint:-options --release 17 -cp 'build/brokers/$*/*' -d $(@D) $<
	@touch $@

# Other projects' own tests, by their packages: kafka-python's are in its sdist, franz-go's in its module. Without Go they are skipped.
# aiokafka's are in no package (CONTRIBUTING.md).
build/net-suites/.complete: requirements/clients.txt tests/net/go/go.mod tests/net/go/suites.go | .venv-clients/ready
	$(say) "kafka-python's and franz-go's own tests"
	@rm -rf $(@D)
	@mkdir -p $(@D)
	@sed -n '/^kafka-python==/,/[^\\]$$/p' requirements/clients.txt >$(@D)/kafka-python.txt
	@.venv-clients/bin/python -m pip download --quiet --no-deps --no-binary :all: --require-hashes -r $(@D)/kafka-python.txt -d $(@D)
	@tar -xzf $(@D)/kafka_python-*.tar.gz -C $(@D)
	@cd tests/net/go && GOTOOLCHAIN=local GOFLAGS=-mod=readonly go test -c -o $(abspath $(@D))/kgo.test github.com/twmb/franz-go/pkg/kgo >$(abspath $(@D))/kgo.txt 2>&1 \
		|| echo "    did not work, see $(@D)/kgo.txt"
	@touch $@

build/spark-jars/.complete: benches/peers/spark/pom.xml
	@.ci/need java maven
	$(say) "Spark's Kafka connector, by Maven"
	@rm -rf $(@D)
	@mvn -q -B -Dstyle.color=never -f $< dependency:copy-dependencies -DoutputDirectory=$(abspath $(@D))
	@touch $@

# Drivers that tests start by the dozen, in half the time.
.venv/classes: .venv/ready tests/spark/spark_classes.py
	@.ci/need java
	$(say) "Spark: an archive of its classes"
	@mkdir -p build
	@$(bin)/python tests/spark/spark_classes.py >build/spark-classes.txt 2>&1 || echo "    did not work, see build/spark-classes.txt: Spark starts without it"
	@touch $@

build/oracle/oracle.jar: $(shell find tests/oracle/java -type f)
	@.ci/need java maven
	$(say) "the oracle: Kafka's storage layer behind a line protocol"
	@mvn -q -B -f tests/oracle/java/pom.xml package
	@touch $@

# Needs uv; run by whoever changes a file of requirements/*.in.
lock:
	@for name in bench build check clients clients-old dev spark40 spark41 spark42 demo docs dist; do \
		echo "requirements/$$name.txt"; \
		uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
			--no-annotate --no-header requirements/$$name.in --output-file requirements/$$name.txt; \
	done
