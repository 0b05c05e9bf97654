// SPDX-License-Identifier: BSD-2-Clause
//
// A request and its reply as datagrams: the server answers whoever asked.
//
//   ud_request [DEVICE GID-INDEX DEVICE GID-INDEX]
//
// A UD queue pair is connected to nobody. The client needs to know where the server is: its GID,
// QP number and Q_Key, and makes an address handle of the first. The server knows nothing of its
// clients. What it needs for a reply came with the request: the sender's QP number is in the
// completion, its address in the 40 bytes before the payload (the GRH, or for IPv4 the IP header
// in their second half), and ibv_create_ah_from_wc() makes an address handle of it.

#include <arpa/inet.h>

#include "pair.h"

namespace {

using Ah = Owned<ibv_ah, ibv_destroy_ah>;

constexpr unsigned kGrhBytes = sizeof(ibv_grh);
constexpr unsigned kTextBytes = 128;

// An end with room for one datagram in each direction.
struct Station : End {
  explicit Station(const Where& where) : End(where, IBV_QPT_UD) {}

  std::vector<char> memory = std::vector<char>(kGrhBytes + 2 * kTextBytes);
  Region mr = region(memory, IBV_ACCESS_LOCAL_WRITE);

  ibv_grh* grh() { return reinterpret_cast<ibv_grh*>(memory.data()); }
  char* received() { return memory.data() + kGrhBytes; }
  char* outgoing() { return received() + kTextBytes; }

  void expect() {
    ibv_sge sge{reinterpret_cast<uint64_t>(memory.data()), kGrhBytes + kTextBytes, mr->lkey};
    receive(&sge);
  }

  void send(const std::string& text, ibv_ah* ah, uint32_t qpn) {
    const size_t bytes = text.size() + 1;
    if (bytes > kTextBytes) fail("too long a text");
    std::memcpy(outgoing(), text.c_str(), bytes);
    ibv_sge sge{reinterpret_cast<uint64_t>(outgoing()), static_cast<uint32_t>(bytes), mr->lkey};
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.wr.ud.ah = ah;
    wr.wr.ud.remote_qpn = qpn;
    wr.wr.ud.remote_qkey = kQkey;
    if (const ibv_wc_status status = post(wr); status != IBV_WC_SUCCESS)
      fail(std::string("SEND: ") + ibv_wc_status_str(status));
  }

  // A datagram has arrived: its completion. byte_len counts the 40 bytes too.
  ibv_wc arrived() {
    const ibv_wc wc = wait();
    if (wc.status != IBV_WC_SUCCESS) fail(std::string("RECV: ") + ibv_wc_status_str(wc.status));
    if (!(wc.wc_flags & IBV_WC_GRH) || wc.byte_len <= kGrhBytes)
      fail("a datagram without a GRH, or empty");
    return wc;
  }
};

std::string address(const ibv_gid& gid) {
  char text[INET6_ADDRSTRLEN];
  return inet_ntop(AF_INET6, gid.raw, text, sizeof text) ? text : "?";
}

}  // namespace

int main(int argc, char** argv) {
  const auto [here, there] = two_ends(argc, argv);
  Station client(here);
  Station server(there);
  connect(client, server);  // for UD: both are made ready, and stay strangers
  client.expect();
  server.expect();

  ibv_ah_attr to_server = client.path_to(server.gid);
  const Ah server_ah(need(ibv_create_ah(client.pd.get(), &to_server), "ibv_create_ah"));
  client.send("what is the answer?", server_ah.get(), server.qp->qp_num);
  std::printf("client: QP 0x%06x at %s asks QP 0x%06x at %s\n", client.qp->qp_num,
              address(client.gid).c_str(), server.qp->qp_num, address(server.gid).c_str());

  ibv_wc request = server.arrived();
  ibv_ah_attr from{};
  done(ibv_init_ah_from_wc(server.context.get(), 1, &request, server.grh(), &from),
       "ibv_init_ah_from_wc");
  std::printf("server: \"%s\" from QP 0x%06x at %s\n", server.received(), request.src_qp,
              address(from.grh.dgid).c_str());
  if (request.src_qp != client.qp->qp_num ||
      std::memcmp(&from.grh.dgid, &client.gid, sizeof(ibv_gid)) != 0)
    fail("that is not where the request came from");

  const Ah back(need(ibv_create_ah_from_wc(server.pd.get(), &request, server.grh(), 1),
                     "ibv_create_ah_from_wc"));
  server.send(std::string(server.received()) + " 42", back.get(), request.src_qp);

  const ibv_wc reply = client.arrived();
  std::printf("client: \"%s\" from QP 0x%06x\n", client.received(), reply.src_qp);
  if (reply.src_qp != server.qp->qp_num ||
      std::strcmp(client.received(), "what is the answer? 42") != 0)
    fail("that is not the reply");
}
