// SPDX-License-Identifier: BSD-2-Clause
//
// Several HCAs on one switch, driven by one thread.

#include <algorithm>
#include <stdexcept>

#include "harness.h"

namespace keyhole::test {

Rig::Rig(Options options) {
  clock_.rig = this;
  switch_ = std::make_unique<Switch>(clock_);
  for (uint32_t i = 0; i < options.stations; ++i) {
    Station station;
    station.host = std::make_unique<FakeHost>(options.host);
    HcaOptions hca = options.hca;
    hca.name = "hca" + std::to_string(i);
    hca.mac = {{0x02, 0, 0, 0, 1, static_cast<uint8_t>(i + 1)}};
    station.hca = std::make_unique<Hca>(hca, station.host->host(), switch_.get());
    switch_->attach(*station.hca);
    station.driver = std::make_unique<FakeDriver>(*station.host, *station.hca, [this] { run(); });
    stations_.push_back(std::move(station));
  }
  for (uint32_t i = 0; options.start && i < options.stations; ++i)
    stations_[i].driver->start(static_cast<uint8_t>(i + 1));
}

Rig::~Rig() {
  for (Station& station : stations_)
    switch_->detach(*station.hca);
}

void Rig::run() {
  // A device that never comes to rest is a fault of its own: 10 million turns are more than any
  // test needs.
  for (int turns = 0; switch_->run(); ++turns) {
    if (turns > 10'000'000) throw std::runtime_error("the device does not come to rest");
  }
}

void Rig::run_for(uint64_t ns) {
  uint64_t end = host(0).now_ns() + ns;
  for (;;) {
    run();
    uint64_t now = host(0).now_ns();
    uint64_t next = std::min(switch_->deadline(), end);
    uint64_t step = next > now ? next - now : 0;
    if (step == 0 && now >= end) break;
    for (Station& station : stations_)
      station.host->advance(std::max<uint64_t>(step, 1));
  }
  run();
}

}  // namespace keyhole::test
