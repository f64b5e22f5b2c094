#include <fmt/format.h>

#include <algorithm>

#include "cuda_probe/cli/commands.hpp"
#include "reports/table.hpp"

namespace shardline::probe_cli {

namespace {

template <class C>
std::vector<std::string> texts(const std::vector<C>& cases) {
  std::vector<std::string> out;
  for (const C& c : cases) out.push_back(to_string(c));
  return out;
}

std::vector<std::string> numbers(const std::vector<std::int64_t>& values, const char* column) {
  std::vector<std::string> out;
  for (const std::int64_t v : values) out.push_back(fmt::format("{}={}", column, v));
  return out;
}

std::vector<std::string> shapes_of(const std::string& probe, const ShapeLists& s) {
  if (probe == "gemm") return texts(s.gemm);
  if (probe == "attention") return texts(s.prefill);
  if (probe == "decode") return texts(s.decode);
  if (probe == "mla") return texts(s.mla);
  if (probe == "merge") return texts(s.merge);
  if (probe == "ring") return texts(ring_steps());
  if (probe == "launch") return numbers(launch_counts(), "kernels");
  if (probe == "hbm") return numbers(copy_sizes(), "bytes");
  return numbers(message_sizes(), "bytes");
}

std::string columns_of(const FamilySpec& f) {
  std::string out;
  for (const ColumnSpec& c : f.columns) out += fmt::format("{}{}", out.empty() ? "" : ", ", c.name);
  return out;
}

}  // namespace

std::string list_text(const ListOptions& o, const Catalogs& catalogs) {
  ShapeLists shapes = visited_shapes(catalogs);
  if (!o.all) shapes = chosen_shapes(std::move(shapes));
  if (o.probe.empty()) {
    Table t({"probe", "table", "shapes", "columns of the shape (bytes where the name says so)"});
    for (const Probe& p : probes()) {
      for (const char* f : p.families)
        t.add({p.name, f, std::to_string(shapes_of(p.name, shapes).size()), columns_of(family(f))});
    }
    return t.text() + "  Times are in microseconds: median_us, p10_us, p90_us, samples.\n";
  }
  std::string out;
  for (const Probe* p : probes_named(o.probe)) {
    for (const std::string& line : shapes_of(p->name, shapes)) out += line + "\n";
  }
  return out;
}

std::filesystem::path table_file(const std::filesystem::path& out, const std::vector<std::string>& families,
                                 const std::string& wanted) {
  if (out.extension() != ".csv") return out / (wanted + ".csv");
  if (families.size() > 1) {
    throw UserError(
        fmt::format("-o {} is one file, but {} tables would be written ({}): name a folder, or one "
                    "probe with --only",
                    out.string(), families.size(), fmt::join(families, ", ")));
  }
  return out;
}

std::vector<std::string> families_of(const std::vector<const Probe*>& chosen) {
  std::vector<std::string> out;
  for (const Probe* p : chosen) out.insert(out.end(), p->families.begin(), p->families.end());
  return out;
}

}  // namespace shardline::probe_cli
