# What packages hold beside the programs: manual pages, read off the same parsers as --help, and
# completion; and the packages themselves.

PROGRAMS := vcuda vcuda-node-agent vcuda-scheduler-extender
MAN := $(addprefix build/man/,vcuda.1 vcuda-node-agent.8 vcuda-scheduler-extender.8)
COMPLETION := $(foreach program,$(PROGRAMS),$(addprefix build/completion/$(program)/,bash zsh fish))
BUILD_TARGETS += $(MAN) $(COMPLETION)
OUR_PYTHON = COLUMNS=80 SOURCE_DATE_EPOCH=0 PYTHONPATH=oci:runtime_hook:plugin $(VENV)/bin/python -B

# Of each program, the module and the function that makes its parser.
PARSER_vcuda := vcuda_hook.cli.main build_parser
PARSER_vcuda-node-agent := vcuda_plugin.agent.command_line parser
PARSER_vcuda-scheduler-extender := vcuda_plugin.extender.main _parser
PARSERS := $(wildcard runtime_hook/vcuda_hook/cli/*.py) plugin/vcuda_plugin/agent/command_line.py \
	plugin/vcuda_plugin/extender/main.py plugin/vcuda_plugin/kube/options.py \
	oci/vcuda_oci/model/names.py

build/man/vcuda.1: DESCRIPTION = containers on slices of NVIDIA GPUs
build/man/vcuda-node-agent.8: DESCRIPTION = shares of this node's GPUs for the kubelet and for \
	containers
build/man/vcuda-scheduler-extender.8: DESCRIPTION = finds room for pods with slices \
	of GPUs, for kube-scheduler
$(MAN): PARSER = $(PARSER_$(basename $(@F)))
$(MAN): $(PARSERS)
	@mkdir -p $(@D)
	@$(OUR_PYTHON) $(VENV)/bin/argparse-manpage --module $(word 1,$(PARSER)) \
	  --function $(word 2,$(PARSER)) --description "$(DESCRIPTION)" --project-name vcuda \
	  --prog $(basename $(@F)) --version $(VCUDA_VERSION) --manual-title vcuda \
	  --manual-section $(subst .,,$(suffix $@)) --output $@ >/dev/null
	@sed -i '1s/"1970[^"]*"/""/' $@

$(COMPLETION): PARSER = $(PARSER_$(notdir $(@D)))
$(COMPLETION): runtime_hook/vcuda_hook/cli/completion.py $(PARSERS)
	@mkdir -p $(@D)
	@$(OUR_PYTHON) -c 'from vcuda_hook.cli.completion import script; \
	  from $(word 1,$(PARSER)) import $(word 2,$(PARSER)) as parser; \
	  print(script(parser(), "$(@F)"), end="")' >$@.new
	@mv $@.new $@

# The compiled files that packages hold, without launcher and hook: packaging/install compiles those for
# their place.
PACKED := $(filter-out $(LAUNCHER) $(HOOK),$(RUNTIME_TARGETS))
ifneq ($(VCUDA_ARCH),arm64)
PACKED += $(SOFTGPU_TARGETS) $(MAN) $(COMPLETION)
endif
.PHONY: packed
packed: $(PACKED)

# Without Debian's musl for arm64, which has to be fetched, only this machine's packages are made.
FOR_ARM64 = $(MAKE) --no-print-directory VCUDA_ARCH=arm64
.PHONY: packages
packages: prepare-packages build ## debs and rpms, into build/packages
	@if $(FOR_ARM64) build/arm64/musl/version; then $(FOR_ARM64) runtime; fi
	@echo '[packages] debs and rpms'
	@packaging/packages

.PHONY: release
release: arm64 ## what is published of a version: packages, SBOM, notes, checksums
	@packaging/release

MADE_PAGES := settings flags

.PHONY: pages
pages: prepare-check build ## write the pages of docs/ that are made of the code, and the diagrams
	@for page in $(MADE_PAGES); do $(OUR_PYTHON) docs/site/$${page}_page.py >docs/$$page.md.new \
	  && mv docs/$$page.md.new docs/$$page.md || exit 1; done
	@$(VENV)/bin/python -B docs/site/flows.py

.PHONY: docs
docs: prepare-check ## the documentation as a site, into build/site; a link that leads nowhere fails
	@echo '[docs] build/site'
	@$(VENV)/bin/sphinx-build --quiet --fail-on-warning --keep-going -d build/site.read -c docs/site . build/site
