// SPDX-License-Identifier: BSD-2-Clause
//
// A program that loads the library of the experimental verbs and unloads it again, as one with plug-ins does. It is
// not linked with it. Each time libibverbs must still find its devices and open them: the provider that the
// library brought along has registered itself there, and there is no way back from that.
//
//   exp_comes_and_goes DEVICE

#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstring>

namespace {

bool can_open(const char* name) {
  ibv_device** list = ibv_get_device_list(nullptr);
  ibv_context* context = nullptr;
  for (ibv_device** it = list; it && *it; ++it)
    if (!std::strcmp(name, ibv_get_device_name(*it))) context = ibv_open_device(*it);
  if (list) ibv_free_device_list(list);
  return context && !ibv_close_device(context);
}

// Where the provider was, if it has gone, there shall be nothing: loaded again, it could come to the same place,
// and what points there would be right by chance.
bool comes_and_goes() {
  void* library = dlopen("libibverbs_exp.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) std::fprintf(stderr, "%s\n", dlerror());
  void* const provider = library ? dlsym(library, "keyholedv_create_mkey") : nullptr;
  Dl_info info{};
  if (!provider || !dladdr(provider, &info) || dlclose(library)) return false;
  for (size_t offset = 0; offset < 2 << 20; offset += 4096)
    (void)mmap(static_cast<char*>(info.dli_fbase) + offset, 4096, PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  bool right = true;
  for (int i = 0; i < 10; ++i) right = right && comes_and_goes() && can_open(argv[1]);
  std::printf("%-6s dlclose: the device can be opened whenever the library has come and gone\n", right ? "ok" : "WRONG");
  return !right;
}
