#include "reports/output_folder.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "sim/base/error.hpp"
#include "tests/temporary_folder.hpp"

namespace shardline {
namespace {

namespace fs = std::filesystem;

// A folder for output and, first in PATH, one for a gnuplot of the test's own.
class OutputFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(folder_ / "programs");
    path_ = std::getenv("PATH");
    setenv("PATH", (folder_ / "programs").c_str(), 1);
  }
  void TearDown() override { setenv("PATH", path_.c_str(), 1); }
  // A stand-in that does what `script` says, which reads gnuplot's commands and writes the picture.
  void gnuplot(const std::string& script) const {
    const fs::path file = folder_ / "programs" / "gnuplot";
    std::ofstream(file) << "#!/bin/sh\nPATH=/usr/bin:/bin\n" << script << "\n";
    fs::permissions(file, fs::perms::owner_all);
  }
  std::string out() const { return (folder_ / "out").string(); }
  const TemporaryFolder own_;
  const fs::path folder_ = own_.path();
  std::string path_;
};

TEST_F(OutputFolderTest, NamesWhatWasWritten) {
  gnuplot("echo drawn");
  OutputFolder files(out());
  files.write("run.json", "{}");
  files.draw(Plot{}, "gain");
  files.write("all.csv", "x");
  EXPECT_FALSE(fs::exists(out()));
  EXPECT_EQ(files.publish(), "  wrote " + out() + ": all.csv, gain.png, gain.svg, manifest.json, run.json\n");
  for (const char* name : {"all.csv", "gain.png", "gain.svg", "manifest.json", "run.json"})
    EXPECT_TRUE(fs::is_regular_file(fs::path(out()) / name)) << name;
}

TEST_F(OutputFolderTest, WithoutGnuplotNoPictureIsNamedAsWritten) {
  OutputFolder files(out());
  files.write("run.json", "{}");
  files.draw(Plot{}, "frontier");
  files.draw(Plot{}, "gain");
  EXPECT_EQ(files.publish(""), "wrote " + out() +
                                   ": manifest.json, run.json\nwarning: no frontier.png, frontier.svg, "
                                   "gain.png, gain.svg: gnuplot was not found in "
                                   "PATH; install the Debian package gnuplot-nox\n");
  EXPECT_FALSE(fs::exists(fs::path(out()) / "gain.png"));
}

TEST_F(OutputFolderTest, AFailingGnuplotLeavesOutItsPictureAlone) {
  gnuplot("grep -q 'terminal svg' && { echo broken font >&2; exit 3; }; echo drawn");
  OutputFolder files(out());
  files.draw(Plot{}, "gain");
  EXPECT_EQ(files.publish(),
            "  wrote " + out() +
                ": gain.png, manifest.json\n  warning: no gain.svg: gnuplot failed: broken font\n");
}

TEST_F(OutputFolderTest, NothingToDraw) {
  OutputFolder files(out());
  files.leave_out("gain", "no plan of the baseline fits");
  EXPECT_EQ(files.publish(), "  warning: no gain.png, gain.svg: no plan of the baseline fits\n");
}

// Whoever opens one of them has the answer to another question.
TEST_F(OutputFolderTest, FilesOfAnEarlierRunAreToldFromThoseOfTheLast) {
  const auto run = [&](const std::vector<std::string>& names) {
    OutputFolder files(out());
    for (const std::string& name : names) files.write(name, name);
    return files.publish("");
  };
  const std::string wrote = "wrote " + out() + ": ";
  EXPECT_EQ(run({"all.csv", "launch/1.vllm.sh", "run.json"}), wrote + "all.csv, manifest.json, run.json\n");
  EXPECT_EQ(run({"run.json"}), wrote +
                                   "manifest.json, run.json\n"
                                   "also there, of an earlier run: all.csv, launch/1.vllm.sh\n");
  EXPECT_TRUE(manifest_of(out())->at("all.csv").earlier);
  EXPECT_FALSE(manifest_of(out())->at("run.json").earlier);
  run({"all.csv", "run.json"});
  EXPECT_FALSE(manifest_of(out())->at("all.csv").earlier);
  EXPECT_TRUE(manifest_of(out())->at("launch/1.vllm.sh").earlier);
  std::vector<std::string> many;
  for (char c = 'a'; c <= 'j'; ++c) many.emplace_back(1, c);
  run(many);
  EXPECT_TRUE(run({"all.csv", "launch/1.vllm.sh", "run.json"})
                  .ends_with("also there, of an earlier run: a, b, c, d, e, f, g, h and 2 more\n"));
}

TEST_F(OutputFolderTest, AFileInItsPlace) {
  std::ofstream(out()) << "taken";
  EXPECT_THROW(OutputFolder{out()}, UserError);
}

TEST_F(OutputFolderTest, NamesThatLeadOutOfIt) {
  OutputFolder files(out());
  for (const char* name : {"../x", "/tmp/x", "a/../../x", "a//b/", "a\nb", ""})
    EXPECT_THROW(files.write(name, "x"), UserError) << name;
  EXPECT_FALSE(fs::exists(folder_ / "x"));
}

}  // namespace
}  // namespace shardline
