// SPDX-License-Identifier: BSD-2-Clause
//
// Every verb of the control path (every_verb.h) over and over: objects made and unmade, and nothing
// left.
//
//   cycles DEVICE GID-INDEX
//
// Each line of standard input is a number of rounds to make; a line `done` says that they are made.
// Between them the caller counts.

#include <iostream>

#include "every_verb.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: cycles DEVICE GID-INDEX\n");
    return 2;
  }
  guest::World world(argv[1], std::atoi(argv[2]));
  const guest::Verbs verbs(world);
  for (int rounds; std::cin >> rounds;) {
    for (int round = 0; round < rounds; ++round)
      for (const guest::Verb& verb : verbs.rows()) {
        verb.before();
        guest::need_zero(verb.call(), verb.name);
        verb.after();
      }
    std::printf("done\n");
    std::fflush(stdout);
  }
}
