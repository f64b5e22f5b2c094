// Documents that commands print, held against the tables of planner/api/README.md.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace shardline::api {

using Json = nlohmann::ordered_json;

/// Lines that say where `value` is not what the type (of README.md: "list of Turn", "number or null") says;
/// empty: it is.
std::string faults_of(const Json& value, const std::string& type, const std::string& path);
/// Of a whole document, by its schema.
std::string faults_of_document(const Json& document);

/// A command line of `shardline`, run in `folder`.
struct Ran {
  int code = 0;
  std::string out, err;
};
Ran run_shardline(const std::string& arguments, const std::string& folder);

/// An empty folder for a test, with the golden files' scenarios in it.
std::string scratch_folder(const std::string& name);

}  // namespace shardline::api
