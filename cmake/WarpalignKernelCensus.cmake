# Says how many CUDA kernels a library holds: each instantiation costs seconds of every build, and room, once for each
# architecture. Run behind the build of the library:
#
#   cmake -DNM=... -DLIBRARY=... -P WarpalignKernelCensus.cmake
#
# On the host a kernel has one stub function, by which it is launched, with one guarded variable.
execute_process(COMMAND ${NM} ${LIBRARY} OUTPUT_VARIABLE symbols ERROR_QUIET)
string(REGEX MATCHALL "_ZGVZL?[0-9]+__device_stub__" stubs "${symbols}")
list(LENGTH stubs count)
get_filename_component(name ${LIBRARY} NAME)
if(count GREATER 0)
  message(STATUS "${name}: ${count} CUDA kernels for each architecture")
endif()
