// Usage: installed DATA_FOLDER. Says which shardline it runs with; fails where that is not the one of the
// headers, or does not find its data in DATA_FOLDER.
#include <cstdio>
#include <cstring>
#include <shardline/installation.hpp>
#include <shardline/version.hpp>

static_assert(SHARDLINE_VERSION_NUMBER ==
              SHARDLINE_VERSION_MAJOR * 10000 + SHARDLINE_VERSION_MINOR * 100 + SHARDLINE_VERSION_PATCH);

int main(int argc, char** argv) {
  const std::filesystem::path data = shardline::api::data_folder();
  std::printf("shardline %s, data: %s\n", shardline::api::library_version(), data.c_str());
  if (std::strcmp(shardline::api::library_version(), SHARDLINE_VERSION) != 0) return 1;
  if (argc != 2 || data != argv[1] || !std::filesystem::is_directory(data / "scenarios")) return 1;
  try {
    setenv("SHARDLINE_DATA", "/nowhere", 1);
    shardline::api::data_folder();
  } catch (const std::runtime_error& e) {  // passes from the library to whoever links it
    return std::strstr(e.what(), "SHARDLINE_DATA=/nowhere") != nullptr ? 0 : 1;
  }
  return 1;
}
