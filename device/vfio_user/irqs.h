// SPDX-License-Identifier: BSD-2-Clause
//
// The interrupt vectors of one VFIO interrupt type, as the client set them up: for each vector an
// eventfd to signal, a mask and a pending bit.
//
// A vector that is raised while it is masked or has no eventfd becomes pending, as on hardware, and
// is delivered when it is unmasked or gets its eventfd. A client that re-arranges its descriptors
// (QEMU drops and sets all of them when a guest enables one more vector) loses no interrupt by it.

#pragma once

#include <cstdint>
#include <vector>

#include "vfio_user/fd.h"

namespace keyhole::vfio_user {

class Irqs {
 public:
  explicit Irqs(uint32_t count) : vectors_(count) {}

  uint32_t count() const { return static_cast<uint32_t>(vectors_.size()); }

  // Signals the vector, or makes it pending. A vector out of range is ignored.
  void raise(uint32_t vector);

  // An eventfd, and made non-blocking. Anything else that a client may send could block us.
  static bool usable(const Fd& fd);

  // Signals the vector by `fd`, which is usable(), from now on; by none if that is empty.
  void assign(uint32_t vector, Fd fd);

  void mask(uint32_t vector);
  void unmask(uint32_t vector);

  bool has_eventfd(uint32_t vector) const { return bool(vectors_[vector].eventfd); }
  bool pending(uint32_t vector) const { return vectors_[vector].pending; }

  // Forgets pending bits (a device reset).
  void clear_pending();
  // Forgets descriptors, masks and pending bits (the type disabled, or the client gone).
  void clear();

 private:
  struct Vector {
    Fd eventfd;
    bool masked = false;
    bool pending = false;
  };

  static void deliver(Vector& vector);

  std::vector<Vector> vectors_;
};

}  // namespace keyhole::vfio_user
