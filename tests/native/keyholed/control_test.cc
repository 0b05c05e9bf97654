// SPDX-License-Identifier: BSD-2-Clause

#include "keyholed/control.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace keyhole {
namespace {

using nlohmann::json;

class ControlTest : public testing::Test {
 protected:
  ControlTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "keyholeXXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    path_ = folder_ + "/control";
    auto made = Control::listen(path_, loop_);
    if (!made) throw std::runtime_error(made.error());
    control_ = std::move(*made);
    control_->add("echo", [](const json& request) -> std::expected<json, std::string> {
      if (!request.contains("word")) return std::unexpected("echo needs a word");
      return json{{"word", request["word"]}};
    });
  }
  ~ControlTest() override {
    control_.reset();
    std::filesystem::remove_all(folder_);
  }

  vfio_user::Fd dial() {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path_.c_str(), sizeof(address.sun_path) - 1);
    vfio_user::Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0));
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    return fd;
  }

  // All that comes within a few turns of the loop; ends with "<closed>" if the peer hung up.
  std::string exchange(vfio_user::Fd& fd, const std::string& text) {
    size_t sent = 0;
    std::string got;
    for (int turn = 0; turn < 200; ++turn) {
      if (sent < text.size()) {
        ssize_t put = send(fd.get(), text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
        if (put > 0) sent += static_cast<size_t>(put);
      }
      loop_.wait(0);
      std::array<char, 4096> buffer;
      ssize_t count = read(fd.get(), buffer.data(), buffer.size());
      if (count > 0) got.append(buffer.data(), static_cast<size_t>(count));
      if (count == 0 || (count < 0 && errno == ECONNRESET)) return got + "<closed>";
    }
    return got;
  }

  EventLoop loop_;
  std::string folder_, path_;
  std::unique_ptr<Control> control_;
};

TEST_F(ControlTest, AnswersEachLineWithALine) {
  auto fd = dial();
  EXPECT_EQ(
      exchange(fd, "{\"command\":\"echo\",\"word\":1}\n{\"command\":\"echo\",\"word\":\"x\"}\n"),
      "{\"ok\":true,\"word\":1}\n{\"ok\":true,\"word\":\"x\"}\n");
}

TEST_F(ControlTest, ALineMayComeInPieces) {
  auto fd = dial();
  EXPECT_EQ(exchange(fd, "{\"command\":\"ec"), "");
  EXPECT_EQ(exchange(fd, "ho\",\"word\":2}\n"), "{\"ok\":true,\"word\":2}\n");
}

TEST_F(ControlTest, RefusesNonsenseAndGoesOn) {
  for (const char* line : {"", "{", "[]", "7", "{\"command\":7}", "{}", "{\"command\":\"nothing\"}",
                           "{\"command\":\"echo\"}", "\xff\xfe"}) {
    json answer = control_->answer(line);
    EXPECT_EQ(answer["ok"], false) << line;
    EXPECT_FALSE(answer["error"].get<std::string>().empty());
  }
  auto fd = dial();
  EXPECT_EQ(exchange(fd, "{\"command\":\"nothing\"}\n").rfind("{\"error\"", 0), 0u);
}

TEST_F(ControlTest, DropsAClientWhoseLineNeverEnds) {
  auto fd = dial();
  std::string got = exchange(fd, std::string(200 * 1024, 'x'));
  EXPECT_NE(got.find("<closed>"), std::string::npos);
  auto other = dial();
  EXPECT_EQ(exchange(other, "{\"command\":\"echo\",\"word\":3}\n"), "{\"ok\":true,\"word\":3}\n");
}

TEST_F(ControlTest, ASocketInUseIsNotTakenAndADeadOneIs) {
  auto second = Control::listen(path_, loop_);
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().find("in use"), std::string::npos);

  std::string dead = folder_ + "/dead";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, dead.c_str(), sizeof(address.sun_path) - 1);
  {
    vfio_user::Fd fd(socket(AF_UNIX, SOCK_STREAM, 0));
    ASSERT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  auto third = Control::listen(dead, loop_);
  EXPECT_TRUE(third) << third.error();
}

TEST_F(ControlTest, DoesNotRemoveAFileThatIsNoSocket) {
  std::string file = folder_ + "/file";
  { std::unique_ptr<FILE, int (*)(FILE*)> made(fopen(file.c_str(), "w"), fclose); }
  auto refused = Control::listen(file, loop_);
  EXPECT_FALSE(refused);
  EXPECT_TRUE(std::filesystem::exists(file));
}

}  // namespace
}  // namespace keyhole
