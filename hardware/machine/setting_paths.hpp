// Files that settings name: of the folder in which the command runs, not of that of the system's file.
#pragma once

#include <string>

namespace shardline {

/// "calibration=fits.yaml" with the whole path where such a file is here: what names a file in a system file
/// is read from its folder. Other settings are as they were.
std::string setting_with_whole_path(const std::string& setting);

}  // namespace shardline
