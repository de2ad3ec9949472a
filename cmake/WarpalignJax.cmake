# Finds the headers of XLA's foreign function interface, which jaxlib ships, without importing jax:
#   WARPALIGN_HAS_JAX, and WARPALIGN_JAX_INCLUDE_DIR. Without them WARPALIGN_BUILD_JAX=ON is an error.
# As with PyTorch (WarpalignTorch.cmake), the interpreter knows its packages' folder also where a build is isolated.
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter)
execute_process(
  COMMAND "${Python_EXECUTABLE}" -c [[
import importlib.util, pathlib, site, sysconfig
spec = importlib.util.find_spec("jaxlib")
folders = [pathlib.Path(spec.origin).parent] if spec and spec.origin else []
sites = [sysconfig.get_path("purelib"), *site.getsitepackages(), site.getusersitepackages()]
folders += [pathlib.Path(path) / "jaxlib" for path in sites]
for folder in folders:
    if (folder / "include/xla/ffi/api/ffi.h").exists():
        print(folder / "include", end="")
        break
]]
  OUTPUT_VARIABLE WARPALIGN_JAX_INCLUDE_DIR COMMAND_ERROR_IS_FATAL ANY)
set(WARPALIGN_HAS_JAX OFF)
if(WARPALIGN_JAX_INCLUDE_DIR)
  set(WARPALIGN_HAS_JAX ON)
  message(STATUS "warpalign: XLA's headers in ${WARPALIGN_JAX_INCLUDE_DIR}")
elseif(WARPALIGN_BUILD_JAX STREQUAL "AUTO")
  message(STATUS "warpalign: jaxlib is not installed for ${Python_EXECUTABLE}; the JAX operators are left out")
else()
  message(FATAL_ERROR "jaxlib, whose headers WARPALIGN_BUILD_JAX needs, is not installed for ${Python_EXECUTABLE}: run "
                      "`pip install jaxlib`, or leave WARPALIGN_BUILD_JAX off")
endif()
