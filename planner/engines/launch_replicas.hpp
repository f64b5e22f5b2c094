// Several servers of one deployment: which one a script starts, on which GPUs of a machine, at which ports;
// and the addresses that what stands in front of them asks for. planner/README.md [P20].
#pragma once

#include <string>
#include <vector>

namespace shardline {
struct LaunchFile;
}

namespace shardline::launch {

struct Server;

/// A variable of a script.
struct Variable {
  std::string name, value;  // of an empty one the message below
  std::string required;     // what it is, where it has no default
};

/// Servers of one plan in a deployment, counted from 0 over all of it: those for prompts, then those for
/// answers. Numbers on one machine follow one another, of which ports are made that do not collide.
struct Replicas {
  int count = 1;
  int ahead = 0;         // servers of the deployment in front of the first one
  int groups_ahead = 0;  // attention groups of those
  // The GPUs of each on its machine, "0,1"; empty: of whole machines, or alone in the deployment.
  std::vector<std::string> gpus = {};
};

/// Ports of the servers of a role: the first one's, were there none ahead of it, and the next one's distance.
struct Ports {
  int first = 0, apart = 1;
  int of(const Replicas& r, int replica) const { return first + (r.ahead + replica) * apart; }
};

/// Gives the servers of a deployment their numbers and GPUs: machine by machine, in this order, none of them
/// across two machines that it would fit one of. Plans of several machines have all GPUs of theirs.
void place(const std::vector<Server*>& servers);

/// Where there are several: REPLICA, and PORT by it.
std::vector<Variable> replica_variables(const Server& s, const Ports& ports);
/// "$((5600 + 2 * REPLICA))", or the number itself of the only one.
std::string by_replica(const Server& s, int first, int apart);
/// Refuses a REPLICA that is not there; CUDA_VISIBLE_DEVICES by GPUS, whose default is the replica's place.
std::string replica_lines(const Server& s);
/// What a script's first lines say of it.
std::vector<std::string> says_of_replicas(const Server& s);

/// Lines of a script in front of servers: the arrays NAME_ADDRS, of one address for all of them or of one for
/// each in the order of REPLICA, and NAME_PORTS, with what they listen at by default. `what`: "servers for
/// prompts".
std::string address_lines(const std::string& name, const Server& s, const Ports& ports,
                          const std::string& what);
/// A loop over them: `body` is a line in which $ADDR, $AT (its port) and $I stand for each one's.
std::string each_address(const std::string& name, const std::string& body);

/// A script of nginx in front of servers that do both, which sends a request to the one with the fewest:
/// docs/deployment/nginx.md of vllm-project/vllm@0794945f839b. Answers are streamed, not buffered.
LaunchFile nginx_router(const Server& s, const Ports& ports, const std::string& stem);

}  // namespace shardline::launch
