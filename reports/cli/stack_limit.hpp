// The stack that a command needs, whatever `ulimit -s` says.
#pragma once

namespace shardline::cli {

/// Memos of prices live on the stack, several of a command at once: they take 2 MiB. Raises the limit of this
/// process as far as the system lets it. Throws UserError where less is left than commands need: a stack that
/// ends is a segmentation fault without a word.
void need_stack();

}  // namespace shardline::cli
