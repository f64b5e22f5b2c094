// Output files appear whole or not at all; what is no file (a device, a pipe, a link) stays what it is.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace shardline {

/// What an interrupt that came before means for a file: most results are then incomplete and refused; a
/// measurement is worth keeping as far as it went.
enum class AfterInterrupt : std::uint8_t { refuse, write };

/// What becomes of a file that was read (was_read(), sim/base/read_text.hpp): most writings would lose it,
/// some bring it up to date.
enum class IfRead : std::uint8_t { refuse, replace };

/// Writes `text` under a temporary name beside `file`, then renames. A symbolic link stays, and the file that
/// it leads to is replaced. Devices and pipes are written to, never replaced; so is what standard output or
/// standard error goes to, after what was printed before; "-" is standard output. Throws UserError (path and
/// reason) on a full disk, an unwritable file or folder or an interrupt; leaves no temporary file then.
void write_file(const std::filesystem::path& file, std::string_view text,
                AfterInterrupt interrupt = AfterInterrupt::refuse, IfRead if_read = IfRead::refuse);

/// The same of a file of a folder that is made at `stage` and will be at `place`, which its reader knows:
/// messages name place / name. Makes the folders that `name` lies in.
void write_staged_file(const std::filesystem::path& stage, const std::filesystem::path& place,
                       const std::filesystem::path& name, std::string_view text);

/// Makes the folder that write_file will write in, as make_output_folder does; of a device or a pipe none.
void make_folder_of(const std::filesystem::path& file);
/// Before long work whose result write_file will write there: throws UserError where that is sure to fail,
/// as its folder is none or may not be written, or it is there and may not. `missing`: whether make_folder_of
/// will make one that is not there. An empty name, a device and a pipe are none of its concern.
enum class MissingFolder : std::uint8_t { is_made, is_refused };
void require_place_of(const std::filesystem::path& file, MissingFolder missing = MissingFolder::is_made);

/// Throws UserError where the file is there and may not be written to, which its folder would let one
/// replace.
void require_replaceable(const std::filesystem::path& file);

/// Throws UserError where the file is there, is not empty and does not begin as those that `option` writes:
/// it is somebody's own, and would be lost. Devices, pipes and standard output are none of its concern.
void require_own(const std::filesystem::path& file, std::string_view option, std::string_view begins);

/// Throws UserError where `out`, the value of `option`, is one of the files that are read, or a .csv of the
/// folders that are: written, it would be lost. `inputs`: paths; other names and files that are not there
/// stand for none.
void refuse_to_overwrite(std::string_view option, const std::filesystem::path& out,
                         const std::vector<std::string>& inputs);

/// Throws UserError where the file is there and was read. `instead`: what to do, in words.
void refuse_to_lose(const std::filesystem::path& file, std::string_view instead);

/// Creates the folder and its parents. Throws UserError if that fails, or if the name is taken by something
/// else, or if nothing can be written there.
void make_output_folder(const std::filesystem::path& folder);

/// After this, Ctrl-C (SIGINT), SIGTERM and SIGHUP (but where it is ignored) only set the flag that
/// interrupted() shows; a second one ends the program. With `end_late`, work that has not ended 0.4 s later
/// is ended, with exit code 128 and the number of the signal, but never while an InOneStep lives.
void catch_interrupts(bool end_late = false);
bool interrupted();
/// The number of the signal; 0: none came.
int interrupt_signal();

/// While it lives, a process that was interrupted is not ended: files are on their way to their places.
class InOneStep {
 public:
  InOneStep();
  ~InOneStep();
  InOneStep(const InOneStep&) = delete;
  InOneStep& operator=(const InOneStep&) = delete;
};

/// Notes a file or folder that is whole, and what is said of those after an interrupt.
void note_written(const std::filesystem::path& path);
/// What is unfinished is kept, too: the same command goes on with it. False: it is no more.
void note_resumable(bool resumable);
/// That, of a command that failed; "" where nothing is.
std::string resumable_text();
std::string interrupted_text(std::string_view program);

}  // namespace shardline
