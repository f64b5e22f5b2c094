// Whatever is called gnuplot in PATH: it may say and draw anything, at any length.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "reports/plot.hpp"
#include "tests/temporary_folder.hpp"

namespace shardline {
namespace {

using ::testing::HasSubstr;

// The error of a picture by a program of this body.
std::string error_by(const std::string& body) {
  const TemporaryFolder folder;
  const std::filesystem::path program = folder.path() / "gnuplot";
  std::ofstream(program) << "#!/bin/sh\n" << body << "\n";
  chmod(program.c_str(), 0755);
  const char* path = std::getenv("PATH");
  const std::string before = path != nullptr ? path : "";
  setenv("PATH", (folder.path().string() + ":" + before).c_str(), 1);
  const Rendered rendered = render(Plot{}, "svg");
  setenv("PATH", before.c_str(), 1);
  return rendered.error;
}

TEST(Gnuplot, WhatDrawsOrSaysWithoutEndIsEnded) {
  EXPECT_EQ(error_by("cat /dev/zero"), "gnuplot drew more than 256 MiB");
  EXPECT_THAT(error_by("yes 'what now' >&2"), HasSubstr("gnuplot said more than 1 MiB: what now"));
}

TEST(Gnuplot, WhatFailsIsSaid) {
  EXPECT_THAT(error_by("echo no such terminal >&2; exit 1"), HasSubstr("gnuplot failed: no such terminal"));
  EXPECT_EQ(error_by("echo picture"), "");
}

}  // namespace
}  // namespace shardline
