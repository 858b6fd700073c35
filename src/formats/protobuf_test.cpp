#include "formats/protobuf.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace tessera::protobuf {
namespace {

Bytes as_bytes(const std::string& s) { return std::as_bytes(std::span(s)); }

// Walks everything, groups included, and gives the final status.
Status walk(const std::string& message) {
  Reader r(as_bytes(message));
  while (r.next()) {
  }
  return r.status();
}

TEST(Protobuf, ReadsWhatItWrites) {
  Writer inner;
  inner.string(1, "deep");
  Writer w;
  w.int64(1, -7);
  w.varint(2, UINT64_MAX);
  w.float32(3, 1.5f);
  w.float64(4, -0.25);
  w.string(5, "text");
  w.message(6, inner);
  w.packed(7, std::vector<int64_t>{1, -1, INT64_MIN});
  w.packed(8, std::vector<float>{0.5f, -2.0f});
  w.int64(7, 300);
  w.float32(8, 4.0f);
  std::string file = w.take();

  Reader r(as_bytes(file));
  std::vector<int64_t> ints;
  std::vector<float> floats;
  int fields = 0;
  for (; r.next(); ++fields) {
    switch (r.number()) {
      case 1:
        EXPECT_EQ(r.int64(), -7);
        break;
      case 2:
        EXPECT_EQ(r.uint64(), UINT64_MAX);
        break;
      case 3:
        EXPECT_EQ(r.float32(), 1.5f);
        break;
      case 4:
        EXPECT_EQ(r.float64(), -0.25);
        break;
      case 5:
        EXPECT_EQ(r.string(), "text");
        break;
      case 6: {
        Reader m = r.message();
        ASSERT_TRUE(m.next());
        EXPECT_EQ(m.string(), "deep");
        EXPECT_FALSE(m.next());
        EXPECT_TRUE(m.status());
        break;
      }
      case 7:
        r.append(ints);
        break;
      case 8:
        r.append(floats);
        break;
    }
  }
  EXPECT_TRUE(r.status());
  EXPECT_EQ(fields, 10);
  EXPECT_EQ(ints, (std::vector<int64_t>{1, -1, INT64_MIN, 300}));
  EXPECT_EQ(floats, (std::vector<float>{0.5f, -2.0f, 4.0f}));
}

TEST(Protobuf, StringsPointIntoTheMessage) {
  Writer w;
  w.string(1, "here");
  std::string file = w.take();
  Reader r(as_bytes(file));
  ASSERT_TRUE(r.next());
  EXPECT_EQ(static_cast<const void*>(r.string().data()), file.data() + 2);
}

TEST(Protobuf, EveryTruncationIsToldOrEndsBetweenFields) {
  Writer w;
  w.int64(1, -7);
  w.float32(3, 1.5f);
  w.float64(4, -0.25);
  w.string(5, std::string(200, 'x'));
  std::string file = w.take();
  int whole = 0;
  for (size_t n = 0; n < file.size(); ++n) {
    Status s = walk(file.substr(0, n));
    if (s)
      ++whole;
    else
      EXPECT_EQ(s.error().code, Code::file_truncated) << n;
  }
  EXPECT_EQ(whole, 4);  // before each field
}

TEST(Protobuf, RefusesMalformedBytes) {
  const std::string bad[] = {
      std::string("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 11),      // 65 bits
      std::string("\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00", 12),  // eleven bytes
      std::string("\x00\x00", 2),                                           // field number 0
      std::string("\x0e", 1),                                               // wire type 6
      std::string("\x0f", 1),                                               // wire type 7
      std::string("\xf8\xff\xff\xff\x7f\x00", 6),                           // field number past 2^29
      std::string("\x0c", 1),                                               // ends a group that is not open
      std::string("\x0b\x14", 2),                                           // group 1 ended as group 2
  };
  for (const std::string& b : bad) {
    Status s = walk(b);
    ASSERT_FALSE(s);
    EXPECT_EQ(s.error().code, Code::file_malformed) << s.error().message;
  }
  EXPECT_FALSE(walk(std::string("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11)));  // a length of 2^64 - 1
}

TEST(Protobuf, SkipsGroupsWithoutRecursion) {
  // Group 1 { 2: 5; group 3 { 4: "a" } }, then 5: 9.
  std::string file("\x0b\x10\x05\x1b\x22\x01\x61\x1c\x0c\x28\x09", 11);
  Reader r(as_bytes(file));
  ASSERT_TRUE(r.next());
  EXPECT_EQ(r.number(), 5u);
  EXPECT_EQ(r.int64(), 9);
  EXPECT_FALSE(r.next());
  EXPECT_TRUE(r.status());
  Status deep = walk(std::string(1 << 20, '\x0b'));
  ASSERT_FALSE(deep);
  EXPECT_EQ(deep.error().code, Code::file_malformed);
}

TEST(Protobuf, StopsAtTheDepthLimit) {
  std::string file = "x";
  for (int i = 0; i < 200; ++i) {
    Writer w;
    w.string(1, file);
    file = w.take();
  }
  Reader r(as_bytes(file));
  int depth = 0;
  while (r.next()) {
    r = r.message();
    ++depth;
  }
  EXPECT_EQ(depth, kMaxDepth + 1);
  ASSERT_FALSE(r.status());
  EXPECT_EQ(r.status().error().code, Code::file_malformed);
}

TEST(Protobuf, KeepsTheFirstFaultWithItsPlace) {
  Writer w;
  w.int64(1, 3);
  w.string(2, "s");
  std::string file = w.take();
  Reader r(as_bytes(file));
  ASSERT_TRUE(r.next() && r.next());
  EXPECT_EQ(r.int64(), 0);
  EXPECT_FALSE(r.next());
  ASSERT_FALSE(r.status());
  EXPECT_EQ(r.status().error().message, "field 2 at byte 2 has wire type 2, which its kind cannot have");
}

TEST(Protobuf, RefusesPackedFieldsThatEndInside) {
  for (bool ints : {false, true}) {
    Writer w;
    w.string(1, std::string("\xff\xff\xff", 3));
    std::string file = w.take();
    Reader r(as_bytes(file));
    ASSERT_TRUE(r.next());
    std::vector<int64_t> a;
    std::vector<float> b;
    if (ints)
      r.append(a);
    else
      r.append(b);
    EXPECT_FALSE(r.next());
    ASSERT_FALSE(r.status());
    EXPECT_EQ(r.status().error().code, Code::file_malformed);
  }
}

TEST(Protobuf, RandomBytesNeverRunAway) {
  std::mt19937 random(4);
  for (int i = 0; i < 20000; ++i) {
    std::string noise(random() % 64, '\0');
    for (char& c : noise) c = static_cast<char>(random());
    Reader r(as_bytes(noise));
    size_t fields = 0;
    std::vector<int64_t> ints;
    while (r.next()) {
      ++fields;
      if (r.wire() == Wire::varint || r.wire() == Wire::bytes) r.append(ints);
    }
    ASSERT_LE(fields, noise.size());
    ASSERT_LE(ints.size(), noise.size());
  }
}

}  // namespace
}  // namespace tessera::protobuf
