// SPDX-License-Identifier: BSD-2-Clause

#include "keyholed/options.h"

#include <gtest/gtest.h>

#include <vector>

namespace keyhole {
namespace {

std::expected<Options, Exit> parse(std::vector<const char*> words) {
  words.insert(words.begin(), "keyholed");
  return parse_options(static_cast<int>(words.size()), words.data());
}

TEST(Options, EachHcaHasItsNameSocketAndMac) {
  auto options = parse({"--hca", "name=a,socket=/tmp/a", "--hca",
                        "name=b,socket=/tmp/b,mac=02:00:00:00:00:0b", "--control", "/tmp/c"});
  ASSERT_TRUE(options) << options.error().text;
  ASSERT_EQ(options->hcas.size(), 2u);
  EXPECT_EQ(options->hcas[0].name, "a");
  EXPECT_EQ(to_string(options->hcas[0].mac), "52:54:00:4b:48:01");
  EXPECT_EQ(options->hcas[1].socket, "/tmp/b");
  EXPECT_EQ(to_string(options->hcas[1].mac), "02:00:00:00:00:0b");
  EXPECT_EQ(options->control, "/tmp/c");
}

TEST(Options, HelpAndVersionAreNoErrors) {
  for (const char* word : {"--help", "--version"}) {
    auto options = parse({word});
    ASSERT_FALSE(options);
    EXPECT_EQ(options.error().status, 0) << word;
    EXPECT_FALSE(options.error().text.empty());
  }
}

struct Refused {
  std::vector<const char*> words;
  const char* says;
};

class OptionsRefused : public testing::TestWithParam<Refused> {};

TEST_P(OptionsRefused, WithASentenceThatNamesWhatIsWrong) {
  auto options = parse(GetParam().words);
  ASSERT_FALSE(options);
  EXPECT_EQ(options.error().status, 2);
  EXPECT_NE(options.error().text.find(GetParam().says), std::string::npos) << options.error().text;
}

INSTANTIATE_TEST_SUITE_P(
    All, OptionsRefused,
    testing::Values(
        Refused{{}, "--hca"}, Refused{{"--hca", "name=a"}, "socket= are needed"},
        Refused{{"--hca", "socket=/a"}, "name= and"},
        Refused{{"--hca", "name=a,socket=/a,name=b"}, "name twice"},
        Refused{{"--hca", "name=a,socket="}, "socket has no value"},
        Refused{{"--hca", "name=a,socket=/a,speed=9"}, "not \"speed\""},
        Refused{{"--hca", "name=a,socket=/a,mac=01:00:5e:00:00:01"}, "unicast"},
        Refused{{"--hca", "name=a,socket=/a,mac=00:00:00:00:00:00"}, "unicast"},
        Refused{{"--hca", "name=a,socket=/a,mac=52:54:00:4b:48"}, "six bytes"},
        Refused{{"--hca", "name=a,socket=/a,mac=52:54:00:4b:48:0x"}, "six bytes"},
        Refused{{"--hca", "name=a,socket=/a,mac=52-54-00-4b-48-01"}, "six bytes"},
        Refused{{"--hca", "name=a,socket=/a", "--hca", "name=a,socket=/b"}, "same name"},
        Refused{{"--hca", "name=a,socket=/a", "--hca", "name=b,socket=/a"}, "same socket"},
        Refused{{"--hca", "name=a,socket=/a,mac=02:00:00:00:00:01", "--hca",
                 "name=b,socket=/b,mac=02:00:00:00:00:01"},
                "same mac"},
        Refused{{"--hca", "name=a,socket=/a", "--log-level", "loud"}, "--log-level"},
        Refused{{"--hca", "name=a,socket=/a", "--contexts", "1"}, "--contexts"},
        Refused{{"--hca", "name=a,socket=/a", "--spin", "always"}, "--spin"},
        Refused{{"--hca", "name=a,socket=/a", "surplus"}, "surplus"}));

}  // namespace
}  // namespace keyhole
