// Tokenizers of SentencePiece and GGUF files, and chat templates.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/test_folder.h"
#include "formats/gguf.h"
#include "formats/protobuf.h"
#include "text/chat_template.h"
#include "text/gguf_vocabulary.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

namespace tessera::text {
namespace {

std::string slurp(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::vector<std::string> cut(const std::string& text, const std::string& by) {
  std::vector<std::string> parts;
  size_t done = 0;
  for (size_t at = text.find(by); at != std::string::npos; at = text.find(by, done)) {
    parts.push_back(text.substr(done, at - done));
    done = at + by.size();
  }
  parts.push_back(text.substr(done));
  return parts;
}

TEST(TokenizerFiles, VectorsOfSharedData) {
  const std::string folder = "../shared/data/tokenizers";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is absent";
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string path = entry.path().string();
    if (!path.ends_with(".gguf")) continue;
    ++files;
    const auto tokenizer = Tokenizer::load(path);
    ASSERT_TRUE(tokenizer) << tokenizer.error().to_string();
    const auto texts = cut(slurp(path + ".inp"), "\n__ggml_vocab_test__\n");
    const auto lines = cut(slurp(path + ".out"), "\n");
    ASSERT_GE(lines.size(), texts.size());
    for (size_t i = 0; i < texts.size(); ++i) {
      std::vector<TokenId> wanted;
      std::istringstream line(lines[i]);
      for (TokenId id = 0; line >> id;) wanted.push_back(id);
      const auto ids = tokenizer->encode_ids(texts[i]);
      ASSERT_TRUE(ids);
      EXPECT_EQ(*ids, wanted) << path << ": '" << texts[i] << "'";
    }
  }
  EXPECT_GT(files, 0u);
}

// The same model as .model file beside its configuration, and in a GGUF.
TEST(TokenizerFiles, SentencePieceEqualsGguf) {
  const std::string folder = "../shared/data/stories260k";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is absent";
  for (const std::string& path : {folder, folder + "/stories260k-f32.gguf"}) {
    const auto tokenizer = Tokenizer::load(path);
    ASSERT_TRUE(tokenizer) << tokenizer.error().to_string();
    const auto encoding = tokenizer->encode("Once upon a time", {.offsets = true});
    ASSERT_TRUE(encoding);
    EXPECT_EQ(encoding->ids, (std::vector<TokenId>{1, 403, 407, 261, 378}));
    EXPECT_EQ(encoding->offsets, (std::vector<Span>{{0, 0}, {0, 4}, {4, 9}, {9, 11}, {11, 16}}));
    EXPECT_EQ(tokenizer->special().bos, 1);
    EXPECT_EQ(tokenizer->decode(encoding->ids), "Once upon a time");
    for (const std::string text : {"  two  spaces", "é 東京 \xF0\x9F\x98\x80", "tab\tline\n"})
      EXPECT_EQ(tokenizer->decode(*tokenizer->encode_ids(text)), text);
    // Bytes of a character: the last stands for it.
    const auto bytes = tokenizer->encode("\xF0\x9F\x98\x80", {.frame = false, .offsets = true});
    EXPECT_EQ(bytes->offsets.back(), (Span{0, 4}));
    EXPECT_EQ(bytes->offsets[bytes->offsets.size() - 2], (Span{0, 0}));
  }
}

std::string piece(const std::string& text, float score, int type) {
  protobuf::Writer message;
  message.string(1, text);
  message.float32(2, score);
  message.varint(3, static_cast<uint64_t>(type));
  return message.result();
}

TEST(TokenizerFiles, UnigramModel) {
  protobuf::Writer file;
  const auto add = [&](const std::string& text, float score, int type) { file.string(1, piece(text, score, type)); };
  add("<unk>", 0, 2);
  add("<s>", 0, 3);
  add("▁", -3, 1);
  add("▁ab", -2, 1);
  add("a", -4, 1);
  add("b", -4, 1);
  add("XY", 0, 4);
  const TestFolder folder;
  const auto tokenizer = Tokenizer::load(folder.put("spiece.model", file.result()));
  ASSERT_TRUE(tokenizer) << tokenizer.error().to_string();
  const auto encoding = tokenizer->encode("  ab  bXYqq", {.offsets = true});
  ASSERT_TRUE(encoding);
  EXPECT_EQ(encoding->ids, (std::vector<TokenId>{3, 2, 5, 6, 0}));
  EXPECT_EQ(encoding->offsets, (std::vector<Span>{{2, 4}, {4, 6}, {6, 7}, {7, 9}, {9, 11}}));
  EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{2, 2, 4, 2, 5}), "a b");  // blanks in front go
  std::string cut_off = file.result();
  cut_off.resize(cut_off.size() - 3);
  EXPECT_FALSE(Tokenizer::load(folder.put("cut.model", cut_off)));
}

TEST(TokenizerFiles, FairseqIds) {
  protobuf::Writer file;
  const auto add = [&](const std::string& text, float score, int type) { file.string(1, piece(text, score, type)); };
  add("<unk>", 0, 2);
  add("<s>", 0, 3);
  add("</s>", 0, 3);
  add("▁a", -1, 1);
  add("b", -2, 1);
  const TestFolder folder;
  folder.put("sentencepiece.bpe.model", file.result());
  struct Case {
    const char* config;
    std::vector<TokenId> text, pair;  // of "ab <mask> q", and of "a" and "a"
    TokenId mask;
  };
  const Case cases[] = {
      {R"({"tokenizer_class": "XLMRobertaTokenizer"})", {0, 4, 5, 6, 3, 2}, {0, 4, 2, 2, 4, 2}, 6},
      {R"({"tokenizer_class": "CamembertTokenizer"})", {5, 7, 8, 9, 3, 6}, {5, 7, 6, 6, 7, 6}, 9},
      {R"({"tokenizer_class": "MBartTokenizer", "src_lang": "cs_CZ"})", {4, 5, 31, 3, 2, 7}, {4, 4, 2, 7}, 31},
      {R"({"tokenizer_class": "MBart50Tokenizer"})", {9, 4, 5, 58, 3, 2}, {9, 4, 4, 2}, 58}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.config);
    folder.put("tokenizer_config.json", c.config);
    const auto tokenizer = Tokenizer::load(folder.path());
    ASSERT_TRUE(tokenizer) << tokenizer.error().to_string();
    EXPECT_EQ(tokenizer->encode("ab <mask> q")->ids, c.text);
    EXPECT_EQ(tokenizer->encode_pair("a", "a")->ids, c.pair);
    const auto plain = tokenizer->encode("ab");
    EXPECT_EQ(tokenizer->decode(plain->ids), "ab");
    EXPECT_EQ(tokenizer->special().mask, c.mask);
  }
  for (const char* config :
       {R"({"tokenizer_class": "AlbertTokenizer"})", R"({"tokenizer_class": "MBartTokenizer", "src_lang": "xx"})"}) {
    folder.put("tokenizer_config.json", config);
    EXPECT_FALSE(Tokenizer::load(folder.path())) << config;
  }
}

TEST(TokenizerFiles, RefusesGgufThatContradictsItself) {
  const TestFolder folder;
  const std::vector<std::string> tokens = {"<unk>", "a", "b"};
  const auto load = [&](auto change) {
    gguf::Writer writer;
    writer.set_string("tokenizer.ggml.model", "llama");
    writer.set_strings("tokenizer.ggml.tokens", tokens);
    writer.set_i32s("tokenizer.ggml.token_type", std::vector<int32_t>{2, 1, 1});
    change(writer);
    EXPECT_TRUE(writer.write(folder / "x.gguf"));
    const auto tokenizer = Tokenizer::load(folder / "x.gguf");
    return tokenizer ? std::string("loaded") : code_name(tokenizer.error().code);
  };
  EXPECT_EQ(load([](auto&) {}), "loaded");
  EXPECT_EQ(load([](auto& w) { w.set_string("tokenizer.ggml.model", "magic"); }), "E0402");
  EXPECT_EQ(load([](auto& w) { w.set_f32s("tokenizer.ggml.scores", std::vector<float>{1}); }), "E0209");
  EXPECT_EQ(load([](auto& w) { w.set_i32s("tokenizer.ggml.token_type", std::vector<int32_t>{1, 1, 9}); }), "E0209");
  EXPECT_EQ(load([](auto& w) { w.set_u32("tokenizer.ggml.bos_token_id", 3); }), "E0209");
  EXPECT_EQ(load([](auto& w) { w.set_u32("tokenizer.ggml.tokens", 3); }), "E0302");
}

struct Rendered {
  const char* source;
  const char* wanted;
};

// tokenizer.json as the metadata of a GGUF file, read back.
TEST(TokenizerFiles, AreWrittenAsGguf) {
  std::string letters;  // a vocabulary of all bytes, by their letters
  int id = 0;
  for (uint32_t c = 0x21; c < 0x144; ++c)
    if (c < 0x7F || (c > 0xA0 && c != 0xAD)) {
      append_utf8(letters += c == '"' || c == '\\' ? "\"\\" : "\"", c);
      letters += fmt::format("\": {}, ", id++);
    }
  const std::string bytes =
      R"("type": "BPE", "vocab": {)" + letters + R"("he": 260, "Ġhe": 261}, "merges": ["h e", ["Ġ", "he"]])";
  const std::string fallback = [] {
    std::string tokens;
    for (int i = 0; i < 256; ++i) tokens += fmt::format("\"<0x{:02X}>\": {}, ", i, i + 3);
    return R"("type": "BPE", "byte_fallback": true, "unk_token": "<unk>", "vocab": {"<unk>": 0, "<s>": 1, "</s>": 2, )" +
           tokens + R"("▁": 259, "h": 260, "e": 261, "he": 262, "▁he": 263}, "merges": ["h e", "▁ he"])";
  }();
  const std::string special = R"("added_tokens": [{"id": 264, "content": "<|im_start|>", "special": true})";
  const std::string added = special + R"(, {"id": 265, "content": "<think>", "special": false}], )";
  const std::string byte_decoder = R"("decoder": {"type": "ByteLevel"}, )";
  const std::string llama_parts =
      R"("normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}, "decoder": {"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
      {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}, )";
  const auto split = [&](const std::string& regex) {
    return R"("pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": ")" +
           regex +
           R"("}, "behavior": "Isolated"}, {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]}, )";
  };
  struct Case {
    std::string parts, model;
    const char* kind;  // null: GGUF has no word for it
    const char* pre;
  };
  const Case cases[] = {
      {added + byte_decoder + R"("pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, )", bytes, "gpt2",
       "gpt-2"},
      {added + byte_decoder + split(R"([\\s\\S])"), bytes, nullptr, ""},
      {special + "], " + llama_parts, fallback, "llama", "none"},
  };
  for (const Case& c : cases) {
    const TestFolder folder;
    folder.put("tokenizer.json", "{" + c.parts + "\"model\": {" + c.model + "}}");
    folder.put("tokenizer_config.json", R"({"eos_token": "<|im_start|>", "chat_template": "{{ messages }}"})");
    gguf::Writer writer;
    const Status written = write_gguf_vocabulary(folder.path(), 270, writer);
    EXPECT_EQ(written.has_value(), c.kind != nullptr) << (written ? c.parts : written.error().to_string());
    if (!written) {
      EXPECT_EQ(written.error().code, Code::unsupported_feature);
      continue;
    }
    const std::string head = writer.head().value();
    const gguf::File file = gguf::File::parse(std::as_bytes(std::span(head))).value();
    EXPECT_EQ(file.string("tokenizer.ggml.model").value(), c.kind);
    EXPECT_EQ(file.string("tokenizer.ggml.pre", "none").value(), c.pre);
    EXPECT_EQ(file.strings("tokenizer.ggml.tokens")->back(), "[PAD269]");
    const auto wanted = Tokenizer::load(folder.path());
    const auto made = Tokenizer::from_gguf(file);
    ASSERT_TRUE(wanted && made);
    for (std::string_view text : {"he he<|im_start|>he<think> é", "hhee  he"}) {
      EXPECT_EQ(made->encode_ids(text).value(), wanted->encode_ids(text).value()) << text;
      EXPECT_EQ(made->decode(made->encode_ids(text).value()), wanted->decode(wanted->encode_ids(text).value()));
    }
    EXPECT_EQ(made->special().eos, 264);
    EXPECT_EQ(made->chat_templates().at(0).source, "{{ messages }}");
  }
  gguf::Writer nothing;
  EXPECT_TRUE(write_gguf_vocabulary(TestFolder().path(), 10, nothing));  // a folder without a tokenizer
}

TEST(ChatTemplate, Renders) {
  const auto context =
      Value::parse_json(R"({"messages": [{"role": "user", "content": " Hi "}, {"role": "assistant", "content": "é"}],
                                            "n": 3, "flag": true, "tools": null, "d": {"b": 1, "a": "x\"y"}})");
  ASSERT_TRUE(context);
  const Rendered cases[] = {
      {"{% for m in messages %}\n<{{ m.role }}>{{ m['content'] | trim }}\n{% endfor %}\n", "<user>Hi\n<assistant>é\n"},
      {"a\n  {% if flag %}\n  b\n  {% endif %}\nc", "a\n  b\nc"},
      {"a {%- if flag -%} b {%- endif -%} c", "abc"},
      {"{% set ns = namespace(x=0) %}{% for i in range(n) %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}", "3"},
      {"{% macro f(a, b='z') %}[{{ a }}{{ b }}]{% endmacro %}{{ f(1) }}{{ f(1, b=2) }}", "[1z][12]"},
      {"{{ messages[-1].content ~ messages[::-1][0].role }}", "éassistant"},
      {"{{ d | tojson }} {{ tools }}{{ missing }}{{ flag }}", "{\"b\": 1, \"a\": \"x\\\"y\"} true"},
      {"{{ d | tojson(indent=2) }}", "{\n  \"b\": 1,\n  \"a\": \"x\\\"y\"\n}"},
      {"{% for m in messages if m.role == 'user' %}{{ loop.index }}{{ loop.last }}{% else %}none{% endfor %}", "1true"},
      {"{{ 'a,b'.split(',') | join('-') }} {{ 'Abc'[1:] }} {{ 'x' in d }} {{ 'a' in d and not false }}",
       "a-b bc false true"},
      {"{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | first }}|", " Hi |"},
      {"{{ 'yes' if tools is not none and tools is defined else 'no' }} {{ 7 // 2 }} {{ -7 % 3 }} {{ 1 + 2 * 3 }}",
       "no 3 2 7"},
      {"{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{# note #}", "b=1;a=x\"y;"},
      {"{% set x %}in{% endset %}{{ x | upper }}{% for i in [1,2,3] %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% "
       "endfor %}",
       "IN1"},
      {"{{ strftime_now('%Y') }}", "2023"},
      {"a\n  {% raw %}\n{{ x }}{% endraw %}\n{% raw -%} {%x%} {%- endraw %}", "a\n\n{{ x }}{%x%}"},
      {"{% for i in [1, 2, 3] %}{{ loop.cycle('a', 'b') }}{% endfor %}", "aba"},
      {"{% with x = n, y = 4 %}{{ x + y }}{% set z = 1 %}{% endwith %}{{ x is defined or z is defined }}", "7false"},
      {"{% do messages.index(1) if false %}{{ '%s-%03d|%5.1f|%(a)s' % (1, 2, 3.14) if false else '%s-%03d|%5.1f' % "
       "('a', 2, 3.14) }}",
       "a-002|  3.1"},
      {"{{ '%(a)s%%' % {'a': n} }}{{ '{:>4}|{0}|{x:05.1f}|{d[a]}'.format('q', x=2, d=d) }}", "3%   q|q|002.0|x\"y"},
      {"{% macro f(a, b=a) %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1) }}{{ f(*[1, 2, 3], z=4) }}"
       "{{ f(**{'a': 5}) }}",
       "11[]{}12[3]{\"z\": 4}55[]{}"},
      {"{% macro box(t) %}<{{ caller(t) }}>{% endmacro %}{% for i in [1, 2] %}{% call(x) box('b') %}{{ i ~ x }}"
       "{% endcall %}{% endfor %}",
       "<1b><2b>"},
      {"{{ [7, 8].1 }}{{ n is divisibleby 3 and n is not in [1, 2] }}{{ [1, 2, 3] | select('>', 1) | list }}",
       "8true[2, 3]"},
      {"{{ 'a-b'.partition('-') }}{{ 'a b c'.rsplit(' ', 1) }}{{ '7'.zfill(3) }}{{ 'aXbX'.count('X') }}"
       "{{ 'abc'.removeprefix('a').removesuffix('c') }}{{ '12'.isdigit() }}",
       "[\"a\", \"-\", \"b\"][\"a b\", \"c\"]0072btrue"},
      {"{{ [1, 2, 3] | batch(2, 0) | list }}{{ [1, 2, 3] | slice(2) | list }}{{ 2.567 | round(1) }}{{ 1e2 }}"
       "{% for k, g in messages | groupby('role') %}{{ k }}{{ g | length }}{% endfor %}{{ 'a b' | urlencode }}",
       "[[1, 2], [3, 0]][[1, 2], [3]]2.6100.0assistant1user1a%20b"},
      {"{% set b = {16: 'x', 4: 'y'} %}{{ b[4] ~ b[16] }}{% for k, v in b | dictsort %}{{ k + 1 }}{% endfor %}",
       "yx517"},
      {"{{ ' ' * 2 ~ 'a' * 3 ~ 'b' * -1 }}", "  aaa"},
      {"{{ -1 | abs }} {{ -d.b | string | length }} {{ 'ab' | replace('', '-') }} {{ 'ß' | upper }}", "1 2 -a-b- SS"},
      {R"({{ '\u00e9\x41\ud83d\ude00\uZZ\d\\d' }})", "éA\xF0\x9F\x98\x80\\uZZ\\d\\d"},
      {"{{ {'b': 1, 'a': 'é'} | tojson(separators=(',', ':'), sort_keys=true, ensure_ascii=true) }}",
       "{\"a\":\"\\u00e9\",\"b\":1}"},
      {"{{ {'b': 1, 'a': 2} | dictsort(reverse=true) | map('first') | join }}"
       "{{ {'b': 1, 'a': 2} | dictsort(by='value') | map('first') | join }}",
       "baba"},
      // What is not there has no attributes, no items and no letters; the reference's blanks are JavaScript's.
      {"{{ missing.role }}{{ tools.name is defined }}{{ missing | length }}{% for x in missing %}x{% else %}-{% endfor "
       "%}"
       "{% for k, v in missing | items %}x{% endfor %}{{ missing | trim ~ 'a' in missing }}",
       "false0-false"},
      {"{{ '\u00a0\u3000 x\ufeff\u2003' | trim }}|{{ 'éaé'.strip('é') }}|{{ 'a\u00a0b c'.split() | join('-') }}|"
       "{{ ' a b  c '.rsplit(none, 1) | join('-') }}|{{ 'é\u0085'.rstrip() | length }}",
       "x|a|a-b-c| a b-c|2"},
      {"{{ 'abc'[::100] ~ 'abc'[::-100] ~ 'abc' | reverse }}{{ [1] | trim }}{{ [{'a': 2}, {'a': 3}] | sum('a', 1) }}",
       "accba[1]6"},
      {"{% set x | replace('o', '0') | trim %} f{{ 'oo' }} {% endset %}{{ x }}{% filter upper | trim %} {{ x }}{% "
       "endfilter %}",
       "f00F00"},
  };
  for (const Rendered& c : cases) {
    const auto parsed = ChatTemplate::parse(c.source);
    ASSERT_TRUE(parsed) << parsed.error().to_string();
    const auto text = parsed->render(*context, {.now = 1700000000});
    ASSERT_TRUE(text) << c.source << "\n" << text.error().to_string();
    EXPECT_EQ(*text, c.wanted) << c.source;
  }
}

TEST(ChatTemplate, RefusesWithTheLine) {
  const std::pair<const char*, const char*> unparsed[] = {
      {"a\n{% include 'x' %}", "line 2"},
      {"{{ a | frobnicate }}", "frobnicate"},
      {"{% if a %}", "endif"},
      {"\n{% raw %}{{ x }}", "line 2"},
      {"{{ a", "line 1"},
      {"\n\n{{ a b }}", "line 3"},
  };
  for (const auto& [source, part] : unparsed) {
    const auto parsed = ChatTemplate::parse(source);
    ASSERT_FALSE(parsed) << source;
    EXPECT_EQ(parsed.error().code, Code::template_syntax);
    EXPECT_NE(parsed.error().message.find(part), std::string::npos) << parsed.error().message;
  }
  std::string deep = "{{ ", chain = "{{ a", blocks;
  deep.append(100000, '(');
  EXPECT_FALSE(ChatTemplate::parse(deep));
  for (int i = 0; i < 100000; ++i) chain += ".b";
  const auto long_chain = ChatTemplate::parse(chain + " }}");  // its tree is as deep as it is long
  ASSERT_TRUE(long_chain) << long_chain.error().to_string();
  EXPECT_FALSE(long_chain->render(Value::dict({})));  // and too deep
  for (int i = 0; i < 20000; ++i) blocks += "{% if a %}";
  EXPECT_FALSE(ChatTemplate::parse(blocks));
  const std::pair<const char*, Code> failing[] = {
      {"{{ raise_exception('no system') }}", Code::template_failed},
      {"{{ missing.role.strip() }}", Code::template_failed},
      {"{{ 'a' in none }}", Code::template_failed},
      {"{{ none | trim }}", Code::template_failed},
      {"{% for x in none %}{% endfor %}", Code::template_failed},
      {"{{ 'abc'[::0] }}", Code::template_failed},
      {"{% for i in range(2000000000) %}{% endfor %}", Code::iteration_limit},
      {"{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(200) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
       Code::iteration_limit},
      {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", Code::iteration_limit},
      // Deep, and wide by sharing: each would take more than there is to write, compare or free.
      {"{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}",
       Code::iteration_limit},
      {"{% set ns = namespace(x=[1]) %}{% for i in range(50) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
       Code::iteration_limit},
      {"{% set a = namespace(x=[1]) %}{% set b = namespace(x=[1]) %}{% for i in range(50) %}"
       "{% set a.x = [a.x, a.x] %}{% set b.x = [b.x, b.x] %}{% endfor %}{{ a.x == b.x }}",
       Code::iteration_limit},
      {"{% set ns = namespace() %}{% set ns.me = [ns] %}", Code::iteration_limit},
      {"{% set ns = namespace() %}{% set ns.me = ns %}", Code::iteration_limit},
      {"{% set d = {} %}{% set d.x = 1 %}", Code::template_failed},
      {"{% set x = [1] * 3 %}", Code::template_failed},
      {"{% set x = 'ab' * 2000000000 %}", Code::iteration_limit},
      {"{{ '%1000d' % 1 ~ '%99999d' % 1 }}", Code::template_failed},
      {"{% set ns = namespace(s='%900d') %}{% for i in range(14) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}"
       "{{ ns.s % range(16384) }}",
       Code::iteration_limit},
      {"{{ '{} {}'.format(1) }}", Code::template_failed},
      {"{{ 'a%z' % 1 }}", Code::template_failed},
      {"{% set ns = namespace(s='ab') %}{% for i in range(18) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}"
       "{{ ns.s | replace('a', ns.s) | length }}",
       Code::iteration_limit},
      {"{% set ns = namespace(s='0123456789abcdef') %}{% for i in range(12) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}"
       "{{ range(100000) | join(ns.s) }}",
       Code::iteration_limit},
      {"{{ range(60000) | unique | list | length }}", Code::iteration_limit},
  };
  for (const auto& [source, code] : failing) {
    const auto parsed = ChatTemplate::parse(source);
    ASSERT_TRUE(parsed) << parsed.error().to_string();
    const auto text = parsed->render(Value::dict({}));
    ASSERT_FALSE(text) << source;
    EXPECT_EQ(text.error().code, code) << text.error().to_string();
  }
}

}  // namespace
}  // namespace tessera::text
