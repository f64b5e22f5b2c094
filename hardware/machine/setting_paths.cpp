#include "hardware/machine/setting_paths.hpp"

#include <filesystem>
#include <string_view>
#include <system_error>

namespace shardline {

std::string setting_with_whole_path(const std::string& setting) {
  const std::size_t equals = setting.find('=');
  const std::string_view key = std::string_view(setting).substr(0, equals);
  if (equals == setting.npos || (key != "calibration" && key != "calibration.like")) return setting;
  const std::filesystem::path file(setting.substr(equals + 1));
  std::error_code error;
  if (file.is_absolute() || !(file.has_parent_path() || file.has_extension()) ||
      !std::filesystem::is_regular_file(file, error))
    return setting;
  const std::filesystem::path whole = std::filesystem::absolute(file, error);
  return error ? setting : std::string(key) + "=" + whole.lexically_normal().string();
}

}  // namespace shardline
