#include "planner/engines/launch_replicas.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planner/engines/launch_server.hpp"

namespace shardline::launch {

namespace {

// "4,5,6,7".
std::string gpu_list(int first, int count) {
  std::vector<int> all;
  for (int i = 0; i < count; ++i) all.push_back(first + i);
  return fmt::format("{}", fmt::join(all, ","));
}

const char* kind_of_half(const Server& s) {
  return s.role == Role::context ? " for prompts" : s.role == Role::generation ? " for answers" : "";
}

}  // namespace

void place(const std::vector<Server*>& servers) {
  int ahead = 0, groups = 0, used = 0;  // of the machine that is being filled
  int all = 0;
  for (const Server* s : servers) all += s->replicas.count;
  for (Server* s : servers) {
    Replicas& r = s->replicas;
    r.ahead = ahead, r.groups_ahead = groups;
    ahead += r.count, groups += r.count * s->plan.dp;
    const int each = gpus_per_machine(s->study.system), wanted = s->plan.gpus();
    if (all == 1) continue;
    for (int i = 0; i < r.count; ++i) {
      if (wanted >= each) {
        used = each;  // the next one begins another machine
        continue;
      }
      if (used + wanted > each) used = 0;
      r.gpus.push_back(gpu_list(used, wanted));
      used += wanted;
    }
  }
}

std::string by_replica(const Server& s, int first, int apart) {
  if (s.replicas.count == 1) return std::to_string(first);
  return apart == 1 ? fmt::format("$(({} + REPLICA))", first)
                    : fmt::format("$(({} + {} * REPLICA))", first, apart);
}

std::vector<Variable> replica_variables(const Server& s, const Ports& ports) {
  std::vector<Variable> out;
  if (s.replicas.count > 1)
    out.push_back(
        {"REPLICA", "",
         fmt::format("which of the {} servers{} this is, from 0", s.replicas.count, kind_of_half(s))});
  out.push_back({"PORT", by_replica(s, ports.of(s.replicas, 0), ports.apart), ""});
  return out;
}

std::string replica_lines(const Server& s) {
  const Replicas& r = s.replicas;
  std::string out;
  if (r.count > 1)
    out += fmt::format(
        "if [[ ! $REPLICA =~ ^(0|[1-9][0-9]*)$ ]] || ((REPLICA >= {})); then\n"
        "  echo \"REPLICA is 0 to {}, not $REPLICA\" >&2\n  exit 2\nfi\n",
        r.count, r.count - 1);
  if (r.gpus.empty()) return out;
  if (r.count > 1) {
    out += fmt::format("PLACES=({})\nGPUS=${{GPUS:-${{PLACES[REPLICA]}}}}\n", fmt::join(r.gpus, " "));
  } else {
    out += fmt::format("GPUS=${{GPUS:-{}}}\n", r.gpus.front());
  }
  return out + "export CUDA_VISIBLE_DEVICES=\"$GPUS\"\n";
}

std::vector<std::string> says_of_replicas(const Server& s) {
  std::vector<std::string> out;
  if (s.replicas.count > 1)
    out.push_back(fmt::format("One of {} servers{}: run it for each REPLICA, 0 to {}.", s.replicas.count,
                              kind_of_half(s), s.replicas.count - 1));
  if (!s.replicas.gpus.empty())
    out.emplace_back(
        "GPUS: those of its machine, which others of the deployment share; by default they fill one machine "
        "after the other.");
  return out;
}

std::string address_lines(const std::string& name, const Server& s, const Ports& ports,
                          const std::string& what) {
  const int n = s.replicas.count;
  std::vector<int> at;
  for (int i = 0; i < n; ++i) at.push_back(ports.of(s.replicas, i));
  if (n == 1)
    return fmt::format(
        "{0}_ADDRS=(${{{0}_ADDRS:?the address of the server{1}}})\n{0}_PORTS=(${{{0}_PORTS:-{2}}})\n", name,
        what, at.front());
  return fmt::format(
      "{0}_ADDRS=(${{{0}_ADDRS:?addresses of the {1} servers{2} in the order of REPLICA, or one of all}})\n"
      "{0}_PORTS=(${{{0}_PORTS:-{3}}})\n"
      "if ((${{#{0}_PORTS[@]}} != {1} || (${{#{0}_ADDRS[@]}} != {1} && ${{#{0}_ADDRS[@]}} != 1))); then\n"
      "  echo \"{0}_ADDRS and {0}_PORTS are of {1} servers{2}\" >&2\n  exit 2\nfi\n",
      name, n, what, fmt::join(at, " "));
}

std::string each_address(const std::string& name, const std::string& body) {
  return fmt::format(
      "for I in \"${{!{0}_PORTS[@]}}\"; do\n  ADDR=${{{0}_ADDRS[I]:-${{{0}_ADDRS[0]}}}} "
      "AT=${{{0}_PORTS[I]}}\n"
      "  {1}\ndone\n",
      name, body);
}

LaunchFile nginx_router(const Server& s, const Ports& ports, const std::string& stem) {
  std::string text =
      "#!/bin/bash\n# In front of the servers beside it; nginx.\nset -euo pipefail\nPORT=${PORT:-8000}\n" +
      address_lines("SERVER", s, ports, "") + "SERVERS=\n" +
      each_address("SERVER", "SERVERS+=\"server $ADDR:$AT max_fails=3 fail_timeout=10s; \"");
  // A prompt may take long before its first token comes, and be longer than what nginx keeps in memory before
  // it writes to a folder of its own. Two connections a request: 8,192 requests at once.
  text +=
      "CONFIG=$(mktemp --suffix=.conf)\ncat > \"$CONFIG\" <<END\n"
      "daemon off;\npid $CONFIG.pid;\nerror_log stderr;\nevents { worker_connections 16384; }\nhttp {\n  "
      "access_log off;\n"
      "  client_max_body_size 0;\n  upstream servers { " +
      std::string(s.served != nullptr && s.served->in_turn ? "" : "least_conn; ") +
      "$SERVERS}\n  server {\n"
      "    listen $PORT;\n    location / {\n      proxy_pass http://servers;\n"
      "      proxy_http_version 1.1;\n      proxy_buffering off;\n      proxy_request_buffering off;\n      "
      "proxy_read_timeout 1h;\n"
      "    }\n  }\n}\nEND\nexec nginx -c \"$CONFIG\" \"$@\"\n";
  return {stem + ".sh", text, true};
}

}  // namespace shardline::launch
