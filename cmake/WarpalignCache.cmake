# Compiles through ccache where it is installed: other build folders, other checkouts, and a folder that was removed, then
# cost little. CCACHE_BASEDIR makes the paths of this checkout relative, CCACHE_NOHASHDIR leaves its place out of the key.
# A launcher that is set by CMAKE_<LANG>_COMPILER_LAUNCHER stays.
if(WARPALIGN_CCACHE)
  find_program(WARPALIGN_CCACHE_PROGRAM ccache)
  mark_as_advanced(WARPALIGN_CCACHE_PROGRAM)
  foreach(language CXX CUDA)
    if(WARPALIGN_CCACHE_PROGRAM AND NOT CMAKE_${language}_COMPILER_LAUNCHER)
      set(CMAKE_${language}_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}"
          CCACHE_NOHASHDIR=1 "${WARPALIGN_CCACHE_PROGRAM}")
    endif()
  endforeach()
endif()
