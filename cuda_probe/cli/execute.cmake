# `shardline-probe execute` without its command line: built and tested everywhere.
add_library(shardline_probe_execute STATIC execute.cpp execute_schedule.cpp random_inputs.cpp)
target_link_libraries(shardline_probe_execute PUBLIC shardline_executor_cuda shardline_transport shardline_verify shardline_reports)
