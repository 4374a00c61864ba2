# What packages hold beside the programs: manual pages, read off the same parsers as --help, and
# completion; and the packages themselves.

MAN := $(addprefix build/man/,vcuda.1 vcuda-node-agent.8 vcuda-scheduler-extender.8)
COMPLETION := $(addprefix build/completion/,bash zsh fish)
BUILD_TARGETS += $(MAN) $(COMPLETION)
OUR_PYTHON = COLUMNS=80 SOURCE_DATE_EPOCH=0 PYTHONPATH=oci:runtime_hook:plugin $(VENV)/bin/python -B

build/man/vcuda.1: MAN_WORDS = --module vcuda_hook.cli --function build_parser \
	--description 'containers on slices of NVIDIA GPUs'
build/man/vcuda-node-agent.8: MAN_WORDS = --module vcuda_plugin.agent --function _parser \
	--description "shares of this node's GPUs for the kubelet and for containers"
build/man/vcuda-scheduler-extender.8: MAN_WORDS = --module vcuda_plugin.scheduler.main \
	--function _parser --description 'room for pods with slices of GPUs, told to kube-scheduler'
$(MAN): $(wildcard runtime_hook/vcuda_hook/cli*.py) plugin/vcuda_plugin/agent.py \
	plugin/vcuda_plugin/scheduler/main.py oci/vcuda_oci/names.py
	@mkdir -p $(@D)
	@$(OUR_PYTHON) $(VENV)/bin/argparse-manpage $(MAN_WORDS) --project-name vcuda \
	  --prog $(basename $(@F)) --version $(VCUDA_VERSION) --manual-title vcuda \
	  --manual-section $(subst .,,$(suffix $@)) --output $@ >/dev/null
	@sed -i '1s/"1970[^"]*"/""/' $@

$(COMPLETION): runtime_hook/vcuda_hook/completion.py $(wildcard runtime_hook/vcuda_hook/cli*.py)
	@mkdir -p $(@D)
	@$(OUR_PYTHON) -c 'from vcuda_hook.cli import main; main()' completion $(@F) >$@.new
	@mv $@.new $@

.PHONY: packages
packages: build ## debs and rpms, into build/packages
	@echo '[packages] debs and rpms'
	@packaging/packages

.PHONY: release
release: build ## what is published of a version: packages, SBOM, notes, checksums
	@packaging/release

MADE_PAGES := settings flags errors

.PHONY: pages
pages: build ## write the pages of docs/ that are made of the code
	@for page in $(MADE_PAGES); do $(OUR_PYTHON) docs/site/$${page}_page.py >docs/$$page.md.new \
	  && mv docs/$$page.md.new docs/$$page.md || exit 1; done

.PHONY: docs
docs: prepare ## the documentation as a site, into build/site; a link that leads nowhere fails
	@echo '[docs] build/site'
	@$(VENV)/bin/sphinx-build --quiet --fail-on-warning --keep-going -d build/site.read -c docs/site . build/site
