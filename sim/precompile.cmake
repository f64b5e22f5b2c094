# Headers of the standard library, fmt and GoogleTest, parsed once instead of once per file: a file of 60 lines
# otherwise spends more time in them than in itself. Nothing depends on it: every file includes what it uses, and
# -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON builds without. No header of ours: touching one would rebuild everything.
set(SHARDLINE_STANDARD_HEADERS
  <algorithm> <array> <charconv> <cmath> <cstdint> <filesystem> <fstream> <functional> <limits> <map> <memory> <numeric>
  <optional> <random> <set> <span> <sstream> <string> <string_view> <tuple> <unordered_map> <utility> <variant> <vector>
  <fmt/format.h>)

# What ccache asks for: gcc keeps the header's name in preprocessed text, clang no time in the compiled header.
# The user's part is CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime.
target_compile_options(shardline_options INTERFACE
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>
  "$<$<COMPILE_LANG_AND_ID:CXX,Clang>:SHELL:-Xclang -fno-pch-timestamp>")

# One compiled header for all that links fmt, one for all that links GoogleTest (which adds -pthread).
function(shardline_precompiled_header name)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/${name}.cpp CONTENT "// Carries the compiled header.\n")
  add_library(${name} OBJECT ${CMAKE_BINARY_DIR}/${name}.cpp)
  target_precompile_headers(${name} PRIVATE ${ARGN})
endfunction()

# Most of a test is run once: optimising it takes longer than it gains. What it calls is optimised fully.
function(shardline_test_options target)
  target_compile_options(${target} PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>)
endfunction()

# What tests multiply numbers with, element by element: a few files, which take several times as long at less. g++ 12
# crashes where a header was compiled with other flags, so they go without it.
function(shardline_optimise target)
  target_compile_options(${target} PRIVATE $<$<AND:$<NOT:$<CONFIG:Debug>>,$<COMPILE_LANGUAGE:CXX>>:-O3>)
  set_target_properties(${target} PROPERTIES DISABLE_PRECOMPILE_HEADERS ON)
endfunction()

# All targets of a folder and those below it.
function(shardline_targets_below folder result)
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  get_property(subfolders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  foreach(subfolder ${subfolders})
    shardline_targets_below(${subfolder} below)
    list(APPEND targets ${below})
  endforeach()
  set(${result} ${targets} PARENT_SCOPE)
endfunction()

# Called last: gives every target the header that fits. Left out is what does not link fmt (SHARDLINE_NO_FMT), since
# a compiled header is only valid under the macros it was made with.
function(shardline_precompile)
  shardline_targets_below(${PROJECT_SOURCE_DIR} targets)
  shardline_precompiled_header(shardline_pch ${SHARDLINE_STANDARD_HEADERS})
  target_link_libraries(shardline_pch PRIVATE shardline_options fmt::fmt)
  if(SHARDLINE_TESTS)
    shardline_precompiled_header(shardline_test_pch ${SHARDLINE_STANDARD_HEADERS} <gtest/gtest.h> <gmock/gmock.h>)
    target_link_libraries(shardline_test_pch PRIVATE shardline_options fmt::fmt GTest::gmock)
    shardline_test_options(shardline_test_pch)
  endif()
  foreach(target ${targets})
    get_target_property(type ${target} TYPE)
    get_target_property(no_fmt ${target} SHARDLINE_NO_FMT)
    get_target_property(libraries ${target} LINK_LIBRARIES)
    if(no_fmt OR NOT type MATCHES "^(STATIC_LIBRARY|OBJECT_LIBRARY|EXECUTABLE)$")
      continue()
    elseif(libraries MATCHES "GTest::")
      shardline_test_options(${target})
      target_precompile_headers(${target} REUSE_FROM shardline_test_pch)
    elseif(NOT libraries MATCHES "benchmark::")
      target_precompile_headers(${target} REUSE_FROM shardline_pch)
    endif()
  endforeach()
endfunction()
