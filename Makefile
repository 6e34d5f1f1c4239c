# Thin targets; the work is in scripts/.
.DEFAULT_GOAL := help
.PHONY: help setup build wheel package image release demo test test-all fuzz simulate soak bench bench-micro dependencies mutants hdl-soak hdl-report hdl-mutants lint doc book reference arrows clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z\/.-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install what building needs
	@scripts/setup build

build: setup ## Build the release binary, target/release/kaido
	@scripts/build

wheel: ## Build the Python package, target/wheels, and install it into .venv
	@scripts/setup wheel
	@scripts/wheel

package: build ## Make the Debian package, target/package
	@scripts/package

image: build ## Make the OCI image, target/image
	@scripts/image

release: ## Make package, image, chart, list of contents, checksums and provenance of a commit, target/dist
	@scripts/release

demo: ## Set everything up and show Kaido carrying traffic, start to finish
	@scripts/demo

test: ## Run every check and test; what is skipped is listed with its reason
	@scripts/test

test-all: ## The same with the steps whose inputs did not change since the base
	@scripts/test --all

bench: build wheel ## Sweep the user plane and write a report of it, in less than 15 minutes
	@scripts/bench

bench-micro: build ## Measure the user plane in memory, below two minutes
	@target/release/kaido bench micro --quick

fuzz: setup ## Run each fuzz target for ten minutes
	@scripts/fuzz

simulate: ## Simulate crashes of a node from SEED on, each of STEPS; COUNT seeds, or without end
	@scripts/cargo run --quiet --release --package kaido-simulate -- --seed $(or $(SEED),1) --steps $(or $(STEPS),20000) $(if $(DURABILITY),--durability $(DURABILITY)) $(if $(FOLDER),--folder $(FOLDER)) $(if $(COUNT),--count $(COUNT))

soak: ## Run a node under churn and traffic for an hour
	@scripts/soak

dependencies: setup ## Check licences, versions and use of what is built in
	@scripts/dependencies

mutants: setup ## Change the code, one thing at a time, and list what no test notices: hours
	@scripts/mutants

hdl-soak: ## Two million random frames through the hardware cores
	@scripts/hdl soak

hdl-report: ## What the hardware cores take on two FPGA families, and how fast
	@scripts/hdl report

hdl-mutants: ## Put faults into the hardware cores and list which bench notices
	@scripts/hdl mutants

lint: setup ## Check formatting and lints
	@scripts/cargo fmt --all --check
	@scripts/cargo clippy --workspace --all-targets -- -D warnings

doc: setup ## Build the API documentation, target/doc
	@RUSTDOCFLAGS="-D warnings" scripts/cargo doc --workspace --no-deps

book: setup ## Build the book, target/book
	@scripts/book

reference: setup ## Write docs/configuration.md from the code
	@scripts/cargo run --quiet --package kaido -- reference > docs/configuration.md.new
	@mv docs/configuration.md.new docs/configuration.md

arrows: ## Draw the crates and the circles between modules: docs/arrows.md
	@python3 tests/arrows.py

clean: ## Remove everything that was built
	@scripts/cargo clean
	@rm -rf .venv demo-out tests/oracle-xsk/target
