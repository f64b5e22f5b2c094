# planner/api/version.hpp, made in the build tree; link shardline_version to include it.
configure_file(${CMAKE_CURRENT_LIST_DIR}/version.hpp.in ${PROJECT_BINARY_DIR}/generated/planner/api/version.hpp @ONLY)
add_library(shardline_version INTERFACE)
target_include_directories(shardline_version INTERFACE ${PROJECT_BINARY_DIR}/generated)
