// SPDX-License-Identifier: BSD-2-Clause
//
// A program that loads the library of the experimental verbs and unloads it again, as one with plug-ins does. It is
// not linked with it. Each time libibverbs must still find its devices and open them: the provider that the
// library brought along has registered itself there, and there is no way back from that.
//
//   exp_comes_and_goes DEVICE

#include <dlfcn.h>
#include <infiniband/verbs.h>

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

bool comes_and_goes() {
  void* library = dlopen("libibverbs_exp.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) std::fprintf(stderr, "%s\n", dlerror());
  return library && dlsym(library, "ibv_exp_create_mr") && !dlclose(library);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  bool right = true;
  for (int i = 0; i < 10; ++i) right = right && comes_and_goes() && can_open(argv[1]);
  std::printf("%-6s dlclose: the device can be opened whenever the library has come and gone\n", right ? "ok" : "WRONG");
  return !right;
}
