# warpalign_operator(NAME): an operator's sources, found by their folders and names. A file that is added or removed is
# noticed by the next build; no list names it.
#
#   src/NAME/*.cpp                     the host path, in every library, except for
#   src/NAME/api*.cpp                  compiled once without the CUDA path (warpalign_cpu), once as the build has it (warpalign)
#   src/NAME/reference*.cpp            the float64 reference (warpalign_reference), for tests and benchmarks only
#   src/NAME/*_{baseline,avx2,avx512}.cpp   one source per instruction set, compiled for it
#   src/NAME/cuda/*/*.cu               the CUDA path (warpalign; on a CPU: warpalign_simt, tests/simt)
#   src/NAME/cuda/*/*_sm90a.cu         of it what takes instructions of sm_90a alone, where WARPALIGN_HAS_WARPGROUPS
#   bindings/operators/NAME.cpp, NAME_*.cpp    the operators of the front ends (bindings/*/CMakeLists.txt)
#   tests/cpp/NAME/*_test.cpp          the C++ tests (tests/cpp/CMakeLists.txt)
#
# The global property WARPALIGN_OPERATORS lists the names, for the folders that are configured later.

# The CPU kernels are one source, compiled once per instruction set; src/cpu/isa.cpp picks at run time.
# fp-contract: multiply-add wherever the instruction set has it. trapping-math, math-errno: nobody reads those flags.
# wrapv: exponents of a soft-DTW pair that will be computed again in float64 may overflow.
set(warpalign_kernel_options -O3 -ffp-contract=fast -fno-math-errno -fno-trapping-math -fwrapv)
if(WARPALIGN_SANITIZE)
  list(APPEND warpalign_kernel_options -O1)  # cmake/WarpalignTargets.cmake
endif()
set(warpalign_baseline_options ${warpalign_kernel_options})
set(warpalign_avx2_options ${warpalign_kernel_options} -mavx2 -mfma -mf16c)
set(warpalign_avx512_options ${warpalign_kernel_options} -mavx512f -mavx512dq -mavx512bw -mavx512vl -mavx2 -mfma
                             -mf16c -mprefer-vector-width=512)
set(WARPALIGN_X86_KERNELS 0)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(WARPALIGN_X86_KERNELS 1)
endif()

# Called in src/, where the libraries are: source properties hold for one folder's targets only.
function(warpalign_operator name)
  set_property(GLOBAL APPEND PROPERTY WARPALIGN_OPERATORS ${name})
  set(folder ${PROJECT_SOURCE_DIR}/src/${name})
  file(GLOB host CONFIGURE_DEPENDS ${folder}/*.cpp)
  file(GLOB api CONFIGURE_DEPENDS ${folder}/api*.cpp)
  file(GLOB reference CONFIGURE_DEPENDS ${folder}/reference*.cpp)
  file(GLOB device CONFIGURE_DEPENDS ${folder}/cuda/*/*.cu)
  file(GLOB warpgroups CONFIGURE_DEPENDS ${folder}/cuda/*/*_sm90a.cu)
  list(REMOVE_ITEM device ${warpgroups})
  list(REMOVE_ITEM host ${api} ${reference})
  foreach(isa baseline avx2 avx512)
    file(GLOB kernels CONFIGURE_DEPENDS ${folder}/*_${isa}.cpp)
    set_source_files_properties(${kernels} PROPERTIES COMPILE_OPTIONS "${warpalign_${isa}_options}")
    if(NOT isa STREQUAL "baseline" AND NOT WARPALIGN_X86_KERNELS)
      list(REMOVE_ITEM host ${kernels})
    endif()
  endforeach()
  target_sources(warpalign_host_objects PRIVATE ${host})
  target_sources(warpalign_reference PRIVATE ${reference})
  target_sources(warpalign PRIVATE ${api})
  if(WARPALIGN_HAS_CUDA)
    target_sources(warpalign_cpu PRIVATE ${api})
    target_sources(warpalign PRIVATE ${device})
    if(WARPALIGN_HAS_WARPGROUPS AND warpgroups)
      target_sources(warpalign_sm90a PRIVATE ${warpgroups})
    endif()
  endif()
endfunction()
