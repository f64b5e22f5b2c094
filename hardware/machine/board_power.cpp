#include "hardware/machine/board_power.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <vector>

#include "hardware/machine/system.hpp"

namespace shardline {

namespace {

constexpr double kMostWatts = 10'000;
// A band borrowed from another board is wider by this factor, as those of borrowed times are [H63].
constexpr double kBorrowed = 1.3;
constexpr std::array kClasses{PowerClass::product, PowerClass::prefill, PowerClass::stream};

PowerLaw read_law(const Reader& r) {
  PowerLaw law;
  law.base = r.at("base_w").number(1, kMostWatts);
  law.tensor = r.at("tensor_w").number(0, kMostWatts);
  law.memory = r.at("memory_w").number(0, kMostWatts);
  const std::vector<Reader> ends = r.at("band").items();
  if (ends.size() == 2) {
    law.band = {ends[0].number(-3, 0), ends[1].number(0, 3)};
  } else {
    r.at("band").fault(
        fmt::format("band: expected [low, high], ln(measured / predicted), found {} numbers", ends.size()));
  }
  r.no_other_keys();
  return law;
}

BoardPower scaled(BoardPower p, double factor, std::string like) {
  p.idle *= factor;
  p.most *= factor;
  for (PowerLaw& law : p.laws) {
    law.base *= factor;
    law.tensor *= factor;
    law.memory *= factor;
    law.band = law.band.widened(kBorrowed);
  }
  p.like = std::move(like);
  return p;
}

// What another system's file says; its own limit beside it.
struct Lender {
  BoardPower power;
  double limit = 0;
};
Lender lender_of(const std::filesystem::path& file) {
  Document document = Document::load(file);
  const Reader root = document.root();
  Lender out;
  const auto limit = root.at("device").find("power_limit_w");
  if (limit) out.limit = limit->number(10, kMostWatts);
  const auto power = root.find("power");
  if (power && power->is_map() && !power->has("like")) out.power = read_board_power(*power, out.limit, {});
  return out;
}

BoardPower borrowed(const Reader& named, double limit, const std::filesystem::path& catalog_dir) {
  const std::string name = named.text();
  if (!named.is_scalar()) return {};
  const std::filesystem::path file = catalog_dir / (name + ".yaml");
  std::error_code error;  // a name may be too long for any file
  if (catalog_dir.empty() || !std::filesystem::exists(file, error)) {
    const std::vector<std::string> names =
        catalog_dir.empty() ? std::vector<std::string>{} : system_names(catalog_dir);
    named.fault("unknown system " + name, expected_one_of(name, names));
    return {};
  }
  const Lender lender = lender_of(file);
  if (!lender.power.known() || !(lender.limit > 0)) {
    named.fault(fmt::format("power.like: no power was measured of a board of {}", name));
    return {};
  }
  if (!(limit > 0)) {
    named.fault("power.like needs device.power_limit_w: watts are taken in the ratio of the limits");
    return {};
  }
  return scaled(lender.power, limit / lender.limit, name);
}

}  // namespace

PowerClass power_class(OpKind kind) {
  switch (kind) {  // without a default: a new kind is a warning here, not a stream
    case OpKind::gemm:
    case OpKind::batched_gemm:
    case OpKind::grouped_gemm:
      return PowerClass::product;
    case OpKind::attend_prefill:
      return PowerClass::prefill;
    case OpKind::attend_decode:
    case OpKind::merge:
    case OpKind::elementwise:
    case OpKind::compress:
    case OpKind::launch:
    case OpKind::index_logits:
    case OpKind::top_k:
    case OpKind::attend_sparse:
    case OpKind::module_rest:
    case OpKind::convolve:
    case OpKind::recur:
    case OpKind::mix_streams:
    case OpKind::send_recv:
    case OpKind::all_reduce:
    case OpKind::all_gather:
    case OpKind::reduce_scatter:
    case OpKind::all_to_all:
    case OpKind::dispatch:
    case OpKind::combine:
      break;
  }
  return PowerClass::stream;
}

const char* power_key(PowerClass of) {
  switch (of) {
    case PowerClass::product:
      return "gemm";
    case PowerClass::prefill:
      return "attention_prefill";
    case PowerClass::stream:
      return "attention_decode";
  }
  return "";
}

double BoardPower::watts(PowerClass of, double tensor_use, double memory_use) const {
  const PowerLaw& law = laws[static_cast<std::size_t>(of)];
  return std::min(most, law.base + law.tensor * tensor_use + law.memory * memory_use);
}

BoardPower read_board_power(const Reader& r, double limit, const std::filesystem::path& catalog_dir) {
  if (r.is_map() && r.has("like")) {
    BoardPower out = borrowed(r.at("like"), limit, catalog_dir);
    r.no_other_keys();
    return out;
  }
  BoardPower p;
  p.idle = r.at("idle_w").number(1, kMostWatts);
  p.most = r.at("most_w").number(1, kMostWatts);
  if (p.most < p.idle) r.at("most_w").fault("power.most_w: no kernel draws less than a board that waits");
  if (limit > 0 && p.most > limit)
    r.at("most_w").fault(fmt::format("power.most_w: above device.power_limit_w, {:.0f} W", limit));
  p.source = r.at("source").text();
  for (const PowerClass c : kClasses) p.laws[static_cast<std::size_t>(c)] = read_law(r.at(power_key(c)));
  r.no_other_keys();
  return p;
}

}  // namespace shardline
