// SPDX-License-Identifier: BSD-2-Clause
//
// Calls of the verbs ioctl, attribute by attribute, and the two objects that Keyhole's driver adds to
// them. Whoever uses it sees what the kernel says, with no library between; the provider only opens the
// device and makes the PDs.

#pragma once

#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#include <sys/ioctl.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "uapi/keyhole_hw.h"
#include "uapi/rdma/keyhole-abi.h"

namespace {

constexpr size_t kPage = 4096;

[[noreturn]] void die(const char* what) {
  std::fprintf(stderr, "%s: %s\n", what, std::strerror(errno));
  std::exit(2);
}

// One call of the verbs ioctl.
class Call {
 public:
  Call(uint16_t object, uint16_t method) : object_(object), method_(method) {}

  Call& attribute(uint16_t id, uint64_t data, uint16_t length) {
    ib_uverbs_attr& a = attributes_.emplace_back();
    a.attr_id = id;
    a.len = length;
    a.flags = UVERBS_ATTR_F_MANDATORY;
    a.data = data;
    return *this;
  }
  Call& handle(uint16_t id, uint32_t value = 0) { return attribute(id, value, 0); }
  // The interface has values of up to 8 bytes in the attribute itself.
  template <typename T>
  Call& in(uint16_t id, T value) {
    return attribute(id, static_cast<uint64_t>(value), sizeof(T));
  }
  template <typename T>
  Call& out(uint16_t id, T& value) {
    return attribute(id, reinterpret_cast<uint64_t>(&value), sizeof(T));
  }

  ib_uverbs_attr& operator[](uint16_t id) {
    for (ib_uverbs_attr& a : attributes_)
      if (a.attr_id == id) return a;
    std::abort();
  }
  Call& without(uint16_t id) {
    std::erase_if(attributes_, [id](const ib_uverbs_attr& a) { return a.attr_id == id; });
    return *this;
  }
  Call& method(uint16_t method) {
    method_ = method;
    return *this;
  }

  // 0, or the errno. A handle that the kernel gave is in its attribute afterwards.
  int operator()(int fd) {
    const size_t bytes = sizeof(ib_uverbs_ioctl_hdr) + attributes_.size() * sizeof(ib_uverbs_attr);
    std::vector<uint64_t> buffer((bytes + 7) / 8);
    auto* header = reinterpret_cast<ib_uverbs_ioctl_hdr*>(buffer.data());
    header->length = static_cast<uint16_t>(bytes);
    header->object_id = object_;
    header->method_id = method_;
    header->num_attrs = static_cast<uint16_t>(attributes_.size());
    std::memcpy(header + 1, attributes_.data(), attributes_.size() * sizeof(ib_uverbs_attr));
    const int error = ioctl(fd, RDMA_VERBS_IOCTL, header) ? errno : 0;
    std::memcpy(attributes_.data(), header + 1, attributes_.size() * sizeof(ib_uverbs_attr));
    return error;
  }

 private:
  uint16_t object_;
  uint16_t method_;
  std::vector<ib_uverbs_attr> attributes_;
};

ibv_context* open_device(const char* name) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  ibv_context* context = nullptr;
  for (int i = 0; i < count; ++i)
    if (!std::strcmp(name, ibv_get_device_name(list[i]))) context = ibv_open_device(list[i]);
  ibv_free_device_list(list);
  if (!context) die("opening the device");
  return context;
}

ibv_pd* new_pd(ibv_context* context) {
  ibv_pd* pd = ibv_alloc_pd(context);
  if (!pd) die("ibv_alloc_pd");
  return pd;
}

// ---- the two objects ----

struct Object {
  int error;
  uint32_t handle;
  uint32_t key;
};

Call create_mkey(uint32_t pd, uint32_t max_entries, uint32_t access, uint32_t& key) {
  Call call(KEYHOLE_OBJECT_MKEY, KEYHOLE_METHOD_MKEY_CREATE);
  call.handle(KEYHOLE_ATTR_MKEY_CREATE_HANDLE)
      .handle(KEYHOLE_ATTR_MKEY_CREATE_PD_HANDLE, pd)
      .in(KEYHOLE_ATTR_MKEY_CREATE_MAX_ENTRIES, max_entries)
      .in(KEYHOLE_ATTR_MKEY_CREATE_ACCESS, access)
      .out(KEYHOLE_ATTR_MKEY_CREATE_RESP_KEY, key);
  return call;
}

Object mkey(const ibv_pd* pd, uint32_t max_entries, uint32_t access = 0) {
  Object object{};
  Call call = create_mkey(pd->handle, max_entries, access, object.key);
  object.error = call(pd->context->cmd_fd);
  object.handle = static_cast<uint32_t>(call[KEYHOLE_ATTR_MKEY_CREATE_HANDLE].data);
  return object;
}

Call create_list(uint32_t pd, uint64_t addr, uint64_t length, uint32_t& key) {
  Call call(KEYHOLE_OBJECT_KLM_LIST, KEYHOLE_METHOD_KLM_LIST_CREATE);
  call.handle(KEYHOLE_ATTR_KLM_LIST_CREATE_HANDLE)
      .handle(KEYHOLE_ATTR_KLM_LIST_CREATE_PD_HANDLE, pd)
      .in(KEYHOLE_ATTR_KLM_LIST_CREATE_ADDR, addr)
      .in(KEYHOLE_ATTR_KLM_LIST_CREATE_LENGTH, length)
      .out(KEYHOLE_ATTR_KLM_LIST_CREATE_RESP_KEY, key);
  return call;
}

Object list(const ibv_pd* pd, uint64_t addr, uint64_t length) {
  Object object{};
  Call call = create_list(pd->handle, addr, length, object.key);
  object.error = call(pd->context->cmd_fd);
  object.handle = static_cast<uint32_t>(call[KEYHOLE_ATTR_KLM_LIST_CREATE_HANDLE].data);
  return object;
}

template <typename T>
int query_mkey(int fd, uint32_t handle, T& attr) {
  Call call(KEYHOLE_OBJECT_MKEY, KEYHOLE_METHOD_MKEY_QUERY);
  return call.handle(KEYHOLE_ATTR_MKEY_QUERY_HANDLE, handle).out(KEYHOLE_ATTR_MKEY_QUERY_RESP, attr)(fd);
}

template <typename T>
int query_list(int fd, uint32_t handle, T& attr) {
  Call call(KEYHOLE_OBJECT_KLM_LIST, KEYHOLE_METHOD_KLM_LIST_QUERY);
  return call.handle(KEYHOLE_ATTR_KLM_LIST_QUERY_HANDLE, handle).out(KEYHOLE_ATTR_KLM_LIST_QUERY_RESP, attr)(fd);
}

int destroy_mkey(int fd, uint32_t handle) {
  return Call(KEYHOLE_OBJECT_MKEY, KEYHOLE_METHOD_MKEY_DESTROY).handle(KEYHOLE_ATTR_MKEY_DESTROY_HANDLE, handle)(fd);
}

int destroy_list(int fd, uint32_t handle) {
  return Call(KEYHOLE_OBJECT_KLM_LIST, KEYHOLE_METHOD_KLM_LIST_DESTROY)
      .handle(KEYHOLE_ATTR_KLM_LIST_DESTROY_HANDLE, handle)(fd);
}

// ---- memory ----

uint8_t* map(size_t bytes, int protection = PROT_READ | PROT_WRITE) {
  void* memory = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) die("mmap");
  return static_cast<uint8_t*>(memory);
}

uint64_t at(const void* memory) { return reinterpret_cast<uint64_t>(memory); }

long pinned_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmPin:")) return std::strtol(line.c_str() + 6, nullptr, 10);
  die("no VmPin in /proc/self/status");
}

}  // namespace
