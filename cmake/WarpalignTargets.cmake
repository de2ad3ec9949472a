# warpalign_options: what every target of this project is compiled with.
add_library(warpalign_options INTERFACE)
target_compile_options(warpalign_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow>
  # -ftz: a transition weight below 2^-126 is exactly 0 (docs/numerics.md).
  $<$<COMPILE_LANGUAGE:CUDA>:-ftz=true;--expt-relaxed-constexpr;-Xcompiler=-Wall,-Wextra;--compress-mode=size>)
if(WARPALIGN_PTXAS_VERBOSE)
  target_compile_options(warpalign_options INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:-Xptxas=-v>)
endif()
# For those who work on it: elsewhere a compiler that knows more warnings must not stop the installation.
if(WARPALIGN_WARNINGS_AS_ERRORS)
  target_compile_options(warpalign_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Werror> $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>)
endif()
if(WARPALIGN_SANITIZE)
  # -O1 -g1: instrumented code compiles three times as long at -O3 with all debug information, and runs hardly faster.
  target_compile_options(warpalign_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${WARPALIGN_SANITIZE};-fno-sanitize-recover=all;-fno-omit-frame-pointer;-O1;-g1>)
  target_link_options(warpalign_options INTERFACE -fsanitize=${WARPALIGN_SANITIZE})
endif()

# warpalign_test_options: for the tests and the reference, linked behind warpalign_options. UndefinedBehaviorSanitizer is for
# the library: it doubles the time that tests compile. AddressSanitizer stays.
add_library(warpalign_test_options INTERFACE)
if(WARPALIGN_SANITIZE)
  target_compile_options(warpalign_test_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=undefined>)
endif()

# warpalign_exports: for the libraries of front ends. Two of them may be loaded in one process, each with kernels and a CUDA
# runtime of its own. g++ makes variables of templates and of inline functions unique in the process (STB_GNU_UNIQUE), also
# where a library is loaded RTLD_LOCAL: a table of kernels would then be that of the library that came first, and its kernels
# unknown to the runtime of the second.
add_library(warpalign_exports INTERFACE)
if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
  set(exports ${PROJECT_SOURCE_DIR}/bindings/operators/exports.map)
  target_link_options(warpalign_exports INTERFACE "LINKER:--version-script=${exports}")
  set_property(TARGET warpalign_exports PROPERTY INTERFACE_LINK_DEPENDS ${exports})
endif()
