// Documents cut into one block per host, with an anchor in front of every later block: what APB (arXiv
// 2502.12085) and StarAttention (arXiv 2411.17116) have in common. planner/README.md [C14].
#pragma once

#include "planner/layers/context_step.hpp"

namespace shardline {

inline constexpr OptionOf<int> kAnchor({
    .key = "anchor",
    .help = "first tokens of the document that every later host repeats",
    .tokens = true,
    .decodes = false,
});
inline constexpr OptionOf<int> kPassing({
    .key = "passing",
    .help = "tokens per host whose KV goes to the hosts after it",
    .tokens = true,
    .decodes = false,
});
inline constexpr OptionOf<int> kQuery({
    .key = "query",
    .help = "tokens of the question, in front of the anchor",
    .least = 0,
    .tokens = true,
    .decodes = false,
});

/// Tokens of the document that host `host` has: the longer blocks come first.
Interval host_block(const Segment& r, int request, int hosts, int host);

/// Rows of one anchor, its query included.
long long anchor_rows(const Segment& r, const Plan& p);

/// Why the plan cannot cut these requests into blocks with anchors, or nothing.
std::optional<std::string> check_blocks(const Case& c, const Plan& p);

/// Tokens of whole documents in blocks behind their anchors. On every host the rows are those of all anchors,
/// then those of all local blocks, request by request; the KV slot has p.cp * p.passing more rows per request
/// for the KV that hosts pass on. As tokens of results, anchors are sequences of their own, numbered after
/// all requests: their rows are no row of the document.
ContextLayout block_layout(const Plan& p, const std::vector<Segment>& requests);

/// First row of the passed KV in the KV slot.
long long first_passed_row(const ContextStep& s);
/// First row of a host's local queries among its query rows.
long long first_local_query(const ContextStep& s, int host);
/// First row of a request's local KV in the KV slot, which is the same on all hosts.
long long first_local_key(const ContextStep& s, int request);

/// One kernel: anchors see themselves; local queries see the anchor, what earlier hosts passed, and their own
/// block up to themselves.
OpIndex attend_blocks(ContextStep& s);

/// Part of the exact (query, key) pairs of a document that its local queries see; a passed token that the
/// anchor holds too counts twice.
double blocks_computed(const Case& c, const Plan& p);

}  // namespace shardline
