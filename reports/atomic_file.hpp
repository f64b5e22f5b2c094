// Output files appear whole or not at all.
#pragma once

#include <filesystem>
#include <string_view>

namespace shardline {

/// Writes `text` under a temporary name beside `file`, then renames. Throws UserError (path and reason) on a
/// full disk, an unwritable folder or an interrupt; leaves no temporary file then.
void write_file(const std::filesystem::path& file, std::string_view text);

/// Creates the folder and its parents. Throws UserError if that fails, or if the name is taken by something
/// else, or if nothing can be written there.
void make_output_folder(const std::filesystem::path& folder);

/// After this, Ctrl-C (SIGINT) and SIGTERM only set the flag that interrupted() shows; a second one ends the
/// program.
void catch_interrupts();
bool interrupted();

}  // namespace shardline
