// SPDX-License-Identifier: BSD-2-Clause

#include "hca/host.h"

namespace keyhole {

HostSpan GuestMemory::translate_slowly(uint64_t iova, uint64_t length, bool write) {
  Region region = find(iova);
  if (!region.host) return {};
  // A map may come in pieces that end where it ends: the longer piece replaces the shorter one.
  Region* place = nullptr;
  for (Region& recent : recent_) {
    if (recent.host && recent.last == region.last) place = &recent;
  }
  if (!place) {
    place = &recent_[oldest_];
    oldest_ = (oldest_ + 1) % recent_.size();
  }
  *place = region;
  return part(region, iova, length, write);
}

}  // namespace keyhole
