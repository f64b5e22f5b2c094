// Published tables of three papers.
#include "calibrate/validate/apb_truth.hpp"
#include "calibrate/validate/context_truth.hpp"
#include "calibrate/validate/kv_runahead_truth.hpp"
#include "tests/fuzz/catalogs.hpp"
#include "tests/fuzz/fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace shardline;
  fuzz::read(data, size, [](const std::string& t) { parse_chain_truth("t.yaml", t, fuzz::catalogs()); });
  fuzz::read(data, size, [](const std::string& t) { parse_apb_truth("t.yaml", t, fuzz::catalogs()); });
  return fuzz::read(data, size,
                    [](const std::string& t) { parse_context_truth("t.yaml", t, fuzz::catalogs()); });
}
