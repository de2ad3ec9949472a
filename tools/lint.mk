# mypy and clang-tidy of each file, side by side: `make lint` calls it with -j JOBS -k -O. Only what fails is shown.
#
#   tool: the folder of the programs    build: a configured build folder    files: what clang-tidy reads
.PHONY: all mypy $(files)
all: mypy $(files)  # mypy takes longest and has one thread: it begins first
	@echo "mypy and clang-tidy of $(words $(files)) files: nothing found"

mypy $(files):
	@said=$$($(if $(filter mypy,$@),$(tool)/mypy,$(tool)/clang-tidy --quiet -p $(build) $@) 2>&1) || { echo "$$said"; exit 1; }
