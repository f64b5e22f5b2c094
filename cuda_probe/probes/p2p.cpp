// One message from one GPU to another by copy engine and by kernel; inside the GPU where there is one only.
#include "cuda_probe/probes/bench.hpp"

namespace shardline {

namespace {

struct Peer {
  int device = 0;
  bool direct = false;  // kernels may write to it
};

Peer find_peer(const Bench& b) {
  Peer out{b.device(), false};
  const int devices = cuda_devices();
  if (devices < 2) return out;
  out.device = b.device() == 0 ? 1 : 0;
  int possible = 0;
  SL_CUDA(cudaDeviceCanAccessPeer(&possible, b.device(), out.device));
  if (possible == 0) return out;
  const cudaError_t status = cudaDeviceEnablePeerAccess(out.device, 0);  // of this process only
  cudaGetLastError();
  out.direct = status == cudaSuccess || status == cudaErrorPeerAccessAlreadyEnabled;
  return out;
}

}  // namespace

void probe_p2p(ProbeRun& probe_run) {
  Bench& b = probe_run.bench;
  FamilyResult out("p2p");
  const Peer peer = find_peer(b);
  const bool local = peer.device == b.device();
  if (local) out.note("one GPU: messages stay inside it");
  if (!local && !peer.direct) out.note("the GPUs have no peer access: copies go through the host");
  probe_run.each(out, message_sizes(), [&](std::int64_t bytes) {
    const auto size = static_cast<std::size_t>(bytes);
    const DeviceMemory from(b.device(), size), to(peer.device, size);
    const Amount amount{Flops(0), Bytes(static_cast<double>(bytes))};
    const auto row = [&](const char* transport, const std::function<void(cudaStream_t)>& send) {
      send(b.stream());
      SL_CUDA(cudaStreamSynchronize(b.stream()));
      out.add({{"transport", transport}, {"peer_bytes", bytes}}, b.measure(send, 1, true), amount);
    };
    row(local ? "memcpy_local" : "memcpy_peer", [&](cudaStream_t s) {
      if (local) {
        SL_CUDA(cudaMemcpyAsync(to.get(), from.get(), size, cudaMemcpyDeviceToDevice, s));
      } else {
        SL_CUDA(cudaMemcpyPeerAsync(to.get(), peer.device, from.get(), b.device(), size, s));
      }
    });
    if (!local && !peer.direct) return;
    row(local ? "kernel_local" : "kernel_peer", [&](cudaStream_t s) {
      copy_by_kernel(from.get(), to.get(), size, b.sms(), s);
      SL_CUDA(cudaGetLastError());
    });
  });
  probe_run.finish(out);
}

}  // namespace shardline
