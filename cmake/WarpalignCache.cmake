# Compiles through ccache where it is installed: other build folders, and a folder that was removed, then cost little.
# A launcher that is set by CMAKE_<LANG>_COMPILER_LAUNCHER stays.
if(WARPALIGN_CCACHE)
  find_program(WARPALIGN_CCACHE_PROGRAM ccache)
  mark_as_advanced(WARPALIGN_CCACHE_PROGRAM)
  foreach(language CXX CUDA)
    if(WARPALIGN_CCACHE_PROGRAM AND NOT CMAKE_${language}_COMPILER_LAUNCHER)
      set(CMAKE_${language}_COMPILER_LAUNCHER "${WARPALIGN_CCACHE_PROGRAM}")
    endif()
  endforeach()
endif()
