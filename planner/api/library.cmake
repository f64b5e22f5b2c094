# libshardline.so: the static libraries in one, of which only the namespace shardline::api is seen (exports.map). One
# shared library, so that whoever links it needs none of what we link, and so that it finds its data above where it
# lies. Included last, when all targets are known.
include(GNUInstallDirs)
add_library(shardline_installation STATIC ${CMAKE_CURRENT_LIST_DIR}/installation.cpp)
target_link_libraries(shardline_installation PUBLIC shardline_planner PRIVATE shardline_version)
set(SHARDLINE_API_LIBRARIES shardline_installation)
if(TARGET shardline_api)
  list(APPEND SHARDLINE_API_LIBRARIES shardline_api)
endif()

# Public headers: those that users are told of, and what they include. Ours name each other "planner/api/x.hpp", installed
# they are <shardline/x.hpp>: copies of that spelling are made here, for users of the build tree as well.
function(shardline_public_header name)
  get_property(known GLOBAL PROPERTY SHARDLINE_PUBLIC_HEADERS)
  set(public ${PROJECT_BINARY_DIR}/include/shardline/${name})
  if(public IN_LIST known)
    return()
  endif()
  set_property(GLOBAL APPEND PROPERTY SHARDLINE_PUBLIC_HEADERS ${public})
  set(header ${PROJECT_SOURCE_DIR}/planner/api/${name})
  if(NOT EXISTS ${header})
    set(header ${PROJECT_BINARY_DIR}/generated/planner/api/${name})
  endif()
  set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
  file(READ ${header} text)
  string(REGEX MATCHALL "#include \"planner/api/[a-z_0-9]+\\.hpp\"" includes "${text}")
  string(REPLACE "#include \"planner/api/" "#include \"shardline/" text "${text}")
  file(CONFIGURE OUTPUT ${public} CONTENT "${text}" @ONLY)
  foreach(include ${includes})
    string(REGEX REPLACE ".*/([a-z_0-9]+\\.hpp)\"" "\\1" included "${include}")
    shardline_public_header(${included})
  endforeach()
endfunction()
shardline_public_header(version.hpp)
shardline_public_header(installation.hpp)
if(EXISTS ${PROJECT_SOURCE_DIR}/planner/api/shardline.hpp)
  shardline_public_header(shardline.hpp)
endif()

file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/library.cpp CONTENT "// Carries the shared library.\n")
add_library(shardline_shared SHARED ${PROJECT_BINARY_DIR}/generated/library.cpp)
add_library(shardline::shardline ALIAS shardline_shared)
target_link_libraries(shardline_shared PRIVATE "$<LINK_LIBRARY:WHOLE_ARCHIVE,${SHARDLINE_API_LIBRARIES}>")
target_include_directories(shardline_shared INTERFACE
  $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(shardline_shared INTERFACE cxx_std_20)
target_link_options(shardline_shared PRIVATE LINKER:--version-script=${PROJECT_SOURCE_DIR}/planner/api/exports.map)
if(NOT SHARDLINE_SANITIZE)  # whose symbols come with the program
  target_link_options(shardline_shared PRIVATE LINKER:--no-undefined)
endif()
# Before 1.0 every minor version may change the interface.
set_target_properties(shardline_shared PROPERTIES OUTPUT_NAME shardline EXPORT_NAME shardline VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} LINK_DEPENDS ${PROJECT_SOURCE_DIR}/planner/api/exports.map)
set_target_properties(shardline PROPERTIES EXPORT_NAME program)
