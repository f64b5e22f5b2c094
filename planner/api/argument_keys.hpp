// Which argument of a call a fault of no file is about. Not installed.
#pragma once

#include <string>

namespace shardline::api {

/// The argument that a message of no file is about: it begins with the argument's name ("gpus 4096: h100-hgx
/// has 128"), or says what is not known ("unknown system h300"); empty: neither. Names are argument_name()'s.
std::string argument_in(const std::string& message);

}  // namespace shardline::api
