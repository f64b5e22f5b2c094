// A file of a user that is opened and read without waiting for whom nobody can stop: a pipe may have no
// writer.
#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <istream>
#include <streambuf>

namespace shardline {

/// Bytes of a file, device or pipe, from its beginning. While a pipe has nothing yet, or nobody who writes,
/// it is asked every 20 ms whether to go on.
class InputFile {
 public:
  /// Throws UserError where it cannot be opened.
  explicit InputFile(const std::filesystem::path& file);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  /// The next bytes, at least one and at most `most`, of which there must be some; 0: the end. Throws
  /// UserError where they cannot be read, and Cancelled.
  std::size_t read(char* to, std::size_t most);

 private:
  std::filesystem::path file_;
  int descriptor_;
  bool waits_ = false;  // a pipe with a name, of which nobody is known to have written to it
};

/// The same as a stream, which hands on what read() throws.
class InputStream : public std::istream {
 public:
  explicit InputStream(const std::filesystem::path& file) : std::istream(nullptr), buffer_(file) {
    rdbuf(&buffer_);
    exceptions(std::ios::badbit);
  }

 private:
  class Buffer : public std::streambuf {
   public:
    explicit Buffer(const std::filesystem::path& file) : file_(file) {}

   protected:
    int_type underflow() override {
      const std::size_t count = file_.read(piece_.data(), piece_.size());
      setg(piece_.data(), piece_.data(), piece_.data() + count);
      return count == 0 ? traits_type::eof() : traits_type::to_int_type(piece_.front());
    }

   private:
    InputFile file_;
    std::array<char, 65536> piece_;  // what a pipe holds
  };

  Buffer buffer_;
};

}  // namespace shardline
