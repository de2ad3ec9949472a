# Finds the PyTorch that is installed for the Python interpreter, without importing it:
#   WARPALIGN_TORCH_DIR (the package's folder, with include/ and lib/) and WARPALIGN_TORCH_VERSION.
# `pip install .` hides the environment's packages from the build, but the interpreter still knows their folder: that is
# how torch is found, and need not be downloaded again for its headers.
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter)
execute_process(
  COMMAND "${Python_EXECUTABLE}" -c [[
import importlib.util, pathlib, re, site, sysconfig
spec = importlib.util.find_spec("torch")
folders = [pathlib.Path(spec.origin).parent] if spec and spec.origin else []
sites = [sysconfig.get_path("purelib"), *site.getsitepackages(), site.getusersitepackages()]
folders += [pathlib.Path(path) / "torch" for path in sites]
for folder in folders:
    if (folder / "version.py").exists():
        version = re.search(r"__version__ = '([0-9.]+)", (folder / "version.py").read_text())
        print(folder, version.group(1), sep=";", end="")
        break
]]
  OUTPUT_VARIABLE found_torch COMMAND_ERROR_IS_FATAL ANY)
if(NOT found_torch)
  message(FATAL_ERROR "PyTorch is not installed for ${Python_EXECUTABLE}: run `pip install 'torch>=2.10'` first, and "
                      "`pip install --no-build-isolation .` if your installer builds in an environment of its own")
endif()
list(GET found_torch 0 WARPALIGN_TORCH_DIR)
list(GET found_torch 1 WARPALIGN_TORCH_VERSION)
if(WARPALIGN_TORCH_VERSION VERSION_LESS 2.10)
  message(FATAL_ERROR "warpalign needs PyTorch >= 2.10; ${WARPALIGN_TORCH_DIR} is ${WARPALIGN_TORCH_VERSION}")
endif()
message(STATUS "warpalign: PyTorch ${WARPALIGN_TORCH_VERSION} in ${WARPALIGN_TORCH_DIR}")
