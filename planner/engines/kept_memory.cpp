#include "planner/engines/kept_memory.hpp"

namespace shardline {

namespace {

constexpr long long kMost = 1'000'000;  // tokens, requests

Bytes bytes_at(const Reader& r, const char* key) {
  const auto v = r.find(key);
  return v ? v->quantity<Bytes>(Bytes(0), Bytes(1e12)) : Bytes(0);
}

void read_groups(const Reader& r, KeptMemory& k) {
  k.group_request = r.at("request").quantity<Bytes>(Bytes(0), Bytes(1e9));
  k.group_request_of_many = r.at("of_many").quantity<Bytes>(Bytes(0), Bytes(1e9));
  k.many = r.at("many").integer(1, kMost);
  r.no_other_keys();
}

void read_prompts(const Reader& r, KeptMemory& k) {
  k.prompt_graph = r.at("graph").quantity<Bytes>(Bytes(0), Bytes(1e9));
  for (const Reader& size : r.at("sizes").items()) {
    k.prompt_sizes.push_back({size.at("step").integer(1, kMost), size.at("to").integer(1, kMost)});
    if (k.prompt_sizes.size() > 1 && k.prompt_sizes.back().to <= k.prompt_sizes.rbegin()[1].to)
      size.fault(size.path() + ": sizes ascend");
    size.no_other_keys();
  }
  k.latent_prompts = r.at("mla").quantity<Bytes>(Bytes(0), Bytes(1e12));
  r.no_other_keys();
}

void read_context(const Reader& r, KeptMemory& k) {
  k.context_of_one = r.at("one").quantity<Bytes>(Bytes(0), Bytes(1e12));
  k.context_of_several = r.at("several").quantity<Bytes>(Bytes(0), Bytes(1e12));
  r.no_other_keys();
}

int graphs_up_to(const std::vector<KeptMemory::Sizes>& sizes, long long most) {
  int count = 0;
  long long last = 0;
  for (const KeptMemory::Sizes& s : sizes) {
    const long long to = std::min(s.to, most);
    if (to > last) count += static_cast<int>((to - last) / s.step);
    last = s.to;
  }
  return count;
}

}  // namespace

Bytes KeptMemory::set_aside(const KeptOf& of) const {
  const auto requests = static_cast<double>(of.requests);
  Bytes out = fixed + step_token * static_cast<double>(std::max(of.step_tokens, least_tokens)) +
              request * requests + gpu * of.gpus;
  if (of.groups > 1)
    out += (of.requests > many ? group_request_of_many : group_request) * (requests * of.groups);
  if (of.prompt_graphs)
    out += of.latents ? latent_prompts : prompt_graph * graphs_up_to(prompt_sizes, of.step_tokens);
  return std::max(out, least);
}

KeptMemory KeptMemory::context_alone() const {
  KeptMemory out;
  out.context_of_one = context_of_one;
  out.context_of_several = context_of_several;
  return out;
}

KeptMemory read_kept(const Reader& r) {
  KeptMemory k;
  if (!r.is_map()) {
    k.fixed = r.quantity<Bytes>(Bytes(0), Bytes(1e12));
    return k;
  }
  k.fixed = bytes_at(r, "fixed");
  k.step_token = bytes_at(r, "step_token");
  k.request = bytes_at(r, "request");
  k.gpu = bytes_at(r, "gpu");
  k.least = bytes_at(r, "least");
  if (const auto v = r.find("least_tokens")) k.least_tokens = v->tokens(1, kMost);
  if (const auto v = r.find("attention_dp")) read_groups(*v, k);
  if (const auto v = r.find("prompt_graphs")) read_prompts(*v, k);
  if (const auto v = r.find("context")) read_context(*v, k);
  if (const auto v = r.find("activations")) k.holds_activations = v->boolean();
  r.no_other_keys();
  return k;
}

}  // namespace shardline
