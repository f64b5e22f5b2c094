// What `shardline plan llama-3.1-8b --system h200-hgx --gpus 1 --input 4K --output 256 --ttl "20 ms"` asks.
#include <cstdio>
#include <shardline/shardline.hpp>

namespace api = shardline::api;

int main() {
  try {
    api::PlanQuestion question;
    question.model = "llama-3.1-8b";
    question.system = "h200-hgx";
    question.gpus = 1;
    question.input_tokens = api::tokens_of("input", "4K");
    question.output_tokens = 256;
    question.most_ttl_s = api::seconds_of("ttl", "20 ms");
    const api::PlanResult answer = api::plan(question);
    std::printf("%s\n", answer.title.c_str());
    for (const api::PlannedPlan& p : answer.plans) {
      const api::Estimate& tpot = *p.point.tpot_s;  // of served users, as an engine runs the plans
      std::printf("%s %s: %.0f users, TPOT %.1f ms (90 %%: %.1f to %.1f ms), %.0f tokens/s/GPU\n",
                  p.meets ? "meets " : "misses", p.point.plan.c_str(), p.copies.users, 1e3 * tpot.value,
                  1e3 * tpot.low, 1e3 * tpot.high, p.copies.tokens_per_s_gpu);
    }
    return answer.met ? 0 : 3;  // as the command does
  } catch (const api::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
  }
}
