# cpack: packages for Debian 12, one per component that is installed. Included last.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME shardline)
set(CPACK_PACKAGE_CONTACT "shardline maintainers <maintainers@shardline.invalid>" CACHE STRING "Maintainer of packages")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)

# Every package has its copyright, changelog and what lintian may find in it and why: not of cmake --install.
set(debian ${PROJECT_BINARY_DIR}/debian)
execute_process(COMMAND ${CMAKE_COMMAND} -E env LC_ALL=C date --utc -R -d ${SHARDLINE_VERSION_DATE}
  OUTPUT_VARIABLE day OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
file(CONFIGURE OUTPUT ${debian}/changelog CONTENT "shardline (@PROJECT_VERSION@) unstable; urgency=medium

  * What users see of it: /usr/share/doc/shardline/CHANGELOG.md

 -- @CPACK_PACKAGE_CONTACT@  @day@
" @ONLY)
execute_process(COMMAND gzip -9nkf ${debian}/changelog COMMAND_ERROR_IS_FATAL ANY)
file(CONFIGURE OUTPUT ${debian}/triggers CONTENT "activate-noawait ldconfig\n")
get_cmake_property(components COMPONENTS)
function(shardline_debian component package)
  if(NOT component IN_LIST components)
    return()
  endif()
  set(doc ${CMAKE_INSTALL_DATADIR}/doc/${package})
  install(FILES ${PROJECT_SOURCE_DIR}/NOTICE DESTINATION ${doc} COMPONENT ${component} EXCLUDE_FROM_ALL
    RENAME copyright)
  install(FILES ${debian}/changelog.gz DESTINATION ${doc} COMPONENT ${component} EXCLUDE_FROM_ALL)
  set(overrides ${PROJECT_SOURCE_DIR}/planner/api/debian/lintian/${package})
  if(EXISTS ${overrides})
    install(FILES ${overrides} DESTINATION ${CMAKE_INSTALL_DATADIR}/lintian/overrides COMPONENT ${component}
      EXCLUDE_FROM_ALL)
  endif()
endfunction()
shardline_debian(program shardline)
shardline_debian(development shardline-dev)
shardline_debian(python python3-shardline)

set(CPACK_COMPONENTS_ALL "")
foreach(component program development python)
  if(component IN_LIST components)
    list(APPEND CPACK_COMPONENTS_ALL ${component})
  endif()
endforeach()

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)  # dependencies are those of the libraries that are linked
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY "=")

set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME shardline)
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION "shardline says how to shard a large language model over given GPUs, and how
fast it will be: tokens per second and GPU against tokens per second and user,
or time to first token, with intervals, and which engine starts the plan. It
needs no GPU. This package has the program, what it reads, its manual pages and
its shared library.")
set(CPACK_DEBIAN_PROGRAM_PACKAGE_RECOMMENDS "gnuplot-nox, fonts-dejavu-core, libjs-vega")  # pictures, the page
set(CPACK_DEBIAN_PROGRAM_PACKAGE_CONTROL_EXTRA ${debian}/triggers)

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME shardline-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "shardline says how to shard a large language model over given GPUs, and how
fast it will be. This package has what programs in C++ need that ask it:
headers, and the CMake package that find_package(shardline) finds.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "shardline (= ${PROJECT_VERSION})")

set(CPACK_DEBIAN_PYTHON_PACKAGE_NAME python3-shardline)
set(CPACK_DEBIAN_PYTHON_PACKAGE_SECTION python)
set(CPACK_DEBIAN_PYTHON_PACKAGE_CONTROL_EXTRA
  ${PROJECT_SOURCE_DIR}/planner/api/debian/postinst ${PROJECT_SOURCE_DIR}/planner/api/debian/prerm)
set(CPACK_COMPONENT_PYTHON_DESCRIPTION "shardline says how to shard a large language model over given GPUs, and how
fast it will be. This package has its Python module: questions as functions,
results as dataclasses and NumPy columns.")
# The module is of one minor version of Python, and loads libshardline.so of the other package.
math(EXPR next_python "0${Python_VERSION_MINOR} + 1")
set(CPACK_DEBIAN_PYTHON_PACKAGE_DEPENDS "shardline (= ${PROJECT_VERSION}), python3 (>= ${Python_VERSION_MAJOR}.${Python_VERSION_MINOR}), \
python3 (<< ${Python_VERSION_MAJOR}.${next_python}), python3-numpy")
set(CPACK_DEBIAN_PYTHON_PACKAGE_RECOMMENDS "python3-pandas")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR})
include(CPack)
