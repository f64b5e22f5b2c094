# Unity builds (CMAKE_UNITY_BUILD): up to eight files of a target are compiled as one, which parses their headers once.
# Halves the time of a build from nothing; not for daily work, where touching one file would compile eight.
# Files whose anonymous namespaces share a name go into different groups: a strategy, a cost form or a test may name its
# functions as its neighbours do. Hence groups are computed, not listed. A file whose own type has the name of a
# header's stays alone: another file, or its headers, may mean that one.

# Names that begin in the first column of the anonymous namespaces of FILE; too many do no harm.
function(shardline_local_names file result)
  file(READ ${file} text)
  set(names "")
  if(text MATCHES "\nnamespace {\n(.*)\n}  // namespace\n")
    string(REGEX REPLACE "[][;]" "=" text "\n${CMAKE_MATCH_1}")
    string(REGEX MATCHALL "\n[A-Za-z][^\n(={]*[(={]" heads "${text}")
    foreach(head ${heads})
      string(REGEX REPLACE " : .*" "" head "${head}")  # base classes
      string(REGEX REPLACE "[^A-Za-z0-9_]+$" "" head "${head}")
      string(REGEX REPLACE ".*[^A-Za-z0-9_]" "" name "${head}")
      if(name MATCHES "[a-z]")  # others are macros, as TEST
        list(APPEND names ${name})
      endif()
    endforeach()
  endif()
  set(${result} ${names} PARENT_SCOPE)
endfunction()

# Names of all types that headers declare.
function(shardline_header_types result)
  set(names "")
  file(GLOB_RECURSE headers ${PROJECT_SOURCE_DIR}/*.hpp)
  list(FILTER headers EXCLUDE REGEX "^${PROJECT_SOURCE_DIR}/build/")
  foreach(header ${headers})
    file(STRINGS ${header} lines REGEX "^(struct|class|enum class|using) [A-Za-z0-9]+ [^;]*[{=]")
    foreach(line ${lines})
      string(REGEX REPLACE "^(struct|class|enum class|using) ([A-Za-z0-9]+) .*" "\\2" name "${line}")
      list(APPEND names ${name})
    endforeach()
  endforeach()
  list(REMOVE_DUPLICATES names)
  set(${result} ${names} PARENT_SCOPE)
endfunction()

# How many of NAMES are in OTHERS.
function(shardline_count_shared names others result)
  set(left ${names})
  list(REMOVE_ITEM left ${others} "")
  list(LENGTH names before)
  list(LENGTH left after)
  math(EXPR shared "${before} - ${after}")
  set(${result} ${shared} PARENT_SCOPE)
endfunction()

# Puts FILE of TARGET, which has NAMES, into the first group that has room and none of them. What several targets of a
# folder compile keeps its group: CMake knows one per folder.
macro(shardline_unity_group target file)
  get_source_file_property(group ${file} TARGET_DIRECTORY ${target} UNITY_GROUP)
  if(NOT group MATCHES "^[0-9]+$")
    set(group 0)
    while(TRUE)
      list(LENGTH files_${group} size)
      shardline_count_shared("${names}" "${names_${group}}" shared)
      if(size LESS 8 AND shared EQUAL 0)
        break()
      endif()
      math(EXPR group "${group} + 1")
    endwhile()
    set_source_files_properties(${file} TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP ${group})
  endif()
  list(APPEND files_${group} ${file})
  list(APPEND names_${group} ${names})
endmacro()

function(shardline_unity_groups target)
  get_target_property(sources ${target} SOURCES)
  get_target_property(folder ${target} SOURCE_DIR)
  foreach(source ${sources})
    if(source MATCHES "\\.cpp$")
      get_filename_component(file ${source} ABSOLUTE BASE_DIR ${folder})
      set(shared 1)  # a file that the build will write stays alone: its names are not known yet
      if(EXISTS ${file})
        shardline_local_names(${file} names)
        shardline_count_shared("${names}" "${header_types}" shared)
      endif()
      if(shared)
        set_source_files_properties(${file} TARGET_DIRECTORY ${target} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
      else()
        shardline_unity_group(${target} ${file})
      endif()
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
  # A local variable may have the name of a constant of another file.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-shadow>)
  # `testing::` in our namespace means GoogleTest's unless a file before it has opened ours.
  set_target_properties(${target} PROPERTIES UNITY_BUILD_CODE_BEFORE_INCLUDE
    "namespace testing {}\nnamespace shardline::testing {\nusing namespace ::testing;\n}")
endfunction()

# Called last, when all targets are known. With SHARDLINE_UNITY_TESTS those of tests alone.
function(shardline_unity)
  if(CMAKE_UNITY_BUILD OR (SHARDLINE_UNITY_TESTS AND SHARDLINE_TESTS))
    set(folder ${PROJECT_SOURCE_DIR})
    if(NOT CMAKE_UNITY_BUILD)
      string(APPEND folder /tests)
    endif()
    shardline_targets_below(${folder} targets)
    shardline_header_types(header_types)
    foreach(target ${targets})
      get_target_property(type ${target} TYPE)
      if(type MATCHES "^(STATIC_LIBRARY|EXECUTABLE)$")
        if(NOT CMAKE_UNITY_BUILD)
          set_target_properties(${target} PROPERTIES UNITY_BUILD ON)
        endif()
        shardline_unity_groups(${target})
      endif()
    endforeach()
  endif()
endfunction()
