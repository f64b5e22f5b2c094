// Attention groups that hold prompts back until all of them have some: how often they then compute any.
// planner/README.md [P38].
#pragma once

namespace shardline {

/// Groups of a server to which requests come in turn and whose prompts wait for those of other groups, for
/// `passes` - 1 steps at most (requests/prefill_delayer.hpp, [R40]).
struct HoldingGroups {
  double groups = 2;
  double steps = 1;  // of a prompt: its chunks
  double most = 1;   // prompts that share them
  int passes = 30;   // at least 1
};

/// Means, from one time that prompts are computed to the next.
struct HeldPrompts {
  double prompts = 0;   // of a group; fewer than 1 where not all groups have any
  double present = 1;   // part of the groups that have some
  double together = 1;  // prompts of a group in the same steps
  double rounds = 1;    // of those steps: more than 1 where not all find place in one
  double decoding = 0;  // steps in which nobody has prompts
  double tokens = 0;    // of a request that decodes: in those steps, and beside prompts of other groups
  double waited = 0;    // steps that a prompt waits
};

/// [P38] Where `come` prompts (> 0) come to a group in the time of a token.
HeldPrompts held_prompts(const HoldingGroups& all, double come);

}  // namespace shardline
