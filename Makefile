# `make` alone prints what there is. Everything is set up in the tree: .venv*, target/, build/, dist/.
SHELL := /bin/sh
.SHELLFLAGS := -eu -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

DURATION ?= 30m
FUZZ_SECONDS ?= 60
PYTEST ?= -n 2

python = $(shell .ci/python)
say = @printf '\n==> %s\n'
bin = .venv/bin
skips = build/skips
# pyo3 asks the interpreter it is told about, not the first `python` on a fresh machine's path.
export PYO3_PYTHON = $(python)
export PIP_DISABLE_PIP_VERSION_CHECK = 1

rust_sources := $(shell find rust -name '*.rs' -o -name Cargo.toml) Cargo.toml Cargo.lock
python_sources := $(shell find python -name '*.py' -o -name '*.pyi' -o -name py.typed) pyproject.toml README.md LICENSE

.PHONY: help demo test lint bench soak mutants fuzz miri docs wheel clean
.PHONY: need-test need-lint test-rust test-python test-oracle test-broker test-spark test-spark40 test-reliability lanes spark-and-brokers brokers lock

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-7s %s\n", $$1, $$2 }' Makefile

demo: .venv-demo/installed ## read a real broker's directories with Spark (under five minutes the first time)
	$(say) "examples/demo.py"
	@mkdir -p build/demo
	@.venv-demo/bin/python examples/demo.py

test: need-test test-rust test-python test-oracle lanes spark-and-brokers ## every test, on the newest PySpark and on 4.0 (DURATION does not apply)
	@$(bin)/python .ci/rows
	@.ci/summary "make test"

lint: need-lint .venv/installed ## formatting, lints, types, layers, features, shape of the tree
	@.ci/lint

bench: .venv/installed .venv-spark40/installed ## figures beside Kafka's, in one table (ROWS=1-5,20 for some of them)
	$(say) "benches/python/run.py"
	@$(bin)/python benches/python/run.py $(if $(ROWS),--rows $(ROWS)) $(if $(ROUNDS),--rounds $(ROUNDS))

soak: need-test .venv/installed .venv-spark41/installed .venv-spark42/installed build/oracle/oracle.jar target/release/examples/drive target/release/examples/crash_images ## the random tests at length, and every PySpark: DURATION=30m
	@.ci/soak $(DURATION)

mutants: need-test .venv/installed ## plants one bug after the other: each must make a row of promises fail (an hour at most)
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

clean: ## remove all that make made
	rm -rf .venv .venv-* target build dist site fuzz/target fuzz/corpus fuzz/artifacts
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache spark-warehouse metastore_db derby.log
	rm -f python/offsetlog/*.so
	find python tests benches examples -name __pycache__ -prune -exec rm -rf {} +

need-test:
	@.ci/need rust cc python java maven
	@mkdir -p $(skips)
	@rm -f $(skips)/test-*

need-lint:
	@.ci/need rust rustfmt cc python java

test-rust: need-test
	$(say) "cargo test"
	@cargo test --locked --quiet

test-python: need-test .venv/installed
	$(say) "pytest tests/tidy tests/python"
	@OFFSETLOG_SKIPS=$(skips)/test-python $(bin)/python -m pytest -q $(PYTEST) tests/tidy tests/python

test-oracle: need-test .venv/installed build/oracle/oracle.jar
	$(say) "pytest tests/oracle: beside Kafka's own storage layer"
	@OFFSETLOG_SKIPS=$(skips)/test-oracle $(bin)/python -m pytest -q $(PYTEST) tests/oracle

lanes: need-test .venv/installed build/oracle/oracle.jar target/release/examples/drive target/release/examples/crash_images
	$(say) "promises: faulty disks, lost power, kills, forks, signals"
	@.ci/lanes

# What is killed, and has its power cut, in those tests.
target/release/examples/drive: $(rust_sources)
	$(say) "the driver of the tests of promises"
	@cargo build --locked --quiet --release -p offsetlog --example drive
	@touch $@

# What writes logs that lost power on a simulated disk, for Kafka to open.
target/release/examples/crash_images: $(rust_sources)
	$(say) "crash images"
	@cargo build --locked --quiet --release -p offsetlog-faults --example crash_images
	@touch $@

test-reliability: lanes
	@$(bin)/python .ci/rows A B

# They wait more than they compute: two at a time, each one's words when it is done.
spark-and-brokers: need-test .venv/installed .venv-spark40/installed build/spark-jars/.complete brokers
	@$(MAKE) --no-print-directory -j2 --output-sync=target -o need-test test-spark test-spark40 test-broker

test-broker: need-test .venv/installed brokers
	$(say) "pytest tests/broker: real brokers, $(broker_versions)"
	@OFFSETLOG_SKIPS=$(skips)/test-broker $(bin)/python -m pytest -q tests/broker

test-spark: need-test .venv/installed
	$(say) "pytest tests/spark, PySpark $$($(bin)/python -c 'import pyspark; print(pyspark.__version__)')"
	@OFFSETLOG_SKIPS=$(skips)/test-spark $(bin)/python -m pytest -q tests/spark

test-spark40: need-test .venv-spark40/installed build/spark-jars/.complete build/brokers/4.3.0/.complete
	$(say) "pytest tests/spark, PySpark $$(.venv-spark40/bin/python -c 'import pyspark; print(pyspark.__version__)')"
	@OFFSETLOG_SKIPS=$(skips)/test-spark40 .venv-spark40/bin/python -m pytest -q tests/spark

environments := .venv .venv-spark40 .venv-spark41 .venv-spark42 .venv-demo .venv-build .venv-docs

# Environments: `ready` holds the locked packages, `installed` the wheel too. A lock file that changes brings its packages up to date.
.venv/ready: requirements/dev.txt
.venv-spark40/ready: requirements/spark40.txt
.venv-spark41/ready: requirements/spark41.txt
.venv-spark42/ready: requirements/spark42.txt
.venv-demo/ready: requirements/demo.txt
.venv-build/ready: requirements/build.txt
.venv-docs/ready: requirements/docs.txt

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
	@.venv-build/bin/maturin build --quiet --release --locked --interpreter $(abspath .venv-build/bin/python) --out dist
	@touch $@

# The versions of tests/broker/conftest.py.
broker_versions := 4.3.0 3.9.2 2.8.2
brokers: $(broker_versions:%=build/brokers/%/.complete)

build/brokers/%/.complete: tests/broker/java/pom.xml
	@.ci/need java maven
	$(say) "Kafka $*: a broker's jars, by Maven"
	@rm -rf $(@D)
	@mvn -q -B -Dstyle.color=never -f $< dependency:copy-dependencies -Dkafka.version=$* -DoutputDirectory=$(abspath $(@D))
	@touch $@

build/spark-jars/.complete: benches/peers/spark/pom.xml
	@.ci/need java maven
	$(say) "Spark's Kafka connector, by Maven"
	@rm -rf $(@D)
	@mvn -q -B -Dstyle.color=never -f $< dependency:copy-dependencies -DoutputDirectory=$(abspath $(@D))
	@touch $@

build/oracle/oracle.jar: $(shell find tests/oracle/java -type f)
	@.ci/need java maven
	$(say) "the oracle: Kafka's storage layer behind a line protocol"
	@mvn -q -B -f tests/oracle/java/pom.xml package
	@touch $@

# Needs uv; run by whoever changes a file of requirements/*.in.
lock:
	@for name in build dev spark40 spark41 spark42 demo docs; do \
		echo "requirements/$$name.txt"; \
		uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
			--no-annotate --no-header requirements/$$name.in --output-file requirements/$$name.txt; \
	done
