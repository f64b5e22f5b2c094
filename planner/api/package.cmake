# cpack: packages for Debian 12, one per component that is installed. Included last.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME shardline)
set(CPACK_PACKAGE_CONTACT "shardline maintainers <maintainers@shardline.invalid>" CACHE STRING "Maintainer of packages")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
get_cmake_property(components COMPONENTS)
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
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION "The program, what it reads, its manual pages and its shared library.")
set(CPACK_DEBIAN_PROGRAM_PACKAGE_RECOMMENDS "gnuplot-nox, fonts-dejavu-core, libjs-vega")  # pictures, the page

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME shardline-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "Headers and the CMake package of shardline's library.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "shardline (= ${PROJECT_VERSION})")

set(CPACK_DEBIAN_PYTHON_PACKAGE_NAME python3-shardline)
set(CPACK_DEBIAN_PYTHON_PACKAGE_SECTION python)
set(CPACK_COMPONENT_PYTHON_DESCRIPTION "shardline as a Python module.")
# The module is of one minor version of Python, and loads libshardline.so of the other package.
math(EXPR next_python "0${Python_VERSION_MINOR} + 1")
set(CPACK_DEBIAN_PYTHON_PACKAGE_DEPENDS "shardline (= ${PROJECT_VERSION}), python3 (>= ${Python_VERSION_MAJOR}.${Python_VERSION_MINOR}), \
python3 (<< ${Python_VERSION_MAJOR}.${next_python}), python3-numpy")
set(CPACK_DEBIAN_PYTHON_PACKAGE_RECOMMENDS "python3-pandas")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR})
include(CPack)
