# cmake --install: the components program (with what it reads, and the shared library), development and python.
# Every path is relative to the prefix, which may be moved afterwards.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)
set(SHARDLINE_DATA_DIR ${CMAKE_INSTALL_DATADIR}/shardline)
set(SHARDLINE_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/shardline)

install(TARGETS shardline EXPORT shardline-targets COMPONENT program)
# Packages go without it: a machine's MPI is seldom the distribution's.
if(TARGET shardline_mpi_module)
  install(TARGETS shardline_mpi_module LIBRARY DESTINATION lib/shardline COMPONENT mpi)
endif()
foreach(folder ${SHARDLINE_DATA_FOLDERS})
  install(DIRECTORY ${folder}/ DESTINATION ${SHARDLINE_DATA_DIR}/${folder} COMPONENT program
    FILES_MATCHING PATTERN "*.yaml")
endforeach()
install(FILES README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)
# Of cmake --install alone: Debian's packages have both in their file copyright (package.cmake).
install(FILES LICENSE NOTICE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT licence)

if(SHARDLINE_SHARED)
  install(TARGETS shardline_shared EXPORT shardline-targets
    LIBRARY COMPONENT program NAMELINK_COMPONENT development)
  get_property(headers GLOBAL PROPERTY SHARDLINE_PUBLIC_HEADERS)
  install(FILES ${headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/shardline COMPONENT development)
  install(EXPORT shardline-targets NAMESPACE shardline:: DESTINATION ${SHARDLINE_CMAKE_DIR} COMPONENT development)
  configure_package_config_file(planner/api/shardline-config.cmake.in ${PROJECT_BINARY_DIR}/shardline-config.cmake
    INSTALL_DESTINATION ${SHARDLINE_CMAKE_DIR} PATH_VARS SHARDLINE_DATA_DIR)
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/shardline-config-version.cmake
    COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/shardline-config.cmake ${PROJECT_BINARY_DIR}/shardline-config-version.cmake
    DESTINATION ${SHARDLINE_CMAKE_DIR} COMPONENT development)
endif()
