# What is read at run time, each folder's *.yaml, at the same place below PREFIX/share/shardline as in the sources.
# planner/scenario/data_folder.cpp finds it from where the program or the library lies; no path is compiled in.
set(SHARDLINE_DATA_FOLDERS
  models/catalog hardware/catalog hardware/calibrations hardware/kernels planner/engines planner/serving scenarios
  calibrate/validate)

# A build tree has links to the sources in the place of copies: a changed file counts at once.
foreach(folder ${SHARDLINE_DATA_FOLDERS})
  get_filename_component(above ${CMAKE_BINARY_DIR}/share/shardline/${folder} DIRECTORY)
  file(MAKE_DIRECTORY ${above})
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${folder} ${CMAKE_BINARY_DIR}/share/shardline/${folder} SYMBOLIC)
endforeach()
