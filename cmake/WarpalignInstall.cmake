# Installs the C++ library, so that find_package(warpalign) gives warpalign::warpalign. Two components: `cpp` (this
# file) and `python` (bindings/torch), which is all that a wheel holds.
include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/warpalign")
install(TARGETS warpalign warpalign_headers EXPORT warpalignTargets
        ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT cpp)
install(DIRECTORY include/warpalign DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT cpp FILES_MATCHING PATTERN "*.h")
install(EXPORT warpalignTargets NAMESPACE warpalign:: DESTINATION "${package_dir}" COMPONENT cpp)

configure_package_config_file(cmake/warpalignConfig.cmake.in "${PROJECT_BINARY_DIR}/warpalignConfig.cmake"
                              INSTALL_DESTINATION "${package_dir}")
# Before 1.0 a minor release may change the interface.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/warpalignConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/warpalignConfig.cmake" "${PROJECT_BINARY_DIR}/warpalignConfigVersion.cmake"
        DESTINATION "${package_dir}" COMPONENT cpp)
