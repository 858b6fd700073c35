// What transformer models differ in, as data: importers fill it in, one builder reads it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace tessera::transformer {

enum class Activation : uint8_t { silu, gelu, gelu_tanh, relu };

// Angles of a rotary embedding: token t turns pair i by t * frequencies[i].
struct Rope {
  std::vector<double> frequencies = {};  // as many as pairs turn; elements of a head past them stay
  double magnitude = 1;                  // of cosine and sine
  // What sequences longer than `original_context` take instead; empty where they take the same.
  std::vector<double> long_frequencies = {};
  double long_magnitude = 1;
  // Past `original_context` the base grows with a sequence's length, `stretch` times as fast; 0: it does not.
  double stretch = 0;
  int64_t original_context = 0;
  bool interleaved = false;  // pairs are neighbours, not halves of a head
};

struct Layer {
  int64_t left = -1, right = -1;  // how many tokens before and after itself one sees; -1: all
  int rope = 0;                   // index into ropes; -1: none
  bool experts = false;
  bool attention_norm = true;
  double attention_scale = 0;
};

// Where norms stand: before each half of a layer; after the residual sum; or before both halves at once, which then run
// side by side.
enum class Block : uint8_t { pre_norm, post_norm, parallel };

struct Experts {
  int64_t count = 0;
  int64_t used = 0;
  int64_t width = 0;
  int64_t shared_width = 0;    // of the expert that all tokens pass; 0: none
  bool shared_switch = false;  // its output is weighed by a sigmoid
  bool normalised = false;     // the weights of those used are scaled to sum to 1
};

struct Config {
  std::string architecture;  // in the words of the file: "llama"
  bool decoder = true;
  int64_t vocabulary = 0, width = 0, heads = 0, groups = 0, head_width = 0, feed_width = 0;
  int64_t context = 0;  // tokens of a sequence that the model was made for
  std::vector<Layer> layers;
  std::vector<Rope> ropes;

  bool layer_norm = false;  // else RMS norm
  bool norm_bias = true;    // of layer norms
  double norm_offset = 0;   // added to a norm's weight
  double eps = 1e-5;
  Block block = Block::pre_norm;
  bool inner_norms = false;  // also on what each half gives, before the residual sum
  bool head_norms = false;   // on each head of q and k
  bool input_norm = false;   // on the embeddings
  bool final_norm = true;

  bool gated = true;
  Activation activation = Activation::silu;
  bool qkv_bias = false, out_bias = false, feed_bias = false, head_bias = false;
  bool fused_qkv = false;      // one matrix: all of q, then k, then v
  bool fused_by_head = false;  // ... or q, k and v of each head together
  bool fused_gate = false;     // gate and up in one matrix
  bool input_major = false;    // weights are stored [inputs, outputs]
  Experts experts;

  bool tied = false;  // the head is the embedding
  double embedding_scale = 1, residual_scale = 1, logit_scale = 1;
  double attention_softcap = 0, logit_softcap = 0;
  int64_t positions = 0;        // learned ones; 0: none
  int64_t position_offset = 0;  // the row of the first token
  int64_t token_types = 0;
  int64_t bias_buckets = 0;  // of a relative attention bias; 0: none
  bool pooler = false;       // there is a dense layer over the first token

  int64_t bos = -1, pad = -1;
  std::vector<int64_t> eos;
};

// More than any head has: importers make a table of its pairs.
constexpr int64_t kMaxHeadWidth = 1 << 14;

// E0313 for sizes that no model has.
Status check(const Config& config);

// The parts that weights play.
enum class Part : uint8_t {
  tokens,
  positions,
  types,
  input_norm,
  attention_norm,
  q,
  k,
  v,
  qkv,
  q_norm,
  k_norm,
  out,
  attention_out_norm,
  feed_norm,
  gate,
  up,
  gate_up,
  down,
  feed_out_norm,
  router,
  expert_gate,
  expert_up,
  expert_down,
  shared_gate,
  shared_up,
  shared_down,
  shared_switch,
  final_norm,
  head,
  bias_table,
  pooler,
};

// Whether it multiplies in a layer: what `input_major` is about.
constexpr bool is_projection(Part part) {
  return (part >= Part::q && part <= Part::qkv) || part == Part::out || (part >= Part::gate && part <= Part::down);
}

}  // namespace tessera::transformer
